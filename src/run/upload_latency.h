/* upload_latency.h - how long contributions are under way, and so the tau that this replica would
 * need not to wait for any: the longest of the last trips, in inner steps (2501.18512 section 2.3).
 * It is proposed in the record and never set by itself. Pure; the owner guards what the log folds,
 * the rest is the trainer's. */
#ifndef DL_RUN_UPLOAD_LATENCY_H
#define DL_RUN_UPLOAD_LATENCY_H

#include "base/arena.h"
#include "base/clock.h"

enum { DL_TRIPS = 8 };

typedef struct dl_trip {
    uint64_t entry;
    dl_time taken; /* 0: not under way */
} dl_trip;

typedef struct dl_trips {
    dl_trip *under_way; /* [n] that of entry e in e mod n */
    size_t n;
    dl_time last[DL_TRIPS]; /* from the due point until the entry was folded */
    uint64_t n_done;
    dl_time trained, resumed; /* time spent in steps; since when this goes on, 0: it does not */
    uint64_t steps;
} dl_trips;

/* n: the most contributions under way at a time. */
void dl_trips_layout(dl_trips *trips, dl_arena *arena, size_t n);

/* Training goes on; has completed a step; stands still. */
void dl_trips_train(dl_trips *trips, dl_time now);
void dl_trips_step(dl_trips *trips);
void dl_trips_pause(dl_trips *trips, dl_time now);

void dl_trips_taken(dl_trips *trips, uint64_t entry, dl_time now);
/* The entry stands. What this life has not taken is no trip. */
void dl_trips_folded(dl_trips *trips, uint64_t entry, dl_time now);

/* Steps that the longest of the last trips takes, rounded up; 0: not known yet. */
uint64_t dl_trips_overlap(const dl_trips *trips);

#endif
