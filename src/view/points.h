/* points.h - the curves of a run as lines of JSON, for programs that draw them elsewhere.
 *
 *     {"entry":7,"time":1780000000.25,"values":{"loss/entry":2.31,"traffic/bytes":81920}}
 *
 * The numbers are those of the page. A record may arrive after its entry, so a value may become
 * known after the line of its entry was written. It then gets another line of the same entry, which
 * holds the new values only. `time`, in seconds since 1970, is left out while it is not known. */
#ifndef DL_VIEW_POINTS_H
#define DL_VIEW_POINTS_H

#include "base/buf.h"

#include <stdint.h>

struct dl_view;

/* The memory of one reader of curves: the values that it has got. Zeroed is the valid first
 * state. */
typedef struct dl_points {
    uint32_t *known; /* [cap] values of each entry that were written, one bit each; owned */
    size_t cap;
} dl_points;

/* Lines of one answer. It bounds the time that the view's lock is held. */
enum { DL_POINTS_AT_ONCE = 1000 };

void dl_points_deinit(dl_points *points); /* zeroed is fine */

/* dl_points_add appends lines for entries with new values, at most DL_POINTS_AT_ONCE, and sets *n
 * to their number; 0 means that there is nothing new. It does not refresh the view, and takes its
 * lock. Returns DILOCO_ENOMEM, or DILOCO_EPROTO if `out` would exceed its largest size. */
DL_MUST_CHECK diloco_status dl_points_add(dl_buf *out, size_t *n, dl_points *points,
                                          struct dl_view *view);

#endif
