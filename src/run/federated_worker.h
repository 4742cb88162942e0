/* federated_worker.h - a process of a federated run (docs/federated.md). It follows the log as
 * every replica does, and contributes nothing of its own. While an entry waits, it may train the
 * clients that the entry samples.
 *
 *     dl_run_set_worker_hooks; diloco_run_join
 *     until diloco_run_done: dl_run_round      the tensors are theta of the next entry then
 *         work: one of dl_run_sampled that dl_run_has_contribution does not know:
 *             dl_run_load_theta; train; dl_run_put_client
 *
 * All calls are made on the thread that joined. */
#ifndef DL_RUN_FEDERATED_WORKER_H
#define DL_RUN_FEDERATED_WORKER_H

#include "exchange/exec.h"
#include "log/entry.h"
#include "state/private_state.h"
#include <diloco/run.h>

typedef struct dl_worker_hooks {
    /* Trains one client; *worked: something may have been uploaded. NULL: this process trains no
     * clients. After DILOCO_EUNREACHABLE it is called again after a pause; other errors end the run
     * here. */
    diloco_status (*work)(void *user, bool *worked);
    void *user;
    bool follows; /* other replicas close entries */
} dl_worker_hooks;

/* Returns the options that this process was given; after the join, with those of the run. */
const dl_config *dl_run_config(const diloco_run *run);
/* Returns the arrays that diloco_run_private has registered. Call it before the join. */
const dl_private *dl_run_privates(const diloco_run *run, size_t *n);

/* Call it before the join. `hands` is copied. */
void dl_run_set_worker_hooks(diloco_run *run, const dl_worker_hooks *worker_hooks);

/* Waits until the open entry is decided and adopted. As diloco_step: after DILOCO_EINTERRUPTED,
 * call it again to continue. */
DL_MUST_CHECK diloco_status dl_run_round(diloco_run *run);

/* Leaves the run for good before its last entry; the record gets its line "end". */
void dl_run_leave(diloco_run *run);

/* Call it after the join. */
const dl_runfile *dl_run_file(const diloco_run *run);
float *dl_run_residual(const diloco_run *run, size_t *n); /* dl_exec_residual */

/* ---- inside `work` ---- */

const dl_roster *dl_run_sampled(const diloco_run *run); /* the open entry's clients */
uint64_t dl_run_open_entry(const diloco_run *run);
/* Returns whether a worker has uploaded this client's contribution, as of the last look. */
bool dl_run_has_contribution(const diloco_run *run, const char *client);
void dl_run_load_theta(diloco_run *run);
/* See dl_exec_put_client. Writes a line to the record. */
DL_MUST_CHECK diloco_status dl_run_put_client(diloco_run *run, bool *first,
                                              const dl_exec_client *client);

/* Sets *late if the open entry is decided by now, so that any contribution to it is too late. */
DL_MUST_CHECK diloco_status dl_run_is_late(diloco_run *run, bool *late);
/* Reads from the store what an earlier entry counted of a client: *counted, and if so its member.
 * An unreadable entry (P7.9) counted none. Returns DILOCO_EPROTO for one that was damaged after
 * replicas had read it, and store errors. */
DL_MUST_CHECK diloco_status dl_run_member(diloco_run *run, bool *counted, dl_member *member,
                                          uint64_t entry, const char *client);
/* Returns the number of live workers of this run, and this one's place in the order of their names.
 * It uses heartbeats and end objects (P11). Workers' names begin with the same letter, a server's
 * with another. */
DL_MUST_CHECK diloco_status dl_run_live_workers(diloco_run *run, size_t *place, size_t *n);

#endif
