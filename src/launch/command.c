/* command.c - a child with three pipes, and one loop over them. poll serves all three at once: a
 * child that writes much before it reads would block for ever otherwise. */
#include "launch/command.h"

#include "base/file.h"
#include "base/text.h"
#include "launch/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bytes of one read, as many as a pipe holds (pipe(7)), and of the path of a program. */
enum { CHUNK = 1 << 16, PATH_BYTES = 4096 };

#define PATIENCE (60 * DL_SECOND)
/* The longest time between two looks at a child that has closed its pipes and runs. */
#define LONGEST_PAUSE (50 * DL_MILLISECOND)

extern char **environ;

/* Empty components of PATH, which mean the working folder, find nothing here. */
bool dl_command_exists(const char *name)
{
    char path[PATH_BYTES];
    const char *at = getenv("PATH");
    if (strchr(name, '/')) return access(name, X_OK) == 0;
    while (at && *at) {
        const size_t len = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)len, at, name);
        if (access(path, X_OK) == 0) return true;
        at += len + (at[len] == ':');
    }
    return false;
}

/* ---- the child */

/* A running program. */
typedef struct child {
    pid_t pid;
    /* Our ends of the pipes; -1: closed, or stdin is a file. */
    int in, out, err;
} child;

static void close_end(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void close_ends(child *c)
{
    close_end(&c->in);
    close_end(&c->out);
    close_end(&c->err);
}

/* posix_spawn instead of fork: the process may have threads, and a large memory. Returns an errno
 * value. */
static int spawn_with(pid_t *pid, const char *const *argv, const int fds[3])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults, none;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE); /* this process may ignore both */
    sigaddset(&defaults, SIGCHLD);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0); /* a terminal's Ctrl-C is the launcher's */
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none); /* this thread may block some or all */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP |
                                              POSIX_SPAWN_SETSIGMASK);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, fds[i], i);
    const int error =
        posix_spawnp(pid, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error;
}

/* Start the child. With in_fd >= 0 that file is its stdin. Our ends are closed in the child by
 * O_CLOEXEC, else it would never see the end of its stdin. */
static diloco_status start(child *c, const char *const *argv, int in_fd)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    *c = (child){0, -1, -1, -1};
    if ((in_fd < 0 && pipe2(in, O_CLOEXEC)) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
        const int why = errno;
        for (int i = 0; i < 2; i++)
            close_end(&in[i]), close_end(&out[i]), close_end(&err[i]);
        return dl_fail_errno(why, "make a pipe for", argv[0]);
    }
    const int fds[3] = {in_fd < 0 ? in[0] : in_fd, out[1], err[1]};
    const int error = spawn_with(&c->pid, argv, fds);
    close_end(&in[0]);
    close_end(&out[1]);
    close_end(&err[1]);
    *c = (child){error ? 0 : c->pid, in[1], out[0], err[0]};
    if (!error) return DILOCO_OK;
    close_ends(c);
    if (error == ENOENT)
        return dl_fail(DILOCO_EINVAL, "there is no program %s here: install it", argv[0]);
    return dl_fail_errno(error, "start", argv[0]);
}

/* ---- the loop */

/* Receives a piece of stdout. An error ends the child. */
typedef diloco_status (*out_fn)(void *context, const char *bytes, size_t n);

/* The state of one conversation: input that was not sent yet, and the places of the output. */
typedef struct talk {
    const char *in;
    size_t in_len;
    char *err;
    size_t err_cap;
    out_fn fn;
    void *context;
    dl_time due; /* DL_NEVER: none */
} talk;

/* Append to the end of stderr that is kept, and drop its begin if it does not fit: an error usually
 * is in the last lines. */
static void keep_end(talk *t, const char *bytes, size_t n)
{
    size_t len = strlen(t->err);
    const size_t room = t->err_cap - 1;
    if (n > room) bytes += n - room, n = room;
    if (len + n > room) {
        const size_t drop = len + n - room;
        memmove(t->err, t->err + drop, len - drop + 1);
        len -= drop;
    }
    memcpy(t->err + len, bytes, n);
    t->err[len + n] = '\0';
}

/* Write without SIGPIPE, which would end this process where the child does not read. The signal
 * goes to the thread that writes, so it is blocked and taken here. The process keeps its handler.
 */
