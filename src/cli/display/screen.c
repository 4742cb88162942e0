/* screen.c - the cursor rests at the start of the line below the frame, always visible between
 * frames. So there is nothing to restore, however the program ends. */
#include "cli/display/screen.h"

#include "base/text.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define HIDE  "\x1b[?25l"
#define SHOW  "\x1b[?25h"
#define CLEAR "\x1b[K" /* to the end of the line */
#define BELOW "\x1b[J" /* to the end of the screen */

/* Bytes of one frame with its control sequences. */
enum { FRAME_MAX = 1 << 16 };

/* A terminal is used only if it can move its cursor. */
void dl_screen_open(dl_screen *screen, FILE *out)
{
    const char *term = getenv("TERM");
    *screen = (dl_screen){.out = out};
    screen->live = isatty(fileno(out)) && term && strcmp(term, "dumb") != 0;
}

/* The size is asked for each time, since a window may have changed. */
void dl_screen_size(const dl_screen *screen, int *columns, int *lines)
{
    struct winsize size = {0};
    bool known = ioctl(fileno(screen->out), TIOCGWINSZ, &size) == 0;
    *columns = known && size.ws_col ? size.ws_col : 80;
    *lines = known && size.ws_row ? size.ws_row : 24;
}

/* Only LC_CTYPE is changed, and it is set back at once. */
bool dl_screen_is_utf8(void)
{
    setlocale(LC_CTYPE, "");
    const bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    setlocale(LC_CTYPE, "C");
    return utf8;
}

/* Return the bytes of the first `columns` characters, and how many characters these are. All our
 * text is of characters one column wide. */
static size_t cut(const char *line, int columns, int *width)
{
    size_t at = 0, len = strlen(line), n;
    uint32_t code;
    for (*width = 0; *width < columns && at < len; ++*width, at += n)
        if ((n = dl_utf8_char(&code, line + at, len - at)) == 0) n = 1;
    return at;
}

/* Return the rows that the last frame takes now. A narrower terminal has wrapped its lines. */
static int rows_drawn(const dl_screen *screen, int columns)
{
    int rows = 0;
    for (int i = 0; i < screen->drawn; i++)
        rows += screen->widths[i] > columns ? (screen->widths[i] + columns - 1) / columns : 1;
    return rows;
}

/* A frame: hide the cursor, move up over the last one, write each line and clear the rest of it,
 * clear below. Shorter frames thus leave nothing. */
diloco_status dl_screen_frame(dl_buf *out, dl_screen *screen, int columns, const char *said, int n)
{
    int rows = rows_drawn(screen, columns);
    DL_TRY(dl_buf_addf(out, HIDE));
    if (rows) DL_TRY(dl_buf_addf(out, "\x1b[%dA", rows));
    DL_TRY(dl_buf_addf(out, "\r"));
    if (said) DL_TRY(dl_buf_addf(out, "%s" CLEAR "\n", said));
    for (int i = 0; i < n; i++) {
        /* One column stays free: a full line would move the cursor on some terminals. */
        size_t len = cut(screen->lines[i], columns - 1, &screen->widths[i]);
        DL_TRY(dl_buf_addf(out, "%.*s" CLEAR "\n", (int)len, screen->lines[i]));
    }
    screen->drawn = n;
    return dl_buf_addf(out, BELOW SHOW);
}

/* Draw the current lines, with `said` above them. More lines than the terminal has would scroll,
 * so they are left out. */
static void show(dl_screen *screen, const char *said, int n)
{
    int columns, rows;
    dl_buf frame;
    if (n == 0 && screen->drawn == 0 && !said) return;
    dl_screen_size(screen, &columns, &rows);
    dl_buf_init(&frame, FRAME_MAX);
    if (n > rows - 1) n = rows - 1;
    if (!dl_screen_frame(&frame, screen, columns, said, n)) {
        fwrite(frame.data, 1, frame.len, screen->out);
        fflush(screen->out);
    }
    dl_buf_deinit(&frame);
}

void dl_screen_draw(dl_screen *screen, const char (*lines)[DL_SCREEN_LINE], int n)
{
    if (!screen->live) return;
    if (n > DL_SCREEN_MAX_LINES) n = DL_SCREEN_MAX_LINES;
    if (n > 0) memcpy(screen->lines, lines, (size_t)n * sizeof *lines);
    show(screen, NULL, n);
}

/* Without a terminal the line is printed as it is. */
void dl_screen_print(dl_screen *screen, const char *line)
{
    if (screen->live) {
        show(screen, line, screen->drawn);
        return;
    }
    fprintf(screen->out, "%s\n", line);
    fflush(screen->out);
}
