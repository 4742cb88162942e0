/* die_at.c - kill -9 at a named point, for LD_PRELOAD: the program itself knows nothing of it.
 *
 *     DIE_AT=WHEN:WHAT:WHERE   WHEN is before, amid or after
 *     DIE_ONCE=FILE            made by the dying process: no other one dies, and the test sees it
 *     DIE_EACH=1               every process dies at a link, once a name: FILE and the name's end
 *     DIE_SKIP=N               each process passes that point N times before it may die there
 *     HOLD_AT=WHERE            the sync of a file does not begin, as on a disk that has stopped
 *     HELD=FILE                made by the first process that is held, with its pid
 *     FREE_KB=N                the memory that the machine has free, as processes see it
 *
 * WHAT may be link, rename or unlink of a file store, or write, sync or syncdir (of a folder),
 * where WHERE is a part of the path. For PUT, POST, DELETE of a client over plain HTTP, WHERE is a
 * part of the request's line.
 *
 * A file is linked when it is whole, so `before:link` is an upload in flight. `amid` of a
 * request is when its head and some of its body were sent, `after` when something of the answer has
 * come, and nothing of it was seen. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FD = 1024 };
/* Of a matching request on that socket; its number may have been another thread's just before. */
static atomic_bool body_next[MAX_FD], answer_next[MAX_FD];

/* Is it this process that dies? */
static bool is_chosen(const char *leaf)
{
    const char *once = getenv("DIE_ONCE");
    char file[1024];
    snprintf(file, sizeof file, "%s%s", once ? once : "", getenv("DIE_EACH") ? leaf : "");
    return once && open(file, O_CREAT | O_EXCL | O_WRONLY, 0666) >= 0;
}

static void die_of(const char *leaf)
{
    if (is_chosen(leaf)) kill(getpid(), SIGKILL);
}

static void die(void)
{
    die_of("");
}

/* Returns whether the process is at DIE_AT, and has passed it DIE_SKIP times. */
static bool is_at(const char *when, const char *what, const char *where)
{
    static atomic_int n_passed;
    const char *at = getenv("DIE_AT"), *skip = getenv("DIE_SKIP");
    char head[32];
    const int len = snprintf(head, sizeof head, "%s:%s:", when, what);
    if (!at || strncmp(at, head, (size_t)len) || !strstr(where, at + len)) return false;
    return atomic_fetch_add(&n_passed, 1) >= (skip ? atoi(skip) : 0);
}

/* The path of an open file or folder. */
static void path_of(char path[1024], int fd)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, 1023);
    path[n > 0 ? n : 0] = 0;
}

/* The path of a name in an open folder. */
static void path_at(char out[1024], int folder, const char *leaf)
{
    char path[1024];
    path_of(path, folder);
    snprintf(out, 1024, "%.700s/%.300s", path, leaf);
}

#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

int linkat(int from, const char *old, int to, const char *leaf, int flags)
{
    char path[1024];
    path_at(path, to, leaf);
    if (is_at("before", "link", path)) die_of(leaf);
    const int got = REAL("linkat", int (*)(int, const char *, int, const char *, int))(
        from, old, to, leaf, flags);
    if (got == 0 && is_at("after", "link", path)) die_of(leaf);
    return got;
}

int unlinkat(int folder, const char *leaf, int flags)
{
    char path[1024];
    path_at(path, folder, leaf);
    const int got = REAL("unlinkat", int (*)(int, const char *, int))(folder, leaf, flags);
    if (got == 0 && is_at("after", "unlink", path)) die();
    return got;
}

int rename(const char *old, const char *path)
{
    if (is_at("before", "rename", path)) die();
    const int got = REAL("rename", int (*)(const char *, const char *))(old, path);
    if (got == 0 && is_at("after", "rename", path)) die();
    return got;
}

/* Creates DIE_ONCE.replaces if the file that the unfinished one will replace exists. The name of
 * an unfinished file is that of the file and a suffix. */
