/* host.c - see host.h.
 *
 * Between fork and exec, and in the keeper, only calls that are async-signal-safe are made: the
 * launcher may have threads, and one of them may hold malloc's lock.
 *
 *     launcher --fork--> child --setsid, fork--> keeper --fork--> replica
 *        |                 ends                    |
 *        `--- waits until the keeper has written its number, or has ended */
#include "launch/host.h"

#include "base/clock.h"
#include "launch/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The keeper's descriptors have fixed numbers, so that it can close all others and needs no memory
 * for theirs. FD_LOCK passes to every process of the replica. The program of a replica puts other
 * descriptors at 3 and 4 (cli/crew/processes.h). */
enum { PATH_BYTES = DL_PATH_MAX + 96, FILE_BYTES = 64, CHUNK = 1 << 16 };
enum { FD_READY = 7, FD_FOLDER = 8, FD_LOCK = 9, FD_FREE = 10 };

#define LOOK (100 * DL_MILLISECOND)

extern char **environ;

/* DIR/NAME/FILE; with an empty `file` the replica's folder. */
static void path_of(char out[PATH_BYTES], const char *dir, const char *name, const char *file)
{
    snprintf(out, PATH_BYTES, "%s/%s%s%s", dir, name, *file ? "/" : "", file);
}

/* ---- the keeper: async-signal-safe from here on */

/* All that the keeper needs, prepared before the fork. It must not allocate. */
typedef struct keeper {
    char *const *argv, *const *env;
    const char *dir;
    dl_time timeout, grace; /* DL_NEVER: none */
} keeper;

/* Write a whole file or none in the replica's folder: a reader in another process must not see half
 * of it. Errors are not reported, since the keeper has nowhere to report them. */
static void put_file(const char *name, const char *temporary, const char *text, size_t len)
{
    const int fd = openat(FD_FOLDER, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool written = fd >= 0 && write(fd, text, len) == (ssize_t)len && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    if (written) (void)!renameat(FD_FOLDER, temporary, FD_FOLDER, name);
}

/* Write "word 12\n" and return its length. snprintf is not async-signal-safe. */
static size_t number_text(char out[FILE_BYTES], const char *word, long number)
{
    char digits[24];
    size_t n = 0, len = strlen(word);
    memcpy(out, word, len);
    do
        digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n)
        out[len++] = digits[--n];
    out[len++] = '\n';
    return len;
}

static void put_number(const char *file, const char *temporary, const char *word, long number)
{
    char text[FILE_BYTES];
    put_file(file, temporary, text, number_text(text, word, number));
}

/* close_range needs Linux 5.9. Before that the limit of 4096 is a guess, and a descriptor above it
 * stays open. */
static void close_from(unsigned first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
    for (unsigned fd = first; fd < 4096; fd++)
        close((int)fd);
}

/* In the replica's process, before its program. The replica is in a group of its own, so that the
 * keeper can signal all of its processes. It gets SIGTERM if the keeper dies. */
_Noreturn static void become_replica(const keeper *k, const sigset_t *none)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    fcntl(FD_LOCK, F_SETFD, 0); /* the lock is held as long as any process of it runs */
    sigprocmask(SIG_SETMASK, none, NULL);
    if (chdir(k->dir) == 0) execve(k->argv[0], k->argv, k->env);
    static const char text[] = "diloco: the replica's program cannot be executed\n";
    (void)!write(2, text, sizeof text - 1);
    _exit(127);
}

/* The file `exit` in its three forms. A replica that was stopped after launch.timeout has
 * "timeout", however it ended. */
static void write_end(int how, bool timed_out)
{
    if (timed_out)
        put_file("exit", "exit.tmp", "timeout\n", 8);
    else if (WIFSIGNALED(how))
        put_number("exit", "exit.tmp", "signal ", WTERMSIG(how));
    else
        put_number("exit", "exit.tmp", "exit ", WEXITSTATUS(how));
}

/* Wait for a signal of the set, at most until `due`. Returns its number, or -1 with errno EAGAIN
 * when the time is over. */
static int next_signal(const sigset_t *set, dl_time due)
{
    if (due == DL_NEVER) return sigwaitinfo(set, NULL);
    dl_time left = due - dl_clock_now();
    if (left < 0) left = 0;
    const struct timespec wait = {.tv_sec = (time_t)(left / DL_SECOND),
                                  .tv_nsec = (long)(left % DL_SECOND)};
    return sigtimedwait(set, NULL, &wait);
}

