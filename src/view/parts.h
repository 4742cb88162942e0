/* parts.h - shared by the files of this folder: a view's internals. */
#ifndef DL_VIEW_PARTS_H
#define DL_VIEW_PARTS_H

#include "base/clock.h"
#include "inspect/follower.h"
#include "view/view.h"
#include "view/view_model.h"

#include <pthread.h>

enum { DL_VIEW_ENTRIES = 200 }; /* that are kept as texts, and that a request may ask for */

typedef struct dl_view_entry {
    uint64_t entry;
    dl_buf text; /* empty: nothing is kept here */
} dl_view_entry;

struct dl_view {
    dl_view *next;
    dl_views *views;
    unsigned users; /* guarded by views->lock, as is `asked` */
    dl_time asked;

    pthread_mutex_t lock; /* guards all below */
    char name[DL_VIEW_NAME], url[DL_VIEW_URL];
    dl_follower *follower;
    dl_model model;
    dl_time refreshed, looked; /* 0: never */
    double grown;  /* when an entry was first seen to come, seconds since 1970; 0: none */
    uint64_t told; /* entries at the last dl_view_follow */
    bool more;     /* there may be more to read */
    bool in_log;   /* and more entries among it */
    bool broken;

    pthread_mutex_t entries_lock; /* guards `entries`; never taken with `lock` */
    dl_view_entry entries[DL_VIEW_ENTRIES];
};

/* view_entries.c */
void dl_view_entries_init(dl_view *view);
void dl_view_entries_deinit(dl_view *view);

/* Refresh unless the last one is young. With the lock. */
DL_MUST_CHECK diloco_status dl_view_bring_up(dl_view *view);

/* ---- findings.c: messages for a person */

typedef enum dl_level { DL_LEVEL_INFO, DL_LEVEL_WARN, DL_LEVEL_BAD } dl_level;

enum { DL_FINDING_TEXT = 400, DL_FINDINGS = 24 };

/* Those that run.notify reports have a kind of their own. */
typedef enum dl_finding_kind {
    DL_FINDING_OTHER,
    DL_FINDING_LOST,       /* a replica sends no heartbeats any more */
    DL_FINDING_STOPPED,    /* every replica has left a run that is not complete */
    DL_FINDING_DIVERGENCE, /* the loss rises */
} dl_finding_kind;

typedef struct dl_finding {
    dl_level level;
    dl_finding_kind kind;
    char replica[32]; /* "": of the run */
    char text[DL_FINDING_TEXT];
} dl_finding;

/* The most serious first. With the lock. */
size_t dl_view_findings(dl_finding out[DL_FINDINGS], const dl_view *view);

/* "running", "waiting", "stopped", "complete", "empty". */
const char *dl_view_state(const dl_view *view);

/* Seconds that a round takes, by the newest entries that the records date; NAN: not known. */
double dl_view_round_s(const dl_view *view);
/* When the newest entry came, as far as it is known, seconds since 1970; 0: it is not. */
double dl_view_last(const dl_view *view);
/* Bytes that a float32 all-reduce after each step would have sent. */
double dl_view_data_parallel(const dl_view *view);

#endif
