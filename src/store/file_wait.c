/* file_wait.c - waiting for a folder to change: inotify, with the caller's look as a net.
 *
 * Each prefix is watched at its folder, or while that is not there at the nearest folder
 * above it. Changes that inotify misses (network file systems, objects in folders further down,
 * changes before the watch) are found because store.c never asks to wait for more than its
 * back-off. New watches are made for a new set of prefixes, and after every event, for a folder may
 * have come or gone. */
#include "store/file_store.h"

#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

/* Changes that happened without a watch are found by looking again this soon. */
#define AFTER_NEW_WATCH (20 * DL_MILLISECOND)

enum { EVENTS = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF };

/* Returns the watch of the folder, or of the nearest one above it that exists. */
static int watch_one(const dl_file_store *fs, const char *prefix)
{
    char path[PATH_MAX];
    size_t root_len = strlen(fs->root);
    int len = snprintf(path, sizeof path, "%s/%s", fs->root, prefix), watch;
    if (len < 0 || (size_t)len >= sizeof path) return -1;
    while ((watch = inotify_add_watch(fs->notify, path, EVENTS | IN_ONLYDIR)) < 0 &&
           strlen(path) > root_len)
        *strrchr(path, '/') = '\0';
    return watch;
}

/* Also when it is watched already: then inotify only moves the watch where it belongs. */
static void watch_all(dl_file_store *fs, const char *const *prefixes, size_t n)
{
    bool deaf = fs->notify < 0;
    for (size_t i = 0; i < n && !deaf; i++)
        deaf = watch_one(fs, prefixes[i]) < 0 && errno != ENOENT; /* ENOENT: the root is gone */
    if (deaf && !fs->told_deaf)
        dl_log(DILOCO_LOG_WARN, "store %s: no inotify (%s): looking every 20 ms to 1 s", fs->root,
               strerror(errno));
    fs->told_deaf |= deaf;
}

/* Returns whether the watches are for exactly these prefixes. */
static bool is_watched(const dl_file_store *fs, const char *const *prefixes, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(prefixes[i]) + 1;
        if (len > fs->watched.len - at || memcmp(fs->watched.data + at, prefixes[i], len))
            return false;
        at += len;
    }
    return at == fs->watched.len;
}

/* Begins with a new inotify instance, which drops the watches of the set before. */
static void watch_another(dl_file_store *fs, const char *const *prefixes, size_t n)
{
    if (fs->notify >= 0) close(fs->notify);
    fs->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    dl_buf_clear(&fs->watched);
    for (size_t i = 0; i < n; i++) /* no memory: then this set is always another */
        if (dl_buf_add(&fs->watched, prefixes[i], strlen(prefixes[i]) + 1)) break;
    watch_all(fs, prefixes, n);
}

/* Has something happened before `until`? A slice at a time, because of abort. */
static bool was_notified(const dl_file_store *fs, dl_time until)
{
    dl_time left = until - dl_clock_now();
    if (left > DL_STORE_SLICE) left = DL_STORE_SLICE;
    if (left < 0) left = 0;
    struct timespec t = {.tv_nsec = left};
    struct pollfd events = {.fd = fs->notify, .events = POLLIN}; /* fd -1: only sleeps */
    return ppoll(&events, 1, &t, NULL) > 0;
}

/* With new watches the wait ends soon with OK, since a change may have come before them. After an
 * event everything that is queued is read, so one event does not end several waits. */
diloco_status dl_file_store_wait(void *self, const char *const *prefixes, size_t n, dl_time until)
{
    dl_file_store *fs = self;
    bool early = false;
    if (!is_watched(fs, prefixes, n)) {
        watch_another(fs, prefixes, n);
        dl_time soon = dl_clock_now() + AFTER_NEW_WATCH;
        early = soon < until;
        if (early) until = soon;
    }
    while (!was_notified(fs, until)) {
        diloco_status status = dl_store_check(fs->aborted, until, "waiting");
        if (status) return status == DILOCO_ETIMEDOUT && early ? DILOCO_OK : status;
    }
    ssize_t drained;
    do /* the kind of event does not matter */
        drained = read(fs->notify, fs->piece, DL_STORE_PIECE);
    while (drained > 0);
    watch_all(fs, prefixes, n);
    return DILOCO_OK;
}
