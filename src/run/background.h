/* background.h - a replica's background work: heartbeats and snapshots. If the replica may admit
 * invited replicas, it also looks for new ones (keyring.h).
 *
 * Each has its own thread and store handle, and so has the collection of old objects. So a
 * heartbeat never waits for tensors, a snapshot is written during training, and no snapshot waits
 * for a collection. */
#ifndef DL_RUN_BACKGROUND_H
#define DL_RUN_BACKGROUND_H

#include "exchange/peers.h"
#include "state/state.h"

typedef struct dl_background dl_background;

typedef struct dl_background_args {
    const dl_store_address *address;
    dl_moved *tally;       /* counts its handles' traffic; NULL: not counted */
    const dl_runfile *run; /* borrowed, as all pointers here */
    const dl_state *state;
    dl_generation self;
    const dl_signer *signer; /* NULL: the run has no keys */
    dl_peers *peers;         /* NULL: the replica serves no peers */
} dl_background_args;

/* Starts the threads. The first heartbeat names entry 0, which protects every object from
 * collection until the state is loaded (P25). Returns DILOCO_ENOMEM, or an error of dl_store_open.
 */
DL_MUST_CHECK diloco_status dl_background_create(dl_background **out,
                                                 const dl_background_args *args);
/* Finishes a snapshot in progress, but no collection, then stops the threads. NULL is fine. */
void dl_background_destroy(dl_background *b);

/* Set the contents of later heartbeats. Any thread may call them; they allocate nothing. */
void dl_background_set_step(dl_background *b, uint64_t step, uint64_t position);
void dl_background_set_entry(dl_background *b, uint64_t entry);
void dl_background_set_waiting(dl_background *b, bool waiting); /* for other replicas */

/* Sets the generation in whose name heartbeats and snapshots are written. */
void dl_background_set_generation(dl_background *b, uint32_t generation);

/* Sets the exchange's measurement of the link, and the deadline that the open entry derived. */
void dl_background_set_link(dl_background *b, const dl_store_speed *speed, double deadline_s);

/* Returns DILOCO_EFENCED if gen/ has a later generation of this replica. The heartbeat thread looks
 * for one while the replica waits (P6). Any thread may call it. */
DL_MUST_CHECK diloco_status dl_background_fenced(const dl_background *b);

/* Returns the number of heartbeats and the longest time that one took. Any thread may call it. */
void dl_background_beats(dl_background *b, uint64_t *n, double *longest_s);

/* Writes a snapshot of the state's `now`, reads it back, and collects old objects. The state must
 * not change until dl_background_settle returns. A snapshot waits until the last one is read back,
 * but not for collections, of which one runs at a time. A failure is only a warning, since another
 * snapshot follows. */
void dl_background_snapshot(dl_background *b);
/* Does the same on the caller's thread and handle for the run's last snapshot: it ends a collection
 * in progress. Its own collection takes at most ten minutes. */
void dl_background_snapshot_here(dl_background *b, dl_store *store);
/* Waits until a snapshot in progress is written, if any. */
void dl_background_settle(dl_background *b);

/* Returns the object bytes that these threads have moved so far. Any thread may call it. */
void dl_background_traffic(const dl_background *b, uint64_t *sent, uint64_t *received);

#endif
