/* shake.c - other machines' timing, for LD_PRELOAD: the program itself knows nothing of it.
 *
 *     SHAKE_SEED=N            none: nothing is done
 *     SHAKE_MODE=pauses       every thread pauses now and then (as it is without one)
 *     SHAKE_MODE=threads      every thread has a slowness of its own: half have none, some hardly
 *                             get on, as on a core that another process has most of the time
 *     SHAKE_ONE_IN=N          a pause at every N-th point (of 100), for pauses
 *
 * A point is before and after each call of the system and of threads below, wherever a scheduler
 * may put a process aside. A pause lasts up to 20 ms, one in forty up to 200 ms. Points of locks,
 * which are many, pause twenty times less often. A wait for a condition may also return without a
 * signal, as POSIX allows, and a thread begins late.
 *
 * The draws of a thread come from the seed, the process and the thread's number in it. Their timing
 * depends on the kernel, so a seed that has found a bug finds it again often, not always. No call
 * of this allocates: thread sanitizers' own threads run through it too. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { USUAL = 1, LOCK = 20, MAX_STARTS = 1024 };
enum { PAUSE_US = 20 * 1000, LONG_US = 200 * 1000, LONG_ONE_IN = 40 };

static uint64_t seed; /* 0: nothing is done */
static unsigned one_in = 100;
static bool by_thread;
static atomic_uint n_threads;

/* Of this thread: its draws, and how often it pauses (0: never). */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    uint64_t state;
    unsigned one_in;
} mine;

__attribute__((constructor)) static void begin(void)
{
    const char *n = getenv("SHAKE_SEED"), *mode = getenv("SHAKE_MODE"),
               *of = getenv("SHAKE_ONE_IN");
    if (of && strtoul(of, NULL, 10)) one_in = (unsigned)strtoul(of, NULL, 10);
    by_thread = mode && !strcmp(mode, "threads");
    if (n) seed = strtoull(n, NULL, 10) * 0x9e3779b97f4a7c15u + 1;
}

/* splitmix64, as of base/rng.h. */
static unsigned below(unsigned n)
{
    uint64_t x = mine.state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ (x >> 31)) >> 32) % n;
}

static void know_thread(void)
{
    static const unsigned slowness[8] = {0, 0, 0, 0, 100, 100, 20, 5};
    mine.state = seed + ((uint64_t)getpid() << 32) + atomic_fetch_add(&n_threads, 1);
    mine.one_in = by_thread ? slowness[below(8)] : one_in;
}

static bool is_drawn(unsigned rarer)
{
    if (!seed) return false;
    if (!mine.state) know_thread();
    return mine.one_in && below(mine.one_in * rarer) == 0;
}

/* By the kernel itself, so that this call does not come back here. */
static void sleep_us(unsigned us)
{
    const struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    const int kept = errno;
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, NULL);
    errno = kept;
}

static void point(unsigned rarer)
{
    if (is_drawn(rarer)) sleep_us(below(below(LONG_ONE_IN) ? PAUSE_US : LONG_US));
}

/* Conditions had other functions once, which an unversioned search may find. */
static void *find(const char *name)
{
    void *at = strstr(name, "cond_") ? dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2") : NULL;
    return at ? at : dlsym(RTLD_NEXT, name);
}

#define REAL(type, name, parameters)                                                               \
    static type(*_Atomic known) parameters;                                                        \
    type(*real) parameters = known;                                                                \
    if (!real) known = real = (type(*) parameters)find(#name)

#define SHAKEN(rarer, type, name, parameters, arguments)                                           \
    type name parameters                                                                           \
    {                                                                                              \
        REAL(type, name, parameters);                                                              \
        point(rarer);                                                                              \
        type got = real arguments;                                                                 \
        point(rarer);                                                                              \
        return got;                                                                                \
    }

/* ---- files -------------------------------------------------------------------------------- */

#define OPENED(name, parameters, type, arguments)                                                  \
    int name parameters                                                                            \
    {                                                                                              \
        REAL(int, name, type);                                                                     \
        mode_t mode = 0;                                                                           \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                       \
            va_list more;                                                                          \
            va_start(more, flags);                                                                 \
            mode = va_arg(more, mode_t);                                                           \
            va_end(more);                                                                          \
        }                                                                                          \
        point(USUAL);                                                                              \
        const int got = real arguments;                                                            \
        point(USUAL);                                                                              \
        return got;                                                                                \
    }

