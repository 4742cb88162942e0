/* view.h - a run as its viewers see it: refreshed by requests, and shared by all of them.
 *
 * A request refreshes a view if the last refresh is a second old. So any number of viewers cost the
 * store as much as one. The cost is a read of the next entry each second, and a look at the
 * replicas (four listings) every five seconds. An entry is read whole when a viewer requests it.
 *
 * A refresh stops after a quarter of a second. The answer then says "loading", and the next request
 * continues. Nothing is ever written to the store. All functions may be called by any thread,
 * except dl_views_destroy. */
#ifndef DL_VIEW_VIEW_H
#define DL_VIEW_VIEW_H

#include "base/buf.h"

#include <stdint.h>

typedef struct dl_view dl_view;
typedef struct dl_views dl_views;

/* Bytes of a name and of a store's URL with their zeros, and of an answer at most. */
enum { DL_VIEW_NAME = 1024, DL_VIEW_URL = 8192, DL_VIEW_JSON_MAX = 64 << 20 };

/* Write the URL of the store of the run that has this name. Returns false if no run may have it:
 * names come from requests, so they are untrusted. It is called with the lock of the views, by any
 * thread. */
typedef bool (*dl_view_url_fn)(void *user, char url[DL_VIEW_URL], const char *name);

/* dl_views_create makes an empty set of views. The caller destroys it. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_views_create(dl_views **out, dl_view_url_fn url_of, void *user);
/* Frees all views. No view may be in use, and no other thread may hold `views`. NULL is fine. */
void dl_views_destroy(dl_views *views);

/* dl_views_get finds the view of a run, or opens one. The caller lets it go. A view without a
 * request for ten minutes is closed by a later request. Returns DILOCO_ENOENT if no run has this
 * name, or an error of the store; *out is NULL then. */
DL_MUST_CHECK diloco_status dl_views_get(dl_view **out, dl_views *views, const char *name);
/* The view must not be used after this. */
void dl_view_let_go(dl_view *view);

/* The requested part of a run. */
typedef struct dl_view_part {
    uint64_t from, to; /* entries [from, to) of the lanes; to 0: the newest 24 */
    size_t points;     /* of a curve, at most; 0: 400 */
    size_t bins;       /* of a lane, at most; 0: 64 */
} dl_view_part;

/* dl_view_run_json refreshes the view and appends one object of JSON: summary, findings, curves,
 * lanes and events. Returns DILOCO_ENOENT or DILOCO_EDIFFERS if the run is gone or another one has
 * its place: let the view go and get it again. Other errors are the store's. After an error nothing
 * in `out` is valid. */
DL_MUST_CHECK diloco_status dl_view_run_json(dl_buf *out, dl_view *view, const dl_view_part *part);
/* The same for the run's row in the list of runs. */
DL_MUST_CHECK diloco_status dl_view_row_json(dl_buf *out, dl_view *view);
/* These two do not refresh the view. dl_view_settings_json appends the run's options.
 * dl_view_entries_json appends at most 200 entries, from the one with number `from`. The newest
 * requested ones are kept, so that each is read from the store once. */
DL_MUST_CHECK diloco_status dl_view_settings_json(dl_buf *out, dl_view *view);
DL_MUST_CHECK diloco_status dl_view_entries_json(dl_buf *out, dl_view *view, uint64_t from,
                                                 uint64_t n);

/* dl_view_follow refreshes the view without an answer. *entries is their number in the log. *grown:
 * it is another one than at the last follow of this view, by any thread. *more: the refresh did not
 * read everything that there is. */
DL_MUST_CHECK diloco_status dl_view_follow(dl_view *view, uint64_t *entries, bool *grown,
                                           bool *more);
/* Let the next refresh happen at once and look at the replicas too, for a caller that knows of a
 * change. */
void dl_view_expire(dl_view *view);
/* Returns true if there was a request for this run in the last 30 seconds. */
bool dl_views_is_watched(dl_views *views, const char *name);

#endif
