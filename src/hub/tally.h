/* tally.h - what the folders of a hub hold, for /metrics: counted as it changes, so that a scrape
 * walks no folder. A walk in the background counts what was there before the hub, and hourly what
 * others have put into the folders. Any thread. */
#ifndef DL_HUB_TALLY_H
#define DL_HUB_TALLY_H

#include "base/buf.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

typedef struct dl_tally_bucket {
    char *name;
    bool counted;            /* objects and bytes are known */
    uint64_t objects, bytes; /* wrap where a change comes before they are known */
    uint64_t n_changes;      /* begun */
    unsigned pending;        /* of them, not ended */
    bool walked;             /* in the walk of all folders that is being made */
} dl_tally_bucket;

typedef struct dl_tally_run {
    char *run; /* "bucket/path" */
    uint64_t entries;
} dl_tally_run;

typedef struct dl_tally_beat {
    char *run, *replica; /* "r0.0001": the newest generation */
    struct timespec at;
} dl_tally_beat;

typedef struct dl_tally {
    pthread_mutex_t lock; /* guards all below */
    dl_tally_bucket *buckets;
    dl_tally_run *runs;
    dl_tally_beat *beats;
    size_t n_buckets, n_runs, n_beats;
} dl_tally;

void dl_tally_init(dl_tally *tally);
void dl_tally_deinit(dl_tally *tally);

/* The bucket was made and is empty, or it was removed. */
void dl_tally_made(dl_tally *tally, const char *bucket);
void dl_tally_removed(dl_tally *tally, const char *bucket);

/* An object of the bucket is about to change, and then has changed: it has `now` bytes and had
 * `before`; -1: there is, or was, none. Both -1: nothing has changed. */
void dl_tally_begin(dl_tally *tally, const char *bucket);
void dl_tally_end(dl_tally *tally, const char *bucket, const char *key, int64_t now,
                  int64_t before);

/* Walk all folders of `dir`. `stop` ends it early. */
void dl_tally_walk(dl_tally *tally, const char *dir, bool (*is_bucket)(const char *name),
                   bool (*stop)(void *context), void *context);

/* Rows in the text format of Prometheus 0.0.4. */
DL_MUST_CHECK diloco_status dl_tally_write(dl_buf *out, dl_tally *tally);

#endif
