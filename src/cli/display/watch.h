/* watch.h - a run on a screen of text: the content of the page, in as many columns and lines as
 * there are. */
#ifndef DL_CLI_DISPLAY_WATCH_H
#define DL_CLI_DISPLAY_WATCH_H

#include "cli/display/screen.h"
#include "view/view.h"

/* One frame. It is too large for some stacks. */
typedef struct dl_watch_frame {
    int n;       /* lines */
    int columns; /* that a line has at most */
    char lines[DL_SCREEN_MAX_LINES][DL_SCREEN_LINE];
    bool done;    /* the run is complete */
    bool idle;    /* no replica is alive */
    bool reading; /* not all of it has been read yet */
} dl_watch_frame;

/* dl_watch_draw refreshes the view and draws it into *out, which no other thread uses. columns and
 * lines are bounded to what a frame has room for. `utf8`: curves are of block characters, otherwise
 * of ASCII. Errors are those of a refresh (view.h); the frame then has no lines. */
DL_MUST_CHECK diloco_status dl_watch_draw(dl_watch_frame *out, dl_view *view, int columns,
                                          int lines, bool utf8);

#endif
