/* turns.h - which logical client a worker trains next, and the private state that the client
 * continues from (docs/federated.md). Knows nothing of how a client is trained.
 *
 *     until the run is done, while the open entry waits:
 *         dl_turns_next                 a client, or none
 *         dl_turns_take_up              its vectors, as the log says
 *         ... theta, its steps, and the contribution, which calls dl_turns_keep */
#ifndef DL_CLIENTS_TURNS_H
#define DL_CLIENTS_TURNS_H

#include "clients/client.h"
#include "protocol/simulated_time.h"
#include "run/federated_worker.h"

/* One worker's view of the open entry. The caller's one thread uses it. */
typedef struct dl_turns {
    /* Borrowed; the caller sets these four. */
    const dl_config *config;
    diloco_run *run;
    diloco_status (*warn)(void *user, const char *text); /* a client's optimizer starts again */
    void *user;

    dl_simulation simulation; /* of the clients' time */
    dl_simulated *simulated;  /* [clients.per_round] owned; NULL: time is real */
    dl_store *private_store;  /* owned */
    dl_client_store clients;

    bool fresh;     /* the client that was loaded last has no state: its vectors are zero */
    uint64_t entry; /* the open entry that the members below are about; UINT64_MAX: none yet */
    size_t place, n_workers; /* this worker among the live ones, in the order of their names */
    dl_time idle_since;      /* when this worker had no more clients of its own; 0: it has some */
    dl_time client_took;     /* the last client's training; the caller sets it; 0: none yet */
} dl_turns;

/* Opens the place of the clients' states: clients.state, or a folder of run.state_dir. Call it
 * before the join. `out` has its borrowed members set and is zero otherwise. Returns the store's
 * errors, and an error if a new folder cannot be closed to other users. Close it also after an
 * error. */
DL_MUST_CHECK diloco_status dl_turns_open(dl_turns *out);
/* Call it after the join. `vectors` [n] are a client's private state, borrowed until the close.
 * Returns DILOCO_ENOMEM, or an error of the simulation's settings. */
DL_MUST_CHECK diloco_status dl_turns_begin(dl_turns *t, const dl_private *vectors, size_t n);
void dl_turns_close(dl_turns *t); /* zeroed is fine */

/* Sets *client to one that the open entry still misses and that is this worker's turn, or to NULL
 * if no client needs it now. The name is borrowed from the run until the next entry. */
DL_MUST_CHECK diloco_status dl_turns_next(dl_turns *t, const char **client);
/* Returns the number of clients of the open entry that need no more training. */
size_t dl_turns_settled(const dl_turns *t);

/* Fills the vectors with the state that f->client continues from, and *f with its steps and its
 * place in the data. They are zero for a client that no entry has counted. *late is true if the
 * entry is committed without this client; the vectors must not be used then. Returns
 * DILOCO_EDIFFERS if the state is lost and clients.on_lost_state is "stop". */
DL_MUST_CHECK diloco_status dl_turns_take_up(dl_turns *t, dl_client_facts *f, bool *late);
/* Saves the vectors as the state that goes with the contribution of this body, durably, before that
 * contribution is created (FED-36). Sets f->entry and f->body. */
DL_MUST_CHECK diloco_status dl_turns_keep(dl_turns *t, dl_client_facts *f, dl_hash body);

#endif
