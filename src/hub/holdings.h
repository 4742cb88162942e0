/* holdings.h - the content of a hub's folders, for /metrics: counted as it changes, so that a
 * scrape walks no folder. A walk in the background counts what was there before the hub, and hourly
 * what others have put into the folders. Any thread. */
#ifndef DL_HUB_HOLDINGS_H
#define DL_HUB_HOLDINGS_H

#include "base/buf.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

/* Counts of one bucket. Names in these rows are owned by the row. */
typedef struct dl_holdings_bucket {
    char *name;              /* owned */
    bool counted;            /* objects and bytes are known */
    uint64_t objects, bytes; /* wrap where a change comes before they are known */
    uint64_t n_changes;      /* begun */
    unsigned pending;        /* of them, not ended */
    bool walked;             /* in the walk of all folders that is being made */
} dl_holdings_bucket;

typedef struct dl_holdings_run {
    char *run; /* "bucket/path" */
    uint64_t entries;
} dl_holdings_run;

typedef struct dl_holdings_beat {
    char *run, *replica; /* "r0.0001": the newest generation */
    struct timespec at;
} dl_holdings_beat;

/* All rows. They are arrays that grow by one, since buckets and runs are few. */
typedef struct dl_holdings {
    pthread_mutex_t lock; /* guards all below */
    dl_holdings_bucket *buckets;
    dl_holdings_run *runs;   /* in no order */
    dl_holdings_beat *beats; /* in no order */
    size_t n_buckets, n_runs, n_beats;
} dl_holdings;

void dl_holdings_init(dl_holdings *tally);
void dl_holdings_deinit(dl_holdings *tally);

/* The bucket was made and is empty, or it was removed. */
void dl_holdings_made(dl_holdings *tally, const char *bucket);
void dl_holdings_removed(dl_holdings *tally, const char *bucket);

/* An object of the bucket is about to change, and then has changed: it has `now` bytes and had
 * `before`; -1: there is, or was, none. Both -1: nothing has changed. */
void dl_holdings_begin(dl_holdings *tally, const char *bucket);
void dl_holdings_end(dl_holdings *tally, const char *bucket, const char *key, int64_t now,
                     int64_t before);

/* Walk all folders of `dir`. `stop` ends it early. */
void dl_holdings_walk(dl_holdings *tally, const char *dir, bool (*is_bucket)(const char *name),
                      bool (*stop)(void *context), void *context);

/* The names of the runs that have an entry or a heartbeat, each with its zero byte; each once. */
DL_MUST_CHECK diloco_status dl_holdings_names(dl_buf *out, dl_holdings *tally);

/* Rows in the text format of Prometheus 0.0.4. */
DL_MUST_CHECK diloco_status dl_holdings_write(dl_buf *out, dl_holdings *tally);

#endif
