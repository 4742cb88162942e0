/* collection.h - snapshots written, read back (unless the store confirms them, P8), and what
 * they make unnecessary removed (P25). */
#ifndef DL_STATE_COLLECTION_H
#define DL_STATE_COLLECTION_H

#include "state/state.h"

/* What a collector remembers between two collections: the heartbeats it saw, so that a dead
 * replica's last word does not keep everything for ever; and the last snapshot that it read
 * back. Zeroed at first; about 100 KB. */
enum { DL_COLLECTOR_LIVES = 1024 };
typedef struct dl_collector {
    struct {
        dl_life life;
        dl_hash content;
        dl_time changed;        /* when this content was first seen */
    } seen[DL_COLLECTOR_LIVES]; /* the newest generation of each replica */
    size_t n_seen;
    bool crowded;            /* more replicas have heartbeats, which was reported */
    dl_time now;             /* 0: the clock's; else that of whoever plays with time */
    uint64_t verified_entry; /* 0: none */
    dl_life verified_life;
} dl_collector;

/* Write a snapshot of now, read it back unless the store confirms it, and unless run.retain is
 * "all" remove contributions and snapshots older than the second-newest that reads back whole,
 * nothing at or after the entry of a heartbeat that changed within run.patience of watching. A
 * failure to collect is logged, not returned; a failure to write is. */
DL_MUST_CHECK diloco_status dl_snapshot_and_collect(dl_collector *collector, dl_store *store,
                                                    const dl_state *state, const dl_runfile *run,
                                                    const dl_life *life, const dl_signer *signer,
                                                    dl_time until);

#endif
