/* points.h - the curves of a run as lines of JSON, for programs that draw them elsewhere.
 *
 *     {"entry":7,"time":1780000000.25,"values":{"loss/entry":2.31,"traffic/bytes":81920}}
 *
 * The numbers are those of the page. A value that becomes known after the line of its entry gets
 * another line of the same entry. `time` is left out while it is not known. */
#ifndef DL_VIEW_POINTS_H
#define DL_VIEW_POINTS_H

#include "base/buf.h"

#include <stdint.h>

struct dl_view;

typedef struct dl_points {
    uint32_t *known; /* [cap] values of each entry that were written, one bit each; owned */
    size_t cap;
} dl_points;

enum { DL_POINTS_AT_ONCE = 1000 };

void dl_points_deinit(dl_points *points); /* zeroed is fine */

/* Append lines of at most DL_POINTS_AT_ONCE entries with new values, without a refresh. *n is the
 * number of lines; 0 means that there is nothing new. DILOCO_ENOMEM, DILOCO_EFULL. */
DL_MUST_CHECK diloco_status dl_points_add(dl_buf *out, size_t *n, dl_points *points,
                                          struct dl_view *view);

#endif
