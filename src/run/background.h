/* background.h - what a replica does beside training: heartbeats and snapshots; and where it may
 * let in whom the owner invited, looking for newcomers (keyring.h).
 *
 * A thread and a store handle each, so that a heartbeat never queues behind tensors and a
 * snapshot is written while training goes on. */
#ifndef DL_RUN_BACKGROUND_H
#define DL_RUN_BACKGROUND_H

#include "exchange/peers.h"
#include "state/state.h"

typedef struct dl_background dl_background;

typedef struct dl_background_args {
    const char *url;
    dl_moved *tally;       /* of what its handles move; NULL: none */
    const dl_runfile *run; /* borrowed, as all */
    const dl_state *state;
    dl_life self;
    const dl_signer *signer; /* NULL: nothing is signed */
    dl_peers *peers;         /* NULL: others read from the store alone */
} dl_background_args;

/* Starts the threads. The first heartbeat names entry 0, which protects every object from
 * collection until the state is loaded (P25). DILOCO_ENOMEM, errors of dl_store_open. */
DL_MUST_CHECK diloco_status dl_background_create(dl_background **out,
                                                 const dl_background_args *args);
/* Finishes a snapshot under way, then stops all. NULL is fine. */
void dl_background_destroy(dl_background *b);

/* What heartbeats tell from now on. Any thread; allocates nothing. */
void dl_background_tell_step(dl_background *b, uint64_t step, uint64_t position);
void dl_background_tell_entry(dl_background *b, uint64_t entry);
void dl_background_tell_waiting(dl_background *b, bool waiting); /* for others */

/* This replica goes on as a later generation: whose heartbeats and snapshots these are. */
void dl_background_tell_generation(dl_background *b, uint32_t generation);

/* … of the link as the exchange sees it, and the deadline that the open entry derived. */
void dl_background_tell_link(dl_background *b, const dl_store_speed *speed, double deadline_s);

/* DILOCO_EFENCED: gen/ has a later life of this replica, as was seen behind a heartbeat while it
 * waited (P6). Any thread. */
DL_MUST_CHECK diloco_status dl_background_fenced(const dl_background *b);

/* Heartbeats that were put, and the longest that one took. Any thread. */
void dl_background_beats(dl_background *b, uint64_t *n, double *longest_s);

/* Write a snapshot of the state's `now`, read it back, collect. The state must not change
 * until dl_background_settle returns. A failure is a warning: there will be another. */
void dl_background_snapshot(dl_background *b);
/* The same on the caller's thread and handle. */
void dl_background_snapshot_here(dl_background *b, dl_store *store);
/* Wait for the snapshot under way, if there is one. */
void dl_background_settle(dl_background *b);

/* Object bytes that these threads have moved so far. Any thread. */
void dl_background_traffic(const dl_background *b, uint64_t *sent, uint64_t *received);

#endif
