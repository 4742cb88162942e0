/* worker.h - trains logical clients (docs/federated.md), one after the other. Each has a state of
 * its own; all use the one model and the one set of arrays that the process has. */
#ifndef DL_FED_WORKER_H
#define DL_FED_WORKER_H

#include "clients/turns.h"
#include "train/replica_loop.h"

/* Arrays of a client's state at most: the inner optimizer's, its step count and the residual. */
enum { DL_WORKER_MAX_VECTORS = 32 };

typedef struct dl_worker {
    dl_replica *replica; /* borrowed; its step and inner_steps are the current client's */
    dl_private vectors[DL_WORKER_MAX_VECTORS]; /* a client's state, in the order of its object */
    size_t n_vectors;
    dl_turns turns;
    size_t n_settled; /* clients of the entry that needed no training when the last one began */
} dl_worker;

/* Prepares a worker, after the run is opened and before it is joined. `replica` is borrowed and
 * gets its `step`. Returns DILOCO_EREFUSED if there is no private place for states. Close the
 * worker also after an error. */
DL_MUST_CHECK diloco_status dl_worker_open(dl_worker *out, dl_replica *replica);
/* Call it after the join. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_worker_begin(dl_worker *w);
void dl_worker_close(dl_worker *w); /* a zeroed worker is fine */

/* Trains one client that the open entry still misses, if it is this worker's turn; the hook
 * dl_worker_hooks.work. *worked: a contribution was uploaded. If the process is asked to stop
 * before the last step, the client keeps its old state. */
DL_MUST_CHECK diloco_status dl_worker_work(void *worker, bool *worked);

#endif
