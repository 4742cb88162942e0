/* cmd_track.c - the curves of a run in a tracker that people already use: W&B, MLflow, Trackio.
 *
 * This program reads the run, each object of it once. It writes the curves (view/points.h) to a
 * Python process, which speaks to the tracker's own package. That process keeps what it has
 * sent, so a second command continues. Neither the URL of the run nor a secret is given to it as
 * an argument, since arguments are visible to all users. */
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/display/units.h"
#include "cli/run_names.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include "launch/command.h"
#include "view/parts.h"
#include "view/points.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* LINES_MAX: bytes of lines that wait to be sent, far above one part of points. LAST_RECORDS: the
 * time in which the last records of a run arrive. */
enum { LINES_MAX = 16 << 20 };
#define LAST_RECORDS (2 * dl_time_from_seconds(DL_FOLLOWER_RECORD_S))

/* The Python process. A thread runs it, because reading its output and writing its input at the
 * same time would otherwise block. */
typedef struct sidecar {
    const char *argv[16];
    int read_end, write_end; /* of its input; -1: closed */
    pthread_t thread;
    diloco_status status; /* of running it; these are the thread's until it is joined */
    dl_command_result result;
    char text[512]; /* why it could not be run */
} sidecar;

/* ---- the Python process */

/* Run the process to its end. Closing read_end makes later writes fail at once, so send() does
 * not hang. */
static void *run_sidecar(void *of)
{
    sidecar *s = of;
    s->status = dl_command_do(
        &s->result, &(dl_command_run){.argv = s->argv, .in_fd = s->read_end, .patience = DL_NEVER});
    if (s->status) snprintf(s->text, sizeof s->text, "%s", diloco_error_text());
    close(s->read_end); /* a write to it now fails */
    return NULL;
}

/* Start the process and its thread. Only the flags that its own parser knows are passed on. */
static diloco_status start(sidecar *s, const dl_args *args)
{
    static const struct {
        dl_flag flag;
        const char *name;
    } given[] = {
        {DL_FLAG_TRACKER, "--to"}, {DL_FLAG_PROJECT, "--project"}, {DL_FLAG_SENT, "--sent"}};
    const char *python = getenv("DILOCO_PYTHON");
    int ends[2];
    size_t n = 0;
    s->argv[n++] = python && *python ? python : "python3";
    s->argv[n++] = "-m";
    s->argv[n++] = "diloco._track";
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (!dl_args_has(args, given[i].flag)) continue;
        s->argv[n++] = given[i].name;
        s->argv[n++] = args->flags[given[i].flag];
    }
    if (pipe2(ends, O_CLOEXEC)) return dl_fail_errno(errno, "make a pipe for", s->argv[0]);
    s->read_end = ends[0];
    s->write_end = ends[1];
    /* A write to a process that has ended is then an error (EPIPE), which send() reports. */
    signal(SIGPIPE, SIG_IGN);
    setenv("PYTHONSAFEPATH", "1", 0); /* a module of the current folder is no tracker */
    const int error = dl_thread_start(&s->thread, run_sidecar, s);
    if (!error) return DILOCO_OK;
    close(ends[0]), close(ends[1]);
    return dl_fail_errno(error, "start a thread for", s->argv[0]);
}

/* Write the lines to the process. Returns DILOCO_ECLOSED if it reads no more; finish() has the
 * reason. */
