/* worker.h - trains logical clients (docs/federated.md): one after the other, each with its own
 * state, on the model and in the memory that there is once. */
#ifndef DL_FED_WORKER_H
#define DL_FED_WORKER_H

#include "clients/turns.h"
#include "train/replica_loop.h"

enum { DL_WORKER_MAX_VECTORS = 32 };

typedef struct dl_worker {
    dl_replica *replica; /* borrowed; its step and inner_steps are of the client in hand */
    dl_private vectors[DL_WORKER_MAX_VECTORS];
    size_t n_vectors;
    dl_turns turns;
    size_t n_settled; /* of the entry's clients, when the last one was taken */
} dl_worker;

/* After the run is opened, before it is joined. DILOCO_EREFUSED: no private place for states. */
DL_MUST_CHECK diloco_status dl_worker_open(dl_worker *out, dl_replica *replica);
/* After the join. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_worker_begin(dl_worker *w);
void dl_worker_close(dl_worker *w); /* zeroed is fine */

/* A dl_worker_hooks.work: train one client that the open entry still misses, if it is this worker's
 * turn. A client whose entry is asked to stop meanwhile is left as it was. */
DL_MUST_CHECK diloco_status dl_worker_work(void *worker, bool *worked);

#endif
