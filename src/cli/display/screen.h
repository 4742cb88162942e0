/* screen.h - the last lines of a terminal, drawn again and again in place.
 *
 * A frame is one write: up over the old lines, each new line and "clear to its end", so that
 * nothing flickers. Lines are cut to the width of the terminal as it is at the moment. Where
 * the output is no terminal nothing is drawn and dl_screen_print only prints. */
#ifndef DL_CLI_DISPLAY_SCREEN_H
#define DL_CLI_DISPLAY_SCREEN_H

#include "base/buf.h"

#include <stdio.h>

/* Lines of a frame, and bytes of a line. */
enum { DL_SCREEN_MAX_LINES = 64, DL_SCREEN_LINE = 256 };

/* The place of the last frame. One thread. */
typedef struct dl_screen {
    FILE *out;
    bool live;                       /* a terminal that can move its cursor */
    int drawn;                       /* lines of the last frame */
    int widths[DL_SCREEN_MAX_LINES]; /* of those, in columns */
    char lines[DL_SCREEN_MAX_LINES][DL_SCREEN_LINE];
} dl_screen;

/* dl_screen_open prepares drawing to `out`, which is borrowed. Nothing is written yet. There is no
 * close: between two frames the terminal is in its usual state. */
void dl_screen_open(dl_screen *screen, FILE *out);

/* Columns and lines of the terminal; 80 and 24 where it does not say. */
void dl_screen_size(const dl_screen *screen, int *columns, int *lines);

/* Return true if the terminal shows UTF-8, by the locale of the environment. It changes the locale
 * for a moment, so it is called before threads start. */
bool dl_screen_is_utf8(void);

/* Replace the last frame by n lines, of which as many are shown as fit. */
void dl_screen_draw(dl_screen *screen, const char (*lines)[DL_SCREEN_LINE], int n);

/* dl_screen_print prints a line that stays, above the frame and in the same write. Without a
 * terminal it is a plain line. */
void dl_screen_print(dl_screen *screen, const char *line);

/* dl_screen_frame appends one frame as bytes: n lines of screen->lines, with `said` above them
 * unless it is NULL. dl_screen_draw and dl_screen_print write these bytes; tests read them. Returns
 * DILOCO_ENOMEM, or DILOCO_EPROTO if `out` is too small. */
DL_MUST_CHECK diloco_status dl_screen_frame(dl_buf *out, dl_screen *screen, int columns,
                                            const char *said, int n);

#endif