static diloco_status send(const sidecar *s, const dl_buf *lines)
{
    for (size_t at = 0; at < lines->len;) {
        const ssize_t n = write(s->write_end, lines->data + at, lines->len - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return dl_fail(DILOCO_ECLOSED, "the tracker's process has ended");
        at += (size_t)n;
    }
    return DILOCO_OK;
}

/* Return the status whose exit code the process ended with, so ours is the same; any other is an
 * error of the tracker. */
static diloco_status status_of(int exit_code)
{
    static const diloco_status known[] = {DILOCO_EINVAL, DILOCO_EREFUSED, DILOCO_EUNREACHABLE};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (diloco_exit_code(known[i]) == exit_code) return known[i];
    return DILOCO_EIO;
}

/* Print a line that has names of the run and of the tracker, which are untrusted. */
static void print_line(const char *text, int len)
{
    char line[1024], harmless[sizeof line];
    snprintf(line, sizeof line, "%.*s", len, text);
    dl_printable_line(harmless, sizeof harmless, line);
    printf("%s\n", harmless);
}

/* Wait for the end of the process. Its standard output is a sentence for the user, after an
 * error the reason. */
static diloco_status finish(sidecar *s)
{
    close(s->write_end);
    pthread_join(s->thread, NULL);
    if (s->status)
        return dl_fail(s->status,
                       "%s; DILOCO_PYTHON names the Python that has diloco and the "
                       "tracker's package",
                       s->text);
    dl_command_result *r = &s->result;
    diloco_status status = DILOCO_OK;
    const char *said = dl_buf_str(&r->out);
    const int len = said ? (int)strcspn(said, "\n") : 0;
    if (!r->exit_code && len)
        print_line(said, len);
    else if (r->exit_code && len)
        status = dl_fail(status_of(r->exit_code), "%.*s", len, said);
    else if (r->exit_code)
        status = dl_fail(DILOCO_EIO,
                         "%s -m diloco._track ended with code %d: %s; DILOCO_PYTHON names the "
                         "Python that has diloco and the tracker's package",
                         s->argv[0], r->exit_code, r->err);
    dl_buf_deinit(&r->out);
    return status;
}

/* ---- the run */

/* One call of the command. The view is borrowed while it runs; points and lines are owned. */
typedef struct tracking {
    sidecar side;
    dl_view *view;    /* the run */
    dl_points points; /* read from it so far */
    dl_buf lines;     /* not sent yet */
    sigset_t signals; /* that end the command */
    bool once, live;  /* live: the terminal shows how far it is */
    uint64_t sent;    /* lines */
} tracking;

/* Send what is collected, and empty the buffer in any case: after an error nothing is sent
 * again. */
static diloco_status send_lines(tracking *t)
{
    const diloco_status status = send(&t->side, &t->lines);
    dl_buf_clear(&t->lines);
    return status;
}

/* Send the run and its settings, which come before any point. */
static diloco_status send_head(tracking *t)
{
    DL_TRY(dl_view_row_json(&t->lines, t->view));
    DL_TRY(dl_buf_add(&t->lines, "\n", 1));
    DL_TRY(dl_view_settings_json(&t->lines, t->view));
    DL_TRY(dl_buf_add(&t->lines, "\n", 1));
    return send_lines(t);
}

/* Send new points in parts of bounded size. "flush" lets the process note what it has sent. */
static diloco_status send_points(tracking *t)
{
    static const char flush[] = "{\"flush\":true}\n";
    for (size_t n = 1; n;) {
        DL_TRY(dl_points_add(&t->lines, &n, &t->points, t->view));
        if (n) DL_TRY(dl_buf_add(&t->lines, flush, sizeof flush - 1));
        t->sent += n;
        DL_TRY(send_lines(t));
    }
    return DILOCO_OK;
}

/* Return true if the run is complete and every replica has ended. Then nothing more is recorded. */
static bool is_over(const dl_view *view)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    for (size_t i = 0; i < run->n_replicas; i++)
        if (run->replicas[i]->alive && !run->replicas[i]->ended) return false;
    return run->done;
}

/* Draw the progress over the line before. It is drawn on a terminal only. */
static void show(const tracking *t)
{
    if (!t->live) return;
    printf("\r%zu entries read, %" PRIu64 " lines given to the tracker \x1b[K",
           t->view->model.n_entries, t->sent);
    fflush(stdout);
}

/* Rest for `ns` nanoseconds. Returns DILOCO_EINTERRUPTED if a signal asked for the end. */
static diloco_status rest(const tracking *t, dl_time ns)
{
    const struct timespec time = {.tv_sec = ns / DL_SECOND, .tv_nsec = ns % DL_SECOND};
    if (sigtimedwait(&t->signals, NULL, &time) < 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINTERRUPTED, "stopped; the same command continues");
}

/* Read to the end of the log. A long log is read in several steps, and a signal ends it between
 * two. */
static diloco_status read_all(tracking *t)
{
    uint64_t entries;
    bool grown, more = true;
    while (more) {
        DL_TRY(dl_view_follow(t->view, &entries, &grown, &more));
        if (more) DL_TRY(rest(t, 0));
    }
    return DILOCO_OK;
}

