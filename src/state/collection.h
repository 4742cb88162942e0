/* collection.h - writes snapshots, reads them back (unless the store confirms them, P8), and
 * deletes objects that are no longer needed (P25). */
#ifndef DL_STATE_COLLECTION_H
#define DL_STATE_COLLECTION_H

#include "log/beating.h"
#include "state/state.h"

/* A collector's memory between two collections. It has the heartbeats that it saw, so that the last
 * heartbeat of a dead replica does not protect objects for ever. It also has the last snapshot that
 * it read back. Zero it first; about 800 KB, of which few are touched. */
enum {
    DL_COLLECTOR_MEMBERS = DL_MAX_MEMBERS, /* of a roster, or of a closed run's list */
    DL_COLLECTOR_OTHERS = 1024,
    DL_COLLECTOR_LIVES = DL_COLLECTOR_MEMBERS + DL_COLLECTOR_OTHERS
};
/* A replica's newest heartbeat. Without keys only its name and content count. */
typedef struct dl_collector_row {
    dl_beating of;
    dl_hash content;
    uint64_t beat;   /* of a signed heartbeat: the highest so far */
    uint64_t entry;  /* that it protects */
    dl_time changed; /* when this content was first seen; 0: never */
    bool there;      /* it exists; a signed one once did */
    bool is_member;
} dl_collector_row;
typedef struct dl_collector {
    dl_collector_row seen[DL_COLLECTOR_LIVES];
    size_t n_seen, n_others;
    bool crowded;            /* more replicas have heartbeats, which was reported */
    dl_time now;             /* 0: use the clock; else simulated time */
    uint64_t verified_entry; /* 0: no snapshot was verified */
    dl_generation verified_generation;
} dl_collector;

/* Writes a snapshot of `now` and reads it back, unless the store confirms it. Unless run.retain is
 * "all", it then deletes contributions and snapshots older than the second-newest snapshot that
 * reads back whole. It deletes nothing at or after the entry of a heartbeat that changed within
 * run.patience. In a run with keys only signed heartbeats count (P11.4). A failure to collect is
 * logged, and a failure to write is returned. */
DL_MUST_CHECK diloco_status dl_snapshot_and_collect(dl_collector *collector, dl_store *store,
                                                    const dl_state *state, const dl_runfile *run,
                                                    const dl_generation *generation,
                                                    const dl_signer *signer, dl_time until);

#endif
