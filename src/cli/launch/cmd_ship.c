/* cmd_ship.c - run a replica and upload its output to the run's store, on executors whose backend
 * has no log (launch/output.h).
 *
 * The replica is a child process with a pipe as stdout and stderr. A thread reads the pipe, masks
 * secrets, and gives the bytes to this process's own stdout and to the shipper. The main thread
 * passes signals on and waits. In a container this process is the first one, so it also waits for
 * processes whose parents have ended, and its exit code is that of the replica. */
#include "base/file.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "launch/mask.h"
#include "launch/shipper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bytes of one read, and of all reads after the replica has ended: more than a pipe holds. */
enum { PIECE = 64 << 10, REST_MAX = 2 << 20 };

/* For the last part, after the replica has ended. A machine that is about to be taken away gives
 * little more. */
static const dl_time LAST_PART = 10 * DL_SECOND;

/* The signals that stop a process or are meant for a program. */
static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

typedef struct shipping {
    int pipe[2], ended[2]; /* the output; closed at [1] when the replica has ended */
    dl_mask mask;
    dl_shipper *shipper;
    dl_buf shown; /* used by the thread */
    pthread_t thread;
} shipping;

/* ---- the thread that reads */

/* A stdout that fails, for example a full disk of the container, does not stop the replica. */
static void pass(shipping *s, const void *bytes, size_t n, bool last)
{
    dl_buf_clear(&s->shown);
    if (dl_mask_add(&s->mask, &s->shown, bytes, n, last)) return;
    const dl_span span = {s->shown.data, s->shown.len};
    (void)!dl_fd_write(STDOUT_FILENO, &span, 1, "stdout");
    dl_shipper_add(s->shipper, s->shown.data, s->shown.len);
}

/* Reads until no process has the pipe open for writing. A process that outlives the replica may
 * have it, so after the end of the replica only what is in the pipe is read. */
static void *read_output(void *context)
{
    static char piece[PIECE];
    shipping *s = context;
    struct pollfd wait[2] = {{.fd = s->pipe[0], .events = POLLIN},
                             {.fd = s->ended[0], .events = POLLIN}};
    for (size_t rest = 0; rest < REST_MAX;) {
        if (poll(wait, 2, -1) < 0) continue;
        if (!wait[0].revents) break;
        const ssize_t n = read(s->pipe[0], piece, sizeof piece);
        if (n == 0 || (n < 0 && errno != EINTR)) break;
        if (n > 0) pass(s, piece, (size_t)n, false);
        if (n > 0 && wait[1].revents) rest += (size_t)n;
    }
    pass(s, "", 0, true);
    return NULL;
}

/* ---- the replica */

/* The child dies with this process, which a kill -9 may end alone. */
static void become_replica(const shipping *s, const dl_args *args, pid_t parent, char **words)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(s->pipe[1], STDOUT_FILENO);
    dup2(s->pipe[1], STDERR_FILENO);
    words[0] = args->argv[0];
    execv("/proc/self/exe", words);
    dprintf(STDERR_FILENO, "diloco: run this program again: %s\n", strerror(errno));
    _exit(1);
}

/* Waits for all processes that end until the replica is one of them. Returns true with its exit
 * code, 128 + N after signal N. Without any child the replica has ended, with an unknown code. */
static bool has_ended(int *code, pid_t replica)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != replica) continue;
        *code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return true;
    }
    return pid < 0 && errno == ECHILD;
}

/* Signals of the terminal reach the replica by themselves. */
static int wait_for_replica(const sigset_t *signals, pid_t replica)
{
    int code = 1;
    siginfo_t info;
    while (!has_ended(&code, replica)) {
        const int number = sigwaitinfo(signals, &info);
        if (number > 0 && number != SIGCHLD && info.si_code <= 0) kill(replica, number);
    }
    return code;
}

/* ---- the command */

static diloco_status begin(shipping *s, const dl_args *args)
{
    const char *job = getenv("DILOCO_JOB"), *names = args->flags[DL_FLAG_HIDE];
    if (!args->rest || !args->rest[0] || !job)
        return dl_fail(DILOCO_EINVAL,
                       "ship is started by launch: DILOCO_JOB=NAME diloco ship STORE -- join …");
    dl_buf_init(&s->shown, 8 << 20);
    DL_TRY(dl_mask_init(&s->mask, names ? names : ""));
    if (pipe2(s->pipe, O_CLOEXEC) || pipe2(s->ended, O_CLOEXEC))
        return dl_fail_errno(errno, "make", "a pipe");
    DL_TRY(dl_shipper_create(&s->shipper, args->target, job));
    if (dl_thread_start(&s->thread, read_output, s))
        return dl_fail(DILOCO_ENOMEM, "out of memory for the output");
    return DILOCO_OK;
}

/* The signals are blocked from before the fork on, so that none is lost. main has undone a SIGCHLD
 * that the parent ignores. The end runs no functions of atexit: the shipper's thread may still use
 * what they free. */
static diloco_status cmd_ship(const dl_args *args)
{
    shipping s = {.shipper = NULL};
    sigset_t signals;
    size_t n = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        sigaddset(&signals, passed_on[i]);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    DL_TRY(begin(&s, args));
    while (args->rest[n])
        n++;
    char **words = calloc(n + 2, sizeof *words);
    if (!words) return dl_fail(DILOCO_ENOMEM, "out of memory for the replica's arguments");
    memcpy(words + 1, args->rest, n * sizeof *words);
    const pid_t self = getpid(), replica = fork();
    if (replica == 0) become_replica(&s, args, self, words);
    free(words);
    if (replica < 0) return dl_fail_errno(errno, "start", "the replica");
    close(s.pipe[1]);
    const int code = wait_for_replica(&signals, replica);
    close(s.ended[1]);
    pthread_join(s.thread, NULL);
    dl_shipper_close(s.shipper, LAST_PART);
    dl_mask_deinit(&s.mask);
    dl_buf_deinit(&s.shown);
    fflush(NULL);
    _exit(code);
}

const dl_command dl_command_ship = {
    .name = "ship",
    .target = "URL",
    .details = "Started by launch on a machine without a log: runs the words after -- with this "
               "program,\n"
               "and uploads their output to the store.",
    .flags = DL_FLAGS(DL_FLAG_HIDE),
    .takes_rest = true,
    .run = cmd_ship,
};
