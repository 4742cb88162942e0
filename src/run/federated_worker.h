/* federated_worker.h - a federated run's process (docs/federated.md): it follows the log as every
 * replica does, contributes nothing of its own, and while an entry waits it may train clients that
 * are asked.
 *
 *     dl_run_set_hands; diloco_run_join
 *     until diloco_run_done: dl_run_round      the tensors are theta of the next entry then
 *         work: one of dl_run_asked that dl_run_is_there does not know:
 *             dl_run_give_theta; train; dl_run_put_client
 *
 * All of it on the thread that joined. */
#ifndef DL_RUN_FEDERATED_WORKER_H
#define DL_RUN_FEDERATED_WORKER_H

#include "exchange/exec.h"
#include "log/entry.h"
#include "state/private_state.h"
#include <diloco/run.h>

typedef struct dl_hands {
    /* Train one client; *worked: something may have been put. NULL: this process trains nobody.
     * DILOCO_EUNREACHABLE: it is called again after a pause; other errors end the run here. */
    diloco_status (*work)(void *user, bool *worked);
    void *user;
    bool follows; /* entries are closed by others */
} dl_hands;

/* The options as this process was given them; after the join with those of the run. */
const dl_config *dl_run_config(const diloco_run *run);
/* The pieces that diloco_run_private has registered. Before join. */
const dl_private *dl_run_privates(const diloco_run *run, size_t *n);

/* Before join. `hands` is copied. */
void dl_run_set_hands(diloco_run *run, const dl_hands *hands);

/* See the open entry decided and adopted. As diloco_step: DILOCO_EINTERRUPTED: call again to go
 * on. */
DL_MUST_CHECK diloco_status dl_run_round(diloco_run *run);

/* This process leaves the run before its last entry, for good: the record gets its line "end". */
void dl_run_leave(diloco_run *run);

/* After join. */
const dl_runfile *dl_run_file(const diloco_run *run);
float *dl_run_residual(const diloco_run *run, size_t *n); /* dl_exec_residual */

/* ---- inside `work` ---- */

const dl_roster *dl_run_asked(const diloco_run *run); /* the open entry's clients */
uint64_t dl_run_open_entry(const diloco_run *run);
/* Has somebody put this client's contribution? As of the last look. */
bool dl_run_is_there(const diloco_run *run, const char *client);
void dl_run_give_theta(diloco_run *run);
/* See dl_exec_put_client. The record gets its line. */
DL_MUST_CHECK diloco_status dl_run_put_client(diloco_run *run, bool *first,
                                              const dl_exec_client *client);

/* Does the open entry stand by now? Then whatever is done for it comes too late. */
DL_MUST_CHECK diloco_status dl_run_is_late(diloco_run *run, bool *late);
/* What entry `entry`, which stands, counted of a client: *counted, and then its member. Read from
 * the store. */
DL_MUST_CHECK diloco_status dl_run_member(diloco_run *run, bool *counted, dl_member *member,
                                          uint64_t entry, const char *client);
/* Live workers of this run in order of their names, as far as heartbeats and ends tell (P11): how
 * many, and the place of this one among them. Workers' names begin with the same letter, a server's
 * with another. */
DL_MUST_CHECK diloco_status dl_run_crew(diloco_run *run, size_t *place, size_t *n);

#endif