/* The keeper: start the replica, pass a request to stop on to it, and write how it ended. Signals
 * are blocked and waited for, so none comes between a check and the wait. After `grace` the group
 * is killed. */
_Noreturn static void keep(const keeper *k)
{
    sigset_t set, none;
    sigemptyset(&none);
    sigemptyset(&set);
    const int watched[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        sigaddset(&set, watched[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    /* A launcher may have been started with SIGCHLD ignored, and then no signal would come. */
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    put_number("pid", "pid.tmp", "", (long)getpid());
    const pid_t child = fork();
    if (child == 0) become_replica(k, &none);
    (void)!write(FD_READY, "", 1);
    close(FD_READY);
    if (child < 0) _exit(1); /* no exit file: LOST */
    setpgid(child, child);

    dl_time due = dl_time_after(dl_clock_now(), k->timeout);
    bool asked = false, timed_out = false;
    for (int how;;) {
        const int signal = next_signal(&set, due);
        if (waitpid(child, &how, WNOHANG) == child) {
            write_end(how, timed_out);
            _exit(0);
        }
        const bool is_due = signal < 0 && errno == EAGAIN;
        if (is_due && asked) {
            kill(-child, SIGKILL);
            due = DL_NEVER;
        } else if (is_due || signal == SIGTERM || signal == SIGINT || signal == SIGHUP) {
            if (!asked) due = dl_time_after(dl_clock_now(), k->grace);
            timed_out = timed_out || is_due;
            asked = true;
            kill(-child, SIGTERM);
        }
    }
}

/* In the child of the launcher. The second fork leaves the session without a leader, so that
 * the keeper never gets a terminal. All descriptors but the keeper's are closed. */
_Noreturn static void detach(const keeper *k, int log, int lock, int ready, int folder)
{
    setsid();
    if (fork() != 0) _exit(0);
    int from[] = {log, lock, ready, folder};
    for (size_t i = 0; i < 4; i++)
        from[i] = fcntl(from[i], F_DUPFD, 64); /* out of the way of what they become */
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(from[0], 1);
    dup2(from[0], 2);
    dup2(from[1], FD_LOCK);
    dup2(from[2], FD_READY);
    dup2(from[3], FD_FOLDER);
    for (int fd = 3; fd < FD_READY; fd++)
        close(fd);
    close_from(FD_FREE);
    fcntl(FD_LOCK, F_SETFD, FD_CLOEXEC);
    fcntl(FD_READY, F_SETFD, FD_CLOEXEC);
    fcntl(FD_FOLDER, F_SETFD, FD_CLOEXEC);
    keep(k);
}

/* ---- starting */

/* Descriptors of a replica's folder; -1: not open. */
typedef struct opened {
    int folder, lock, log;
} opened;

static void close_all(const opened *o)
{
    if (o->folder >= 0) close(o->folder);
    if (o->lock >= 0) close(o->lock);
    if (o->log >= 0) close(o->log);
}

/* Open the folder and take its lock. *before: the name was started before, or is being started by
 * another launcher, which holds the lock. The lock belongs to the open file, so it passes to the
 * keeper with the descriptor (F_OFD_SETLK), and closing ours does not release it. */
static diloco_status open_folder(opened *o, bool *before, const dl_host_start *start)
{
    char path[PATH_BYTES];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    *o = (opened){-1, -1, -1};
    path_of(path, start->dir, start->name, "");
    DL_TRY(dl_dir_make(path));
    o->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (o->folder < 0) return dl_fail_errno(errno, "open", path);
    o->lock = openat(o->folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (o->lock < 0) return dl_fail_errno(errno, "make a lock in", path);
    *before = true;
    if (fcntl(o->lock, F_OFD_SETLK, &whole))
        return errno == EAGAIN || errno == EACCES ? DILOCO_OK : dl_fail_errno(errno, "lock", path);
    *before = faccessat(o->folder, "pid", F_OK, 0) == 0;
    o->log = openat(o->folder, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return o->log < 0 ? dl_fail_errno(errno, "make a log in", path) : DILOCO_OK;
}

/* Do two texts NAME=VALUE have the same name? */
static bool same_name(const char *a, const char *b)
{
    const size_t len = strcspn(a, "=");
    return strncmp(a, b, len) == 0 && b[len] == '=';
}

/* This process's environment, in which `more` replaces variables of equal names. The array is the
 * caller's; the texts are borrowed. NULL: no memory. */
static char **join_env(const char *const *more)
{
    size_t n = 0, n_more = 0, out = 0;
    while (environ[n])
        n++;
    while (more[n_more])
        n_more++;
    char **all = calloc(n + n_more + 1, sizeof *all);
    for (size_t i = 0; all && i < n; i++) {
        size_t k = 0;
        while (k < n_more && !same_name(environ[i], more[k]))
            k++;
        if (k == n_more) all[out++] = environ[i];
    }
    for (size_t i = 0; all && i < n_more; i++)
        all[out++] = (char *)(uintptr_t)more[i];
    return all;
}

/* Fork, and wait until the keeper has written a byte. The pipe closes without one if there is no
 * keeper. The child itself ends at once, so the wait for it is short. */
static diloco_status fork_keeper(const opened *o, const keeper *k, const char *name)
{
    int ready[2], how;
    char byte;
    if (pipe2(ready, O_CLOEXEC)) return dl_fail_errno(errno, "make a pipe for", name);
    const pid_t child = fork();
    if (child == 0) detach(k, o->log, o->lock, ready[1], o->folder);
    close(ready[1]);
    diloco_status status = child < 0 ? dl_fail_errno(errno, "start", name) : DILOCO_OK;
    if (!status) {
        while (waitpid(child, &how, 0) < 0 && errno == EINTR)
            ;
        if (read(ready[0], &byte, 1) != 1)
            status = dl_fail(DILOCO_EIO, "start %s: the system gave no process", name);
    }
    close(ready[0]);
    return status;
}

/* An option of 0 seconds is no limit. */
static dl_time span(double seconds)
{
    return seconds > 0 ? dl_time_from_seconds(seconds) : DL_NEVER;
}

/* The environment is made before the fork, since the keeper must not allocate. */
diloco_status dl_host_start_one(const dl_host_start *start)
{
    opened o;
    bool before = false;
    char **env = join_env(start->env);
    diloco_status status =
        env ? open_folder(&o, &before, start)
            : dl_fail(DILOCO_ENOMEM, "not enough memory to start %s", start->name);
    const keeper k = {.argv = (char *const *)(uintptr_t)start->argv,
                      .env = env,
                      .dir = start->dir,
                      .timeout = span(start->timeout_s),
                      .grace = dl_time_from_seconds(start->grace_s)};
    if (!status && !before) status = fork_keeper(&o, &k, start->name);
    if (env) close_all(&o);
    free(env);
    return status;
}

/* ---- polling */

/* The first line of a small file; false if it cannot be read. */
static bool read_text(char out[FILE_BYTES], const char *dir, const char *name, const char *file)
{
    char path[PATH_BYTES];
    path_of(path, dir, name, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t n = read(fd, out, FILE_BYTES - 1);
    close(fd);
    if (n <= 0) return false;
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return true;
}

/* Ask for the lock's holder without taking it: a poll must not hold up a start at the same
 * moment. */
static bool is_locked(const char *dir, const char *name)
{
    char path[PATH_BYTES];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    path_of(path, dir, name, "lock");
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return false;
    const bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return held;
}

static bool has_file(const char *dir, const char *name, const char *file)
{
    char path[PATH_BYTES];
    path_of(path, dir, name, file);
    return access(path, F_OK) == 0;
}

/* The state that the text of `exit` means. A request to stop comes first: a replica may end with
 * any code after it. */
static void set_ended(dl_job *job, const char *how, bool cancelled)
{
    const int number = atoi(how + strcspn(how, " "));
    if (strcmp(how, "timeout") == 0)
        dl_job_set(job, DL_JOB_FAILED, -1, "stopped after launch.timeout");
    else if (cancelled)
        dl_job_set(job, DL_JOB_CANCELLED, how[0] == 'e' ? number : -1, "stopped on request");
    else if (how[0] == 's')
        dl_job_set(job, DL_JOB_LOST, -1, "killed by signal %d (%s)", number, strsignal(number));
    else if (number == diloco_exit_code(DILOCO_EINTERRUPTED))
        dl_job_set(job, DL_JOB_LOST, number, "stopped by its machine, state saved");
    else
        dl_job_set(job, number ? DL_JOB_FAILED : DL_JOB_SUCCEEDED, number, "exit code %d", number);
}

/* A held lock without pid is a keeper that has just started. A free lock without exit is a keeper
 * that was killed, or a machine that was restarted. */
diloco_status dl_host_poll(const char *dir, dl_job *job)
{
    char text[FILE_BYTES];
    if (!has_file(dir, job->name, ""))
        return dl_fail(DILOCO_ENOENT, "%s has no folder in %s", job->name, dir);
    /* The lock first: a keeper writes `exit` before it lets go. */
    const bool held = is_locked(dir, job->name);
    const bool ended = read_text(text, dir, job->name, "exit");
    if (ended && !held)
        set_ended(job, text, has_file(dir, job->name, "cancel"));
    else if (held && read_text(text, dir, job->name, "pid"))
        dl_job_set(job, DL_JOB_RUNNING, -1, "process %.20s", text);
    else if (held)
        dl_job_set(job, DL_JOB_STARTING, -1, "%s", "");
    else if (has_file(dir, job->name, "cancel"))
        dl_job_set(job, DL_JOB_CANCELLED, -1, "stopped on request");
    else
        dl_job_set(job, DL_JOB_LOST, -1, "its process and the keeper of its process have ended");
    return DILOCO_OK;
}

/* Is this process the replica's keeper, which has the lock as its descriptor FD_LOCK? A keeper that
 * was killed leaves its number in `pid`, and the system gives that number to another process. */
static bool is_keeper(pid_t pid, const char *dir, const char *name)
{
    char path[PATH_BYTES], proc[64];
    struct stat ours, its;
    path_of(path, dir, name, "lock");
    snprintf(proc, sizeof proc, "/proc/%ld/fd/%d", (long)pid, FD_LOCK);
    return pid > 1 && stat(path, &ours) == 0 && stat(proc, &its) == 0 &&
           ours.st_dev == its.st_dev && ours.st_ino == its.st_ino;
}

/* The file `cancel` comes before the signal, so that a poll sees why the replica has ended. A
 * replica whose keeper was killed has got SIGTERM then (become_replica). */
diloco_status dl_host_cancel(const char *dir, const char *name)
{
    char path[PATH_BYTES], text[FILE_BYTES];
    if (!has_file(dir, name, "")) return DILOCO_OK;
    if (!is_locked(dir, name) && has_file(dir, name, "exit")) return DILOCO_OK;
    path_of(path, dir, name, "cancel");
    DL_TRY(dl_file_write(path, NULL, 0));
    if (!is_locked(dir, name) || !read_text(text, dir, name, "pid")) return DILOCO_OK;
    const pid_t pid = (pid_t)atol(text);
    if (is_keeper(pid, dir, name) && kill(pid, SIGTERM) && errno != ESRCH)
        return dl_fail_errno(errno, "stop the process of", name);
    return DILOCO_OK;
}

/* ---- logs */

/* Read to the present end of the file. */
static diloco_status read_on(dl_lines *l, int fd, const char *path)
{
    char bytes[CHUNK];
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) != 0;) {
        if (n < 0 && errno != EINTR) return dl_fail_errno(errno, "read", path);
        if (n > 0) DL_TRY(dl_lines_add(l, bytes, (size_t)n));
    }
    return DILOCO_OK;
}

bool dl_host_is_alive(void *user, const char *dir, const char *name)
{
    (void)user;
    return is_locked(dir, name);
}

/* A file that grows is read to its end again and again; inotify does not work on network file
 * systems. */
diloco_status dl_host_logs(const char *dir, const char *name, dl_host_alive_fn alive,
                           dl_job_line_fn fn, void *user)
{
    char path[PATH_BYTES];
    path_of(path, dir, name, "log");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return dl_fail_errno(errno, "read", path);
    dl_lines l;
    dl_lines_init(&l, fn, user);
    diloco_status status;
    for (;;) {
        /* Checked before the read, so that its last output is read. */
        const bool running = alive && alive(user, dir, name);
        status = read_on(&l, fd, path);
        if (status || !running) break;
        dl_clock_sleep(LOOK);
    }
    close(fd);
    return dl_lines_end(&l, status);
}
