/* collection.h - writes snapshots, reads them back (unless the store confirms them, P8), and
 * deletes objects that are no longer needed (P25). */
#ifndef DL_STATE_COLLECTION_H
#define DL_STATE_COLLECTION_H

#include "state/state.h"

/* A collector's memory between two collections. It has the heartbeats that it saw, so that the last
 * heartbeat of a dead replica does not protect objects for ever. It also has the last snapshot that
 * it read back. Zero it first; about 100 KB. */
enum { DL_COLLECTOR_LIVES = 1024 };
typedef struct dl_collector {
    struct {
        dl_generation generation;
        dl_hash content;
        dl_time changed;        /* when this content was first seen */
    } seen[DL_COLLECTOR_LIVES]; /* the newest generation of each replica */
    size_t n_seen;
    bool crowded;            /* more replicas have heartbeats, which was reported */
    dl_time now;             /* 0: use the clock; else simulated time */
    uint64_t verified_entry; /* 0: no snapshot was verified */
    dl_generation verified_generation;
} dl_collector;

/* Writes a snapshot of `now` and reads it back, unless the store confirms it. Unless run.retain is
 * "all", it then deletes contributions and snapshots older than the second-newest snapshot that
 * reads back whole. It deletes nothing at or after the entry of a heartbeat that changed within
 * run.patience. A failure to collect is logged, and a failure to write is returned. */
DL_MUST_CHECK diloco_status dl_snapshot_and_collect(dl_collector *collector, dl_store *store,
                                                    const dl_state *state, const dl_runfile *run,
                                                    const dl_generation *generation,
                                                    const dl_signer *signer, dl_time until);

#endif