/* Follow the run to its end. The replicas' last records may come after their last heartbeats, so
 * it waits two intervals of records more. */
static diloco_status follow(tracking *t)
{
    dl_time over = 0; /* when the run was first seen over */
    DL_TRY(read_all(t));
    DL_TRY(send_head(t));
    /* A run that is over, and one with --once, is sent as it was read. Any other is followed. */
    const bool whole = t->once || is_over(t->view);
    for (;;) {
        DL_TRY(send_points(t));
        show(t);
        if (!over && is_over(t->view)) over = dl_clock_now();
        /* The replicas' last records may come after their last heartbeats. */
        if (whole || (over && dl_clock_now() - over > LAST_RECORDS)) return DILOCO_OK;
        DL_TRY(rest(t, DL_SECOND));
        DL_TRY(read_all(t));
    }
}

/* The error of the process counts more than ours, as ours often only says that it has ended. */
static diloco_status track(tracking *t, const dl_args *args)
{
    static const char last[] = "{\"end\":true}\n";
    DL_TRY(start(&t->side, args));
    diloco_status status = follow(t);
    if (t->live) printf("\n");
    if (!status && is_over(t->view)) {
        status = dl_buf_add(&t->lines, last, sizeof last - 1);
        if (!status) status = send_lines(t);
    }
    /* Our own reason is kept, since waiting for the process may set another one. */
    char why[512];
    snprintf(why, sizeof why, "%s", status ? diloco_error_text() : "");
    const diloco_status ended = finish(&t->side);
    if (ended || !status) return ended;
    return dl_fail(status, "%s", why);
}

/* Map the view's name to the URL of the run. */
static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    return dl_run_names_url(user, url, name);
}

/* Open the one run. The views and their memory are freed before the names, which they borrow. */
static diloco_status open_and_track(tracking *t, const dl_run_names *names, const dl_args *args)
{
    dl_views *views;
    DL_TRY(dl_views_create(&views, url_of, (void *)(uintptr_t)names));
    diloco_status status = dl_views_get(&t->view, views, (const char *)names->names.data);
    if (!status) {
        status = track(t, args);
        dl_view_let_go(t->view);
    }
    dl_views_destroy(views);
    return status;
}

/* Signals are blocked and read by sigtimedwait, so no handler interrupts a write. */
static diloco_status cmd_track(const dl_args *args)
{
    tracking t = {.once = dl_args_has(args, DL_FLAG_TRACK_ONCE), .live = isatty(STDOUT_FILENO)};
    dl_config_path store;
    dl_run_names names;
    if (!dl_args_has(args, DL_FLAG_TRACKER))
        return dl_fail(DILOCO_EINVAL, "track needs --to wandb, --to mlflow or --to trackio");
    DL_TRY(dl_settings_store(store, args->target));
    DL_TRY(dl_swarm_refuse(store, "track"));
    sigemptyset(&t.signals);
    sigaddset(&t.signals, SIGINT);
    sigaddset(&t.signals, SIGTERM);
    sigaddset(&t.signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &t.signals, NULL);
    dl_run_names_init(&names);
    dl_buf_init(&t.lines, LINES_MAX);
    diloco_status status = dl_run_names_add(&names, store);
    if (!status) status = open_and_track(&t, &names, args);
    dl_points_deinit(&t.points);
    dl_buf_deinit(&t.lines);
    dl_run_names_deinit(&names);
    return status;
}

const dl_command dl_command_track = {
    .name = "track",
    .target = "URL",
    .summary = "a run's curves in Weights & Biases, MLflow or Trackio",
    .details =
        "Sends the curves of the page until the run is complete or Ctrl-C; the same command\n"
        "continues. It needs the tracker's Python package in the Python that DILOCO_PYTHON names\n"
        "(default: that of the wheel, or python3). The tracker's own variables say where the "
        "curves\n"
        "go: WANDB_API_KEY, WANDB_MODE=offline, MLFLOW_TRACKING_URI, TRACKIO_DIR. It only reads "
        "the\n"
        "run.\n"
        "  WANDB_MODE=offline diloco track runs/run --to wandb",
    .flags = DL_FLAGS(DL_FLAG_TRACKER, DL_FLAG_PROJECT, DL_FLAG_SENT, DL_FLAG_TRACK_ONCE),
    .run = cmd_track,
};