static void note_replaced(const char *path)
{
    char file[1024], note[1100];
    snprintf(file, sizeof file, "%s", path);
    char *end = strstr(file, ".safetensors");
    if (!end) return;
    end[strlen(".safetensors")] = 0;
    snprintf(note, sizeof note, "%s.replaces", getenv("DIE_ONCE"));
    if (!access(file, F_OK)) (void)!open(note, O_CREAT | O_WRONLY, 0666);
}

ssize_t write(int fd, const void *data, size_t len)
{
    ssize_t (*const real)(int, const void *, size_t) =
        REAL("write", ssize_t(*)(int, const void *, size_t));
    const char *at = getenv("DIE_AT");
    char path[1024];
    if (at && strstr(at, ":write:")) {
        path_of(path, fd);
        if (is_at("amid", "write", path) && is_chosen("")) {
            note_replaced(path);
            (void)!real(fd, data, len / 2);
            kill(getpid(), SIGKILL);
        }
    }
    return real(fd, data, len);
}

/* The first process that comes here writes its pid, and waits until it is killed. */
static void hold(const char *path)
{
    const char *at = getenv("HOLD_AT"), *held = getenv("HELD");
    if (!at || !held || !strstr(path, at)) return;
    const int fd = open(held, O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (fd < 0) return;
    dprintf(fd, "%ld\n", (long)getpid());
    close(fd);
    for (;;)
        pause();
}

int fsync(int fd)
{
    char path[1024];
    struct stat st;
    path_of(path, fd);
    const char *what = !fstat(fd, &st) && S_ISDIR(st.st_mode) ? "syncdir" : "sync";
    hold(path);
    if (is_at("before", what, path)) die();
    const int got = REAL("fsync", int (*)(int))(fd);
    if (got == 0 && is_at("after", what, path)) die();
    return got;
}

FILE *fopen(const char *path, const char *mode)
{
    const char *kb = getenv("FREE_KB");
    static char meminfo[64];
    if (!kb || strcmp(path, "/proc/meminfo"))
        return REAL("fopen", FILE * (*)(const char *, const char *))(path, mode);
    const int len = snprintf(meminfo, sizeof meminfo, "MemAvailable: %.20s kB\n", kb);
    return fmemopen(meminfo, (size_t)len, "r");
}

/* ---- HTTP: a request begins a buffer */

static bool is_request(const char *when, const void *data, size_t len)
{
    char line[1024];
    const char *end = memchr(data, '\n', len);
    if (!end || (size_t)(end - (const char *)data) >= sizeof line) return false;
    memcpy(line, data, (size_t)(end - (const char *)data));
    line[end - (const char *)data] = 0;
    char *space = strchr(line, ' ');
    if (!space) return false;
    *space = 0;
    return is_at(when, line, space + 1);
}

ssize_t send(int fd, const void *data, size_t len, int flags)
{
    ssize_t (*const real)(int, const void *, size_t, int) =
        REAL("send", ssize_t(*)(int, const void *, size_t, int));
    const bool known = fd >= 0 && fd < MAX_FD;
    if (is_request("before", data, len)) die();
    if (known && body_next[fd]) {
        (void)!real(fd, data, len / 2, flags);
        kill(getpid(), SIGKILL);
    }
    if (known && is_request("amid", data, len) && is_chosen("")) {
        const char *body = memmem(data, len, "\r\n\r\n", 4);
        if (body && body + 4 < (const char *)data + len) { /* some of it is here already */
            (void)!real(fd, data, len - 1, flags);
            kill(getpid(), SIGKILL);
        }
        body_next[fd] = true;
    }
    if (known && is_request("after", data, len)) answer_next[fd] = true;
    return real(fd, data, len, flags);
}

ssize_t recv(int fd, void *data, size_t len, int flags)
{
    const ssize_t got = REAL("recv", ssize_t(*)(int, void *, size_t, int))(fd, data, len, flags);
    if (got > 0 && fd >= 0 && fd < MAX_FD && answer_next[fd]) die();
    return got;
}
