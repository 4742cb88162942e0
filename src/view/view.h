/* view.h - a run as its viewers see it: refreshed by requests, and shared by all of them.
 *
 * A request refreshes a view if the last refresh is a second old. So any number of viewers cost the
 * store as much as one. That is a read of the next entry a second, and a look at the replicas (four
 * listings) every five seconds. An entry is read whole when one of them requests it. A refresh
 * stops after a quarter of a second. Then the answer says "loading", and the next request
 * continues. Nothing is ever written. Any thread. */
#ifndef DL_VIEW_VIEW_H
#define DL_VIEW_VIEW_H

#include "base/buf.h"

#include <stdint.h>

typedef struct dl_view dl_view;
typedef struct dl_views dl_views;

enum { DL_VIEW_NAME = 1024, DL_VIEW_URL = 8192, DL_VIEW_JSON_MAX = 64 << 20 };

/* The store of the run that is called so; false: no run may be called so. */
typedef bool (*dl_view_url_fn)(void *user, char url[DL_VIEW_URL], const char *name);

/* DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_views_create(dl_views **out, dl_view_url_fn url_of, void *user);
void dl_views_destroy(dl_views *views); /* no view is in use; NULL is fine */

/* The view of a run, opened unless it is there; the caller lets it go. One without a request in ten
 * minutes is closed. DILOCO_ENOENT: no run is called so. */
DL_MUST_CHECK diloco_status dl_views_get(dl_view **out, dl_views *views, const char *name);
void dl_view_let_go(dl_view *view);

/* The requested part of a run. */
typedef struct dl_view_part {
    uint64_t from, to; /* entries [from, to) of the lanes; to 0: the newest 24 */
    size_t points;     /* of a curve, at most; 0: 400 */
    size_t bins;       /* of a lane, at most; 0: 64 */
} dl_view_part;

/* Refresh, and append one object of JSON. DILOCO_ENOENT, DILOCO_EDIFFERS: the run is gone, or
 * another one has its place: let it go and get it again. Other errors are the store's. */
DL_MUST_CHECK diloco_status dl_view_run_json(dl_buf *out, dl_view *view, const dl_view_part *part);
DL_MUST_CHECK diloco_status dl_view_row_json(dl_buf *out, dl_view *view); /* of the list of runs */
/* Without a refresh: the run's settings; at most 200 entries from `from`. Those that were asked for
 * last are kept, so that each is read from the store once. */
DL_MUST_CHECK diloco_status dl_view_settings_json(dl_buf *out, dl_view *view);
DL_MUST_CHECK diloco_status dl_view_entries_json(dl_buf *out, dl_view *view, uint64_t from,
                                                 uint64_t n);

/* Refresh without an answer. *entries: in the log; *grown: more than at the last follow. */
DL_MUST_CHECK diloco_status dl_view_follow(dl_view *view, uint64_t *entries, bool *grown,
                                           bool *more);
/* Let the next refresh happen at once and look at the replicas too, however young the last one is.
 */
void dl_view_expire(dl_view *view);
/* Was there a request for this run in the last 30 seconds? */
bool dl_views_is_watched(dl_views *views, const char *name);

#endif
