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

typedef struct dl_turns {
    /* borrowed */
    const dl_config *config;
    diloco_run *run;
    diloco_status (*warn)(void *user, const char *text); /* a client's optimizer starts again */
    void *user;

    dl_simulation simulation; /* of the clients' time */
    dl_simulated *simulated;  /* [roster of the entry] owned; NULL: it is real */
    dl_store *private_store;
    dl_client_store clients;

    bool fresh;     /* the client that was taken up last has no state: its vectors are zero */
    uint64_t entry; /* of what follows */
    size_t place, n_workers; /* this worker among the live ones */
    dl_time idle_since;      /* own clients are done; 0: not yet */
    dl_time client_took;     /* training one, the last time; the caller sets it */
} dl_turns;

/* Open the place of the clients' states: clients.state, or a folder of run.state_dir. Before the
 * join; `out` has its borrowed members set and is zeroed otherwise. Close it also after an error.
 */
DL_MUST_CHECK diloco_status dl_turns_open(dl_turns *out);
/* After the join: `vectors` are a client's private state, borrowed. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_turns_begin(dl_turns *t, const dl_private *vectors, size_t n);
void dl_turns_close(dl_turns *t); /* zeroed is fine */

/* *client: one that the open entry still misses and that is this worker's turn; NULL: none now. */
DL_MUST_CHECK diloco_status dl_turns_next(dl_turns *t, const char **client);
/* How many clients of the open entry need no more training. */
size_t dl_turns_settled(const dl_turns *t);

/* Fill the vectors with the state that f->client continues from, and *f with its steps and place in
 * the data; of a client that no entry counted they are zero. *late: the entry is committed without
 * this client, so nothing was read. DILOCO_EDIFFERS: the state is lost, and clients.on_lost_state
 * is "stop". */
DL_MUST_CHECK diloco_status dl_turns_take_up(dl_turns *t, dl_client_facts *f, bool *late);
/* Save the vectors as the state that goes with the contribution of this body (FED-36). */
DL_MUST_CHECK diloco_status dl_turns_keep(dl_turns *t, dl_client_facts *f, dl_hash body);

#endif