static ssize_t write_quietly(int fd, const void *bytes, size_t n)
{
    sigset_t broken, before, pending;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    const ssize_t written = write(fd, bytes, n);
    const int error = errno;
    /* A signal that was pending before this call stays pending. */
    if (written < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&broken, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}

/* stdin is closed when all was sent. A child that has closed it is no error: it may not need the
 * rest. */
static void send_some(child *c, talk *t)
{
    const ssize_t n = t->in_len ? write_quietly(c->in, t->in, t->in_len) : 0;
    if (n > 0) t->in += n, t->in_len -= (size_t)n;
    const bool broken = n < 0 && errno != EAGAIN && errno != EINTR;
    if (t->in_len == 0 || broken) close_end(&c->in);
}

/* One read, after poll has said that it does not block. 0 bytes are the end of that pipe. */
static diloco_status read_some(int *fd, talk *t, bool is_err)
{
    char bytes[CHUNK];
    const ssize_t n = read(*fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return DILOCO_OK;
    if (n <= 0) {
        close_end(fd);
        return DILOCO_OK;
    }
    if (!is_err) return t->fn(t->context, bytes, (size_t)n);
    keep_end(t, bytes, (size_t)n);
    return DILOCO_OK;
}

/* Milliseconds for poll, rounded up so that it does not return just before the time; -1: no
 * limit. */
static int left_ms(dl_time due)
{
    if (due == DL_NEVER) return -1;
    const dl_time left = due - dl_clock_now();
    return left <= 0 ? 0 : (int)(left / DL_MILLISECOND) + 1;
}

/* Until the child has closed its stdout and stderr and has got its stdin. */
static diloco_status talk_to(child *c, talk *t, const char *name)
{
    while (c->in >= 0 || c->out >= 0 || c->err >= 0) {
        struct pollfd polls[] = {{c->in, POLLOUT, 0}, {c->out, POLLIN, 0}, {c->err, POLLIN, 0}};
        const int ready = poll(polls, 3, left_ms(t->due));
        if (ready < 0 && errno != EINTR) return dl_fail_errno(errno, "wait for", name);
        if (ready == 0) return dl_fail(DILOCO_ETIMEDOUT, "%s did not end in time", name);
        if (ready < 0) continue;
        if (polls[0].revents) send_some(c, t);
        if (polls[1].revents) DL_TRY(read_some(&c->out, t, false));
        if (polls[2].revents) DL_TRY(read_some(&c->err, t, true));
    }
    return DILOCO_OK;
}

/* Wait for the end of a child that has closed its pipes, which it may do long before. It usually
 * ends at once, so the looks begin at 1 ms. *exit_code is as a shell has it: 128 + N after signal
 * N. Returns DILOCO_ETIMEDOUT if the child still runs, and DILOCO_EIO if it has ended and the
 * system has dropped its exit code. */
static diloco_status wait_for(int *exit_code, const child *c, dl_time due, const char *name)
{
    int how = 0;
    dl_time pause = DL_MILLISECOND;
    for (;;) {
        const pid_t ended = waitpid(c->pid, &how, due == DL_NEVER ? 0 : WNOHANG);
        if (ended > 0) break;
        if (ended < 0 && errno == EINTR) continue;
        if (ended < 0)
            return dl_fail(DILOCO_EIO,
                           "the exit code of %s is not known: this process ignores "
                           "SIGCHLD",
                           name);
        const dl_time left = due - dl_clock_now();
        if (left <= 0) return dl_fail(DILOCO_ETIMEDOUT, "%s did not end in time", name);
        dl_clock_sleep(pause < left ? pause : left);
        if (pause < LONGEST_PAUSE) pause *= 2;
    }
    *exit_code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    return DILOCO_OK;
}

/* Run the child to its end. After an error while it runs the child's whole group is killed, before
 * the wait for it. */
static diloco_status run(int *exit_code, const char *const *argv, int in_fd, talk *t)
{
    child c;
    DL_TRY(start(&c, argv, in_fd));
    if (c.in >= 0) fcntl(c.in, F_SETFL, O_NONBLOCK);
    diloco_status status = talk_to(&c, t, argv[0]);
    close_ends(&c);
    if (!status) {
        status = wait_for(exit_code, &c, t->due, argv[0]);
        if (status != DILOCO_ETIMEDOUT) return status;
    }
    kill(-c.pid, SIGKILL);
    (void)!wait_for(exit_code, &c, DL_NEVER, argv[0]);
    return status;
}

/* ---- whole */

static diloco_status add_out(void *context, const char *bytes, size_t n)
{
    return dl_buf_add(context, bytes, n);
}

/* A file is the child's stdin directly, so that a large one is not copied through this process. */
diloco_status dl_command_do(dl_command_result *result, const dl_command_run *what)
{
    dl_buf_init(&result->out, what->most ? what->most : 1 << 20);
    result->err[0] = '\0';
    talk t = {.in = what->in,
              .in_len = what->in ? what->in_len : 0,
              .err = result->err,
              .err_cap = sizeof result->err,
              .fn = add_out,
              .context = &result->out,
              .due = dl_time_after(dl_clock_now(), what->patience ? what->patience : PATIENCE)};
    const diloco_status status =
        run(&result->exit_code, what->argv, what->in || what->in_fd <= 0 ? -1 : what->in_fd, &t);
    dl_text_clause(result->err);
    if (status) dl_buf_deinit(&result->out);
    return status;
}

/* ---- lines */

static diloco_status add_lines(void *context, const char *bytes, size_t n)
{
    return dl_lines_add(context, bytes, n);
}

/* The time is not limited: the program may follow a log for days. */
diloco_status dl_command_lines(int *exit_code, const char *const *argv, const void *in,
                               size_t in_len, dl_job_line_fn fn, void *user)
{
    char err[512] = "";
    dl_lines l;
    dl_lines_init(&l, fn, user);
    talk t = {.in = in,
              .in_len = in_len,
              .err = err,
              .err_cap = sizeof err,
              .fn = add_lines,
              .context = &l,
              .due = DL_NEVER};
    diloco_status status = dl_lines_end(&l, run(exit_code, argv, -1, &t));
    dl_text_clause(err);
    if (!status && *exit_code)
        status = dl_fail(DILOCO_EIO, "%s ended with code %d: %s", argv[0], *exit_code, err);
    return status;
}
