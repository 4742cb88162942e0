/* processes.c - one loop over the pipes of all replicas.
 *
 * Invariants:
 *  1. A replica with pid > 0 is a child that was not waited for; its pipe is open.
 *  2. A pipe's end means that its process ended or is about to: only then it is waited for.
 *     (A replica whose line is too long to read gets a stop signal first.)
 *  3. Signals are blocked but inside ppoll, so that none is lost between a look and a wait.
 *
 * A replica:  idle --start--> running --pipe ends--> collected --killed, not by us--> start
 *                                                             `--else--> ended           */
#include "cli/crew/processes.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Limits of a line, of a command, and of names that are lost. FREE_FD is above the two
 * descriptors that a child gets. */
enum {
    LINE_MAX_BYTES = 4 << 20,
    READ_BYTES = 1 << 16,
    MAX_COMMAND = 8,
    FREE_FD = 10,
    NAMES_MAX = 1000 /* that others were quicker to take */
};

/* One replica. It is used on the caller's thread only. */
typedef struct replica {
    pid_t pid;   /* 0: not running */
    int events;  /* read end; -1 */
    dl_buf line; /* read, not yet a whole line */
    int64_t restarts;
    int lost;             /* number of names for it that others took first */
    bool is_new;          /* its name is, and nothing was done by it yet */
    diloco_status status; /* of its "exit" event */
    bool reported;        /* it said how it ended */
    bool taken;           /* it said that another process has its new name */
} replica;

/* One launch. Status and text are of the first failure; later ones are its consequences. */
typedef struct state {
    const dl_launch *launch; /* borrowed */
    replica *replicas;       /* [launch->n], owned */
    struct pollfd *polls;    /* [launch->n], owned: one for each pipe */
    int settings;            /* a memory file, read by every child */
    int requests;            /* to stop, that were seen */
    bool stopping;
    diloco_status status; /* the first failure */
    char text[1024];      /* its words */
} state;

/* ---- signals: the handler only counts */

static volatile sig_atomic_t signals_seen;

/* Only Ctrl-C counts twice. Schedulers repeat SIGTERM while a replica saves, and kill it when its
 * time is over. */
static void on_signal(int signal)
{
    if (signal == SIGINT || !signals_seen) signals_seen = signals_seen + 1;
}

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_STOP = sizeof stop_signals / sizeof *stop_signals };

/* The handlers and the mask before the launch, to be put back. */
typedef struct saved_signals {
    struct sigaction actions[N_STOP]; /* in the order of stop_signals */
    sigset_t mask;
} saved_signals;

/* Blocked signals arrive inside ppoll, which has the old mask. */
static void take_signals(saved_signals *saved)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t block;
    sigemptyset(&block);
    signals_seen = 0;
    for (size_t i = 0; i < N_STOP; i++) {
        sigaddset(&block, stop_signals[i]);
        sigaction(stop_signals[i], &action, &saved->actions[i]);
    }
    sigprocmask(SIG_BLOCK, &block, &saved->mask);
}

/* A process that was asked to stop still has to end with its exit code: a scheduler's next SIGTERM
 * must not kill it before that. */
static void give_signals_back(const saved_signals *saved)
{
    for (size_t i = 0; i < N_STOP; i++)
        if (!signals_seen || stop_signals[i] == SIGINT)
            sigaction(stop_signals[i], &saved->actions[i], NULL);
    sigprocmask(SIG_SETMASK, &saved->mask, NULL);
}

/* ---- the child, between fork and exec: only async-signal-safe calls */

/* Become the replica; never returns. Its group of its own keeps a terminal's Ctrl-C away.
 * PR_SET_PDEATHSIG stops it when this process dies, also by SIGKILL. */
