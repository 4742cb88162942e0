/* parts.h - a view's internals, shared by the files of this folder.
 *
 * Locks: views->lock guards the list of views, and `users` and `asked` of each. view->lock guards
 * the model and its follower; it is held during a refresh, so during requests to the store.
 * entries_lock guards the texts of entries. view->lock may be held when views->lock is taken, never
 * the other way round. entries_lock and view->lock are never held together. */
#ifndef DL_VIEW_PARTS_H
#define DL_VIEW_PARTS_H

#include "base/clock.h"
#include "inspect/follower.h"
#include "view/view.h"
#include "view/view_model.h"

#include <pthread.h>

enum { DL_VIEW_ENTRIES = 200 }; /* that are kept as texts, and that a request may ask for */

/* The JSON text of one entry. An entry never changes, so a text stays valid. */
typedef struct dl_view_entry {
    uint64_t entry;
    dl_buf text; /* empty: nothing is kept here */
} dl_view_entry;

/* One run as its viewers see it. `views` owns it. */
struct dl_view {
    dl_view *next;
    dl_views *views;
    /* Requests that use this view now. A view with users is never freed. */
    unsigned users;
    /* When it was last requested. Guarded by views->lock, too. */
    dl_time asked;

    pthread_mutex_t lock; /* guards all below */
    char name[DL_VIEW_NAME], url[DL_VIEW_URL];
    /* Reads the store. Opened by the first request; NULL until that has succeeded. */
    dl_follower *follower;
    dl_model model;
    /* Times of the newest refresh and of the newest look at the replicas; 0: at the next
     * request. */
    dl_time refreshed, looked;
    double grown; /* when an entry was first seen to come, seconds since 1970; 0: none */
    /* Entries at the last dl_view_follow, so that it can report growth. */
    uint64_t n_published;
    /* There is more to read: the time for a refresh was over. */
    bool more;
    /* Entries of the log are among what was not read. The page then says that it is loading. */
    bool in_log;
    /* A refresh has failed. The view is left out of searches, and freed when its last user has
     * left: the next request opens the run again. Guarded by views->lock. */
    bool broken;

    pthread_mutex_t entries_lock; /* guards `entries`; never taken with `lock` */
    dl_view_entry entries[DL_VIEW_ENTRIES];
};

/* view_entries.c: the texts of entries, and their lock. Init before the view is shared; deinit when
 * no user is left. */
void dl_view_entries_init(dl_view *view);
void dl_view_entries_deinit(dl_view *view);

/* Refresh the view unless the last refresh is younger than a second. The caller has view->lock.
 * After an error the view is broken: the model may be half updated, and the caller must not use
 * it. */
DL_MUST_CHECK diloco_status dl_view_bring_up(dl_view *view);

/* ---- findings.c: messages for a person */

/* How serious a finding is, in ascending order. */
typedef enum dl_level { DL_LEVEL_INFO, DL_LEVEL_WARN, DL_LEVEL_BAD } dl_level;

/* Bytes of a finding's text, and findings of a run at most. Further ones are left out. */
enum { DL_FINDING_TEXT = 400, DL_FINDINGS = 24 };

/* Those that run.notify reports have a kind of their own. */
typedef enum dl_finding_kind {
    DL_FINDING_OTHER,
    DL_FINDING_LOST,       /* a replica sends no heartbeats any more */
    DL_FINDING_STOPPED,    /* every replica has left a run that is not complete */
    DL_FINDING_DIVERGENCE, /* the loss rises */
} dl_finding_kind;

/* One problem of a run, or the reason why it waits, as a sentence for a person. */
typedef struct dl_finding {
    dl_level level;
    dl_finding_kind kind;
    char replica[32]; /* "": of the run */
    char text[DL_FINDING_TEXT];
} dl_finding;

/* dl_view_findings writes the findings of a run to `out`, the most serious first, and returns their
 * number. The caller has view->lock. */
size_t dl_view_findings(dl_finding out[DL_FINDINGS], const dl_view *view);

/* The state of the run in one word: "running", "waiting" (for a replica without heartbeats),
 * "stopped" (no replica is alive), "complete" or "empty" (no replica has joined). The caller has
 * view->lock, as for the functions below. */
const char *dl_view_state(const dl_view *view);

/* Seconds between two entries: the mean over at most 32 of the newest ones that the records date.
 * NAN if fewer than two are dated. */
double dl_view_round_s(const dl_view *view);
/* Seconds until the last entry of the run at that pace; 0 if it is there. NAN without a pace. */
double dl_view_left_s(const dl_view *view);
/* When the newest entry came, as far as it is known, seconds since 1970; 0: it is not. */
double dl_view_last(const dl_view *view);
/* Bytes that a float32 all-reduce after each step would have sent. */
double dl_view_data_parallel(const dl_view *view);

#endif
