/* upload_latency.h - measures how long contributions are in flight. From the longest of the newest
 * trips it derives the tau with which this replica would not wait, in inner steps (2501.18512
 * section 2.3). The record proposes this tau; it is never set automatically. Pure: the owner guards
 * the fields that the exchange changes, and the trainer uses the rest. */
#ifndef DL_RUN_UPLOAD_LATENCY_H
#define DL_RUN_UPLOAD_LATENCY_H

#include "base/arena.h"
#include "base/clock.h"

enum { DL_UPLOAD_LATENCIES = 8 };

typedef struct dl_upload_in_flight {
    uint64_t entry;
    dl_time captured_at; /* 0: not in flight */
} dl_upload_in_flight;

typedef struct dl_upload_latency {
    dl_upload_in_flight *uploads; /* [n] the trip of entry e is in e mod n */
    size_t n;
    dl_time last[DL_UPLOAD_LATENCIES]; /* from the due point until the entry was applied */
    uint64_t n_done;
    /* time spent in steps; when training last resumed, or 0 while it is paused */
    dl_time trained, resumed;
    uint64_t steps;
} dl_upload_latency;

/* n: the most contributions in flight at a time. */
void dl_upload_latency_layout(dl_upload_latency *latency, dl_arena *arena, size_t n);

/* Training resumes; completes a step; pauses. */
void dl_upload_latency_train(dl_upload_latency *latency, dl_time now);
void dl_upload_latency_step(dl_upload_latency *latency);
void dl_upload_latency_pause(dl_upload_latency *latency, dl_time now);

void dl_upload_latency_captured(dl_upload_latency *latency, uint64_t entry, dl_time now);
/* The entry is applied. A contribution that this generation did not capture is no trip. */
void dl_upload_latency_applied(dl_upload_latency *latency, uint64_t entry, dl_time now);

/* Returns the steps of the longest of the newest trips, rounded up, or 0 if it is not known yet. */
uint64_t dl_upload_latency_overlap(const dl_upload_latency *latency);

#endif
