/* upload_latency.h - measures how long contributions are in flight. From the longest of the newest
 * trips it derives the tau with which this replica would not wait, in inner steps (2501.18512
 * section 2.3). The record proposes this tau; it is never set automatically. Pure: the owner guards
 * the fields that the exchange changes, and the trainer uses the rest. */
#ifndef DL_RUN_UPLOAD_LATENCY_H
#define DL_RUN_UPLOAD_LATENCY_H

#include "base/arena.h"
#include "base/clock.h"

enum { DL_TRIPS = 8 };

typedef struct dl_trip {
    uint64_t entry;
    dl_time taken; /* 0: not in flight */
} dl_trip;

typedef struct dl_trips {
    dl_trip *under_way; /* [n] the trip of entry e is in e mod n */
    size_t n;
    dl_time last[DL_TRIPS]; /* from the due point until the entry was applied */
    uint64_t n_done;
    /* time spent in steps; when training last resumed, or 0 while it is paused */
    dl_time trained, resumed;
    uint64_t steps;
} dl_trips;

/* n: the most contributions in flight at a time. */
void dl_trips_layout(dl_trips *trips, dl_arena *arena, size_t n);

/* Training resumes; completes a step; pauses. */
void dl_trips_train(dl_trips *trips, dl_time now);
void dl_trips_step(dl_trips *trips);
void dl_trips_pause(dl_trips *trips, dl_time now);

void dl_trips_taken(dl_trips *trips, uint64_t entry, dl_time now);
/* The entry is applied. A contribution that this generation did not capture is no trip. */
void dl_trips_folded(dl_trips *trips, uint64_t entry, dl_time now);

/* Returns the steps of the longest of the newest trips, rounded up, or 0 if it is not known yet. */
uint64_t dl_trips_overlap(const dl_trips *trips);

#endif