static void become(const state *s, const char *name, bool is_new, int events, const sigset_t *mask)
{
    const char *argv[MAX_COMMAND + 3];
    size_t n = 0;
    for (; s->launch->command[n]; n++)
        argv[n] = s->launch->command[n];
    argv[n] = name;
    argv[n + 1] = is_new ? "--new" : NULL;
    argv[n + 2] = NULL;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (size_t i = 0; i < N_STOP; i++)
        signal(stop_signals[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);

    /* First out of the way, so that neither overwrites the other. */
    int from = fcntl(s->settings, F_DUPFD_CLOEXEC, FREE_FD);
    int to = fcntl(events, F_DUPFD_CLOEXEC, FREE_FD);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* stdin is /dev/null, and stdout goes to stderr, so a library that prints cannot mix with
     * the parent's output. */
    if (from >= 0 && to >= 0 && null >= 0 && dup2(null, 0) == 0 && dup2(2, 1) == 1 &&
        dup2(from, DL_SETTINGS_FD) == DL_SETTINGS_FD && dup2(to, DL_EVENTS_FD) == DL_EVENTS_FD)
        execv(argv[0], (char *const *)(void *)argv);
    _exit(127);
}

/* Start replica i. The write end of the pipe is closed here, so the pipe ends when the child
 * does. */
static diloco_status start(state *s, size_t i, const sigset_t *mask)
{
    replica *r = &s->replicas[i];
    const char *name = s->launch->names[i];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return dl_fail_errno(errno, "make a pipe for", name);
    pid_t pid = fork();
    if (pid == 0) become(s, name, r->is_new, ends[1], mask);
    close(ends[1]);
    if (pid < 0) {
        int error = errno;
        close(ends[0]);
        return dl_fail_errno(error, "start", name);
    }
    setpgid(pid, pid); /* on both sides, as either may come first */
    r->pid = pid;
    r->events = ends[0];
    r->reported = r->taken = false;
    dl_buf_clear(&r->line);
    return DILOCO_OK;
}

/* ---- stopping */

/* Send a signal to every replica that runs, and not to its process group. */
static void signal_all(const state *s, int signal)
{
    for (size_t i = 0; i < s->launch->n; i++)
        if (s->replicas[i].pid > 0) kill(s->replicas[i].pid, signal);
}

/* Ask all to stop and save. Repeating it changes nothing. */
static void stop_all(state *s)
{
    if (!s->stopping) signal_all(s, SIGTERM);
    s->stopping = true;
}

/* Keep the first failure and stop the others: a run without one of its replicas here would only
 * wait. */
static void fail(state *s, diloco_status status, const char *name, const char *text)
{
    if (!s->status) {
        s->status = status;
        snprintf(s->text, sizeof s->text, "%s: %s", name, text);
    }
    stop_all(s);
}

/* The first signal stops cleanly, the second one kills. A signal during a clean stop kills as
 * well. */
static void look_at_signals(state *s)
{
    if (signals_seen == s->requests) return;
    s->requests = signals_seen;
    /* A failure keeps its own text, also if a signal follows it. */
    if (!s->status) {
        s->status = DILOCO_EINTERRUPTED;
        snprintf(s->text, sizeof s->text, "stopped on request");
    }
    if (s->requests == 1 && !s->stopping) {
        s->launch->on_notice(s->launch->user,
                             "stopping after the current step; press Ctrl-C again to stop at "
                             "once");
        stop_all(s);
    } else {
        /* Nothing is lost by SIGKILL: the saved state is that of the last due point (P16). */
        s->stopping = true;
        signal_all(s, SIGKILL);
    }
}

/* ---- lines of replicas */

/* The replica's last line. An interrupted one was asked to stop. A fenced one with a new name
 * lost a race, and gets another name. */
static void on_exit_event(state *s, size_t i, dl_json_value event)
{
    replica *r = &s->replicas[i];
    uint64_t status;
    char text[sizeof s->text];
    if (dl_json_read_u64(&status, event, "status", DILOCO_N_STATUS - 1)) return;
    if (dl_json_read_str(text, sizeof text, event, "text")) strcpy(text, "failed");
    r->reported = true;
    r->status = (diloco_status)status;
    if (status == DILOCO_EINTERRUPTED && s->stopping) return;
    r->taken = status == DILOCO_EFENCED && r->is_new && r->lost < NAMES_MAX;
    if (r->taken) return;
    if (status) fail(s, r->status, s->launch->names[i], text);
}

/* Return true if the replica has claimed its generation: it reports progress after joining. */
static bool is_at_work(dl_json_value event)
{
    return dl_json_is(dl_json_get(event, "event"), "progress") &&
           !dl_json_is(dl_json_get(event, "phase"), "join");
}

/* A line that is no JSON is a bug, or output of something else on this descriptor; the launch
 * fails. */
static void on_line(state *s, size_t i, const char *line, size_t len)
{
    dl_json_value event;
    if (dl_json_parse(&event, line, len)) {
        fail(s, DILOCO_EPROTO, s->launch->names[i], diloco_error_text());
    } else if (dl_json_is(dl_json_get(event, "event"), "exit")) {
        on_exit_event(s, i, event);
    } else {
        if (is_at_work(event)) s->replicas[i].is_new = false;
        s->launch->on_event(s->launch->user, i, event);
    }
}

/* Handle the whole lines and move the rest to the front of the buffer. */
static void on_bytes(state *s, size_t i)
{
    dl_buf *line = &s->replicas[i].line;
    char *begin = (char *)line->data, *end = begin + line->len, *newline;
    while ((newline = memchr(begin, '\n', (size_t)(end - begin)))) {
        on_line(s, i, begin, (size_t)(newline - begin));
        begin = newline + 1;
    }
    line->len = (size_t)(end - begin);
    memmove(line->data, begin, line->len);
}

/* Read what the pipe has. Returns false if it has ended, or if a line is too long to read. */
static bool read_events(state *s, size_t i)
{
    char bytes[READ_BYTES];
    replica *r = &s->replicas[i];
    ssize_t n = read(r->events, bytes, sizeof bytes);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    if (dl_buf_add(&r->line, bytes, (size_t)n)) {
        fail(s, DILOCO_EPROTO, s->launch->names[i], diloco_error_text());
        return false;
    }
    on_bytes(s, i);
    return true;
}

/* ---- how replicas end */

/* The replica was killed by a signal, such as for lack of memory. It is started again, up to
 * `restarts` times; its saved state makes that safe (P16). */
static void killed(state *s, size_t i, int signal, const sigset_t *mask)
{
    replica *r = &s->replicas[i];
    const char *name = s->launch->names[i];
    char line[256];
    /* A replica that dies while all are stopped needs no restart. */
    if (s->stopping) return;
    if (r->restarts == s->launch->restarts) {
        snprintf(line, sizeof line,
                 "killed by signal %d (%s) after %lld restarts; the same command resumes", signal,
                 strsignal(signal), (long long)r->restarts);
        fail(s, DILOCO_EIO, name, line);
        return;
    }
    r->restarts++;
    snprintf(line, sizeof line, "%s was killed by signal %d (%s); started again, %lld of %lld",
             name, signal, strsignal(signal), (long long)r->restarts,
             (long long)s->launch->restarts);
    s->launch->on_notice(s->launch->user, line);
    /* The same name and the same state folder: the next generation resumes. */
    if (start(s, i, mask)) fail(s, DILOCO_EIO, name, diloco_error_text());
}

/* Give the replica another name and start it once more. */
static void rename_and_start(state *s, size_t i, const sigset_t *mask)
{
    char line[128];
    dl_replica_name before;
    if (s->stopping) return;
    /* on_taken replaces the name in place. */
    memcpy(before, s->launch->names[i], sizeof before);
    s->replicas[i].lost++;
    diloco_status status = s->launch->on_taken(s->launch->user, i);
    if (!status) status = start(s, i, mask);
    if (status) {
        fail(s, status, before, diloco_error_text());
        return;
    }
    /* The person sees the new name, as lines and folders have it from here on. */
    snprintf(line, sizeof line, "another replica took the name %s first: this replica is now %s",
             before, s->launch->names[i]);
    s->launch->on_notice(s->launch->user, line);
}

/* Wait for a process whose pipe has ended, and decide what follows. */
static void collect(state *s, size_t i, const sigset_t *mask)
{
    replica *r = &s->replicas[i];
    int how;
    char text[96];
    close(r->events); /* first: a child that still writes must not wait for us */
    while (waitpid(r->pid, &how, 0) < 0 && errno == EINTR)
        ;
    r->pid = 0;
    r->events = -1;
    if (WIFSIGNALED(how)) {
        killed(s, i, WTERMSIG(how), mask);
    } else if (r->taken) {
        rename_and_start(s, i, mask);
    } else if (!r->reported) {
        snprintf(text, sizeof text, "ended with code %d and no error message", WEXITSTATUS(how));
        fail(s, DILOCO_EIO, s->launch->names[i], text);
    }
}

/* ---- the loop */

/* Returns how many replicas are running. */
static size_t fill_polls(state *s)
{
    size_t running = 0;
    for (size_t i = 0; i < s->launch->n; i++) {
        s->polls[i] = (struct pollfd){.fd = s->replicas[i].events, .events = POLLIN};
        running += s->replicas[i].pid > 0;
    }
    return running;
}

/* Signals are looked at before each wait, so none is missed (invariant 3). */
static void listen_to_all(state *s, const sigset_t *mask)
{
    int tick = s->launch->tick_ms;
    const struct timespec wait = {.tv_sec = tick / 1000, .tv_nsec = tick % 1000 * 1000000L};
    while (look_at_signals(s), fill_polls(s)) {
        int ready = ppoll(s->polls, s->launch->n, tick ? &wait : NULL, mask);
        for (size_t i = 0; ready > 0 && i < s->launch->n; i++)
            if (s->polls[i].revents && !read_events(s, i)) collect(s, i, mask);
        if (tick) s->launch->on_tick(s->launch->user);
    }
}

/* The settings are in a memory file and not in argv, where every user could read them. */
static diloco_status put_settings(state *s)
{
    s->settings = memfd_create("settings", MFD_CLOEXEC);
    if (s->settings < 0) return dl_fail_errno(errno, "make a memory file for", "the settings");
    const dl_span span = {s->launch->settings->data, s->launch->settings->len};
    return dl_fd_write(s->settings, &span, 1, "the settings");
}

/* Nothing is started yet, so an error needs no stopping. */
static diloco_status prepare(state *s)
{
    size_t n = s->launch->n;
    DL_ASSERT(n > 0 && n <= DL_LAUNCH_MAX);
    s->replicas = calloc(n, sizeof *s->replicas);
    s->polls = calloc(n, sizeof *s->polls);
    if (!s->replicas || !s->polls)
        return dl_fail(DILOCO_ENOMEM, "not enough memory to start %zu replicas", n);
    for (size_t i = 0; i < n; i++) {
        s->replicas[i].events = -1;
        s->replicas[i].is_new = s->launch->is_new && s->launch->is_new[i];
        dl_buf_init(&s->replicas[i].line, LINE_MAX_BYTES);
    }
    return put_settings(s);
}

/* All children have been waited for; their pipes were closed by collect(). */
static void clean_up(state *s)
{
    for (size_t i = 0; s->replicas && i < s->launch->n; i++)
        dl_buf_deinit(&s->replicas[i].line);
    free(s->replicas);
    free(s->polls);
    if (s->settings >= 0) close(s->settings);
}

/* A replica that cannot be started stops the others; the loop then waits for all of them. */
diloco_status dl_launch_run(const dl_launch *launch)
{
    state s = {.launch = launch, .settings = -1};
    saved_signals saved;
    diloco_status status = prepare(&s);
    if (!status) {
        take_signals(&saved);
        /* The first failure ends the starting; the loop then waits for those that run. */
        for (size_t i = 0; i < launch->n && !s.status; i++)
            if (start(&s, i, &saved.mask))
                fail(&s, DILOCO_EIO, launch->names[i], diloco_error_text());
        listen_to_all(&s, &saved.mask);
        /* From here on a Ctrl-C ends this process as usual. */
        give_signals_back(&saved);
        if (s.status) status = dl_fail(s.status, "%s", s.text);
    }
    clean_up(&s);
    return status;
}