// clang-format off
OPENED(open, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode))
OPENED(open64, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode))
OPENED(openat, (int at, const char *path, int flags, ...), (int, const char *, int, ...), (at, path, flags, mode))
OPENED(openat64, (int at, const char *path, int flags, ...), (int, const char *, int, ...), (at, path, flags, mode))
SHAKEN(USUAL, FILE *, fopen, (const char *path, const char *mode), (path, mode))
SHAKEN(USUAL, FILE *, fopen64, (const char *path, const char *mode), (path, mode))
SHAKEN(USUAL, int, fclose, (FILE *f), (f))
SHAKEN(USUAL, int, fflush, (FILE *f), (f))
SHAKEN(USUAL, int, close, (int fd), (fd))
SHAKEN(USUAL, ssize_t, read, (int fd, void *to, size_t n), (fd, to, n))
SHAKEN(USUAL, ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n))
SHAKEN(USUAL, ssize_t, pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
SHAKEN(USUAL, ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at))
SHAKEN(USUAL, int, ftruncate, (int fd, off_t n), (fd, n))
SHAKEN(USUAL, int, fsync, (int fd), (fd))
SHAKEN(USUAL, int, flock, (int fd, int how), (fd, how))
SHAKEN(USUAL, int, rename, (const char *from, const char *to), (from, to))
SHAKEN(USUAL, int, renameat, (int at, const char *from, int at2, const char *to), (at, from, at2, to))
SHAKEN(USUAL, int, link, (const char *from, const char *to), (from, to))
SHAKEN(USUAL, int, linkat, (int at, const char *from, int at2, const char *to, int flags), (at, from, at2, to, flags))
SHAKEN(USUAL, int, unlink, (const char *path), (path))
SHAKEN(USUAL, int, unlinkat, (int at, const char *path, int flags), (at, path, flags))
SHAKEN(USUAL, int, mkdir, (const char *path, mode_t mode), (path, mode))
SHAKEN(USUAL, int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode))
SHAKEN(USUAL, int, rmdir, (const char *path), (path))
SHAKEN(USUAL, DIR *, opendir, (const char *path), (path))
SHAKEN(USUAL, DIR *, fdopendir, (int fd), (fd))
SHAKEN(LOCK, struct dirent *, readdir, (DIR *d), (d))

/* ---- sockets ------------------------------------------------------------------------------ */

SHAKEN(USUAL, ssize_t, send, (int fd, const void *from, size_t n, int flags), (fd, from, n, flags))
SHAKEN(USUAL, ssize_t, sendto, (int fd, const void *from, size_t n, int flags, const struct sockaddr *to, socklen_t len), (fd, from, n, flags, to, len))
SHAKEN(USUAL, ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
SHAKEN(USUAL, ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n))
SHAKEN(USUAL, ssize_t, recv, (int fd, void *to, size_t n, int flags), (fd, to, n, flags))
SHAKEN(USUAL, ssize_t, recvfrom, (int fd, void *to, size_t n, int flags, struct sockaddr *from, socklen_t *len), (fd, to, n, flags, from, len))
SHAKEN(USUAL, ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
SHAKEN(USUAL, int, connect, (int fd, const struct sockaddr *to, socklen_t len), (fd, to, len))
SHAKEN(USUAL, int, accept, (int fd, struct sockaddr *from, socklen_t *len), (fd, from, len))
SHAKEN(USUAL, int, accept4, (int fd, struct sockaddr *from, socklen_t *len, int flags), (fd, from, len, flags))
SHAKEN(USUAL, int, listen, (int fd, int n), (fd, n))
SHAKEN(USUAL, int, shutdown, (int fd, int how), (fd, how))
SHAKEN(USUAL, int, poll, (struct pollfd *fds, nfds_t n, int ms), (fds, n, ms))
SHAKEN(USUAL, int, select, (int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t), (n, r, w, e, t))
SHAKEN(USUAL, int, epoll_wait, (int fd, struct epoll_event *events, int n, int ms), (fd, events, n, ms))

/* ---- processes ---------------------------------------------------------------------------- */

SHAKEN(USUAL, int, kill, (pid_t pid, int signal), (pid, signal))
SHAKEN(USUAL, pid_t, waitpid, (pid_t pid, int *status, int how), (pid, status, how))
SHAKEN(USUAL, int, nanosleep, (const struct timespec *t, struct timespec *left), (t, left))
SHAKEN(USUAL, int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec *t, struct timespec *left), (clock, flags, t, left))
SHAKEN(USUAL, int, usleep, (useconds_t us), (us))

