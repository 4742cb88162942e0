/* cmd_watch.c - a run in the terminal, kept up to date.
 *
 * A view reads the run from its store (view/view.h), dl_watch_draw makes a frame of text, and the
 * screen draws it in place. Each frame reads at most for a moment, so a long log appears step by
 * step. The cursor is visible between frames, so Ctrl-C may end the program at any time. */
#include "cli/display/watch.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"

#include "base/clock.h"

#include <stdlib.h>

/* Map the view's name to a store. There is one run, so every name is its URL. */
static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    (void)name;
    return snprintf(url, DL_VIEW_URL, "%s", (const char *)user) < DL_VIEW_URL;
}

/* Print one frame, for a pipe, when all has been read. */
static diloco_status print_once(dl_watch_frame *frame, dl_view *view, const dl_screen *screen)
{
    int columns, lines;
    dl_screen_size(screen, &columns, &lines);
    do
        DL_TRY(dl_watch_draw(frame, view, columns, DL_SCREEN_MAX_LINES, dl_screen_is_utf8()));
    while (frame->reading);
    for (int i = 0; i < frame->n; i++)
        printf("%s\n", frame->lines[i]);
    return dl_flush_output();
}

/* Draw a frame each second until the run is complete. While the log is still being read, the next
 * frame follows at once. The size is asked for each time, since a window may change. */
static diloco_status draw_again(dl_watch_frame *frame, dl_view *view, dl_screen *screen)
{
    const bool utf8 = dl_screen_is_utf8();
    for (;;) {
        int columns, lines;
        dl_screen_size(screen, &columns, &lines);
        DL_TRY(dl_watch_draw(frame, view, columns, lines, utf8));
        dl_screen_draw(screen, (const char(*)[DL_SCREEN_LINE])frame->lines, frame->n);
        if (frame->done && !frame->reading) return DILOCO_OK;
        if (!frame->reading) dl_clock_sleep(DL_SECOND);
    }
}

/* The screen and the frame are too large for some stacks. */
static diloco_status watch(const dl_args *args, char *store)
{
    dl_views *views;
    dl_view *view;
    dl_screen *screen = malloc(sizeof *screen);
    dl_watch_frame *frame = malloc(sizeof *frame);
    if (!screen || !frame) {
        free(screen), free(frame);
        return dl_fail(DILOCO_ENOMEM, "out of memory for a screen");
    }
    dl_screen_open(screen, stdout);
    diloco_status status = dl_views_create(&views, url_of, store);
    if (!status) status = dl_views_get(&view, views, store);
    if (!status) {
        const bool once = dl_args_has(args, DL_FLAG_ONCE) || !screen->live;
        status = once ? print_once(frame, view, screen) : draw_again(frame, view, screen);
        dl_view_let_go(view);
    }
    dl_views_destroy(views);
    free(screen), free(frame);
    return status;
}

/* A run without a log has no entries to draw, so it is refused before a screen is opened. */
static diloco_status cmd_watch(const dl_args *args)
{
    dl_config_path store;
    DL_TRY(dl_settings_store(store, args->target));
    DL_TRY(dl_swarm_refuse(store, "watch"));
    return watch(args, store);
}

const dl_command dl_command_watch = {
    .name = "watch",
    .target = "URL",
    .summary = "show a run in the terminal: its loss, replicas and problems",
    .details =
        "It is drawn again every second, in 80 columns and as many lines as there are, until the "
        "run "
        "is\n"
        "complete or Ctrl-C. Where the output is no terminal it is printed once. It only reads.",
    .flags = DL_FLAGS(DL_FLAG_ONCE),
    .run = cmd_watch,
};
