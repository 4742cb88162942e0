/* collection.h - writes snapshots, reads them back (unless the store confirms them, P8), and
 * deletes objects that are no longer needed (P25). */
#ifndef DL_STATE_COLLECTION_H
#define DL_STATE_COLLECTION_H

#include "log/beating.h"
#include "log/keyring.h"
#include "state/state.h"

#include <stdatomic.h>

/* A collector's memory between two collections. It has the heartbeats that it saw, so that the last
 * heartbeat of a dead replica does not protect objects for ever. It also has the members' keys, and
 * the last snapshot that it read back. Zero it first, and deinit it before another store is used.
 * It has about 800 KB, of which few are touched. */
enum {
    DL_COLLECTOR_MEMBERS = DL_MAX_MEMBERS, /* of a roster, or of a closed run's list */
    DL_COLLECTOR_OTHERS = 1024,
    DL_COLLECTOR_LIVES = DL_COLLECTOR_MEMBERS + DL_COLLECTOR_OTHERS,
    DL_COLLECTOR_PREFIXES = 4 /* under which objects are deleted */
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
    dl_collector_row seen[DL_COLLECTOR_LIVES]; /* in strcmp order of the names */
    size_t n_seen, n_others;
    bool crowded;            /* more replicas have heartbeats, which was reported */
    dl_time now;             /* 0: use the clock; else simulated time */
    uint64_t verified_entry; /* 0: no snapshot was verified */
    dl_generation verified_generation;
    dl_key after[DL_COLLECTOR_PREFIXES]; /* where the last collection ended; "": at the floor */
    /* A newer snapshot waits for its collection, so this one ends soon. Any thread may set it. */
    atomic_bool newer;
    dl_keyring *ring; /* owned; NULL: the run has no keys, or none was needed yet */
} dl_collector;
void dl_collector_deinit(dl_collector *collector);

/* A snapshot that was written, and what a collection after it needs of the state. */
typedef struct dl_collection {
    uint64_t entry;
    dl_generation generation;
    bool confirmed;           /* by the store, so it need not be read back */
    const dl_roster *counted; /* of that state */
} dl_collection;

/* Reads the snapshot back, unless it is confirmed. Returns an error if it is not whole. */
DL_MUST_CHECK diloco_status dl_collection_read_back(dl_store *store, const dl_runfile *run,
                                                    const dl_collection *what, dl_time until);

/* Unless run.retain is "all", deletes contributions and snapshots older than the second-newest
 * snapshot that reads back whole. The one in `what` has been read back. It deletes nothing at or
 * after the entry of a heartbeat that changed within run.patience. In a run with keys only signed
 * heartbeats count (P11.4). A failure is logged. The state is not used, so it may change meanwhile.
 * A collector has the same store each time. dl_store_abort ends a collection, which leaves the rest
 * to a later one. */
void dl_collect(dl_collector *collector, dl_store *store, const dl_runfile *run,
                const dl_collection *what, dl_time until);

/* Writes a snapshot of `now`, reads it back, and collects. A failure to write or to read back is
 * returned. */
DL_MUST_CHECK diloco_status dl_snapshot_and_collect(dl_collector *collector, dl_store *store,
                                                    const dl_state *state, const dl_runfile *run,
                                                    const dl_generation *generation,
                                                    const dl_signer *signer, dl_time until);

#endif