/* ---- threads ------------------------------------------------------------------------------ */

SHAKEN(LOCK, int, pthread_mutex_lock, (pthread_mutex_t *lock), (lock))
SHAKEN(LOCK, int, pthread_mutex_trylock, (pthread_mutex_t *lock), (lock))
SHAKEN(LOCK, int, pthread_mutex_unlock, (pthread_mutex_t *lock), (lock))
SHAKEN(LOCK, int, pthread_cond_signal, (pthread_cond_t *wake), (wake))
SHAKEN(LOCK, int, pthread_cond_broadcast, (pthread_cond_t *wake), (wake))
SHAKEN(USUAL, int, pthread_join, (pthread_t thread, void **result), (thread, result))
// clang-format on

/* A child begins late, too, and with draws of its own. */
pid_t fork(void)
{
    REAL(pid_t, fork, (void));
    point(USUAL);
    const pid_t pid = real();
    if (pid == 0) mine.state = 0;
    point(USUAL);
    return pid;
}

/* Returns without a signal. */
static bool is_spurious(pthread_mutex_t *lock)
{
    if (!is_drawn(USUAL)) return false;
    pthread_mutex_unlock(lock);
    pthread_mutex_lock(lock);
    return true;
}

int pthread_cond_wait(pthread_cond_t *wake, pthread_mutex_t *lock)
{
    REAL(int, pthread_cond_wait, (pthread_cond_t *, pthread_mutex_t *));
    point(USUAL);
    const int got = is_spurious(lock) ? 0 : real(wake, lock);
    point(USUAL);
    return got;
}

int pthread_cond_timedwait(pthread_cond_t *wake, pthread_mutex_t *lock,
                           const struct timespec *until)
{
    REAL(int, pthread_cond_timedwait,
         (pthread_cond_t *, pthread_mutex_t *, const struct timespec *));
    point(USUAL);
    const int got = is_spurious(lock) ? 0 : real(wake, lock, until);
    point(USUAL);
    return got;
}

/* The functions of threads that have not begun. */
static struct start {
    atomic_bool taken;
    void *(*run)(void *);
    void *context;
} starts[MAX_STARTS];

static void *run_late(void *at)
{
    struct start *s = at;
    void *(*const run)(void *) = s->run;
    void *const context = s->context;
    atomic_store(&s->taken, false);
    point(USUAL);
    return run(context);
}

int pthread_create(pthread_t *out, const pthread_attr_t *how, void *(*run)(void *), void *context)
{
    REAL(int, pthread_create, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *));
    struct start *s = NULL;
    for (size_t i = 0; i < MAX_STARTS && !s; i++)
        if (!atomic_exchange(&starts[i].taken, true)) s = &starts[i];
    if (s) s->run = run, s->context = context;
    point(USUAL);
    const int got = s ? real(out, how, run_late, s) : real(out, how, run, context);
    if (got && s) atomic_store(&s->taken, false);
    point(USUAL);
    return got;
}
