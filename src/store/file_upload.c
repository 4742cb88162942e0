/* file_upload.c - one object on its way into a folder, in pieces.
 *
 *     begin   make <root>/.tmp/<host>.<pid>.<number>, and lock it
 *     add     write to it
 *     finish  fsync it
 *     publish link(2) it to its name (create) or rename(2) it (put); fsync the folder
 *     discard unlink the temporary name, whatever came before
 *
 * Files that a killed process left in .tmp/ are removed when the folder is next opened. */
#include "store/file_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LEFTOVER_AGE_S = 3600,
    NAME_TRIES = 1000, /* temporary names; a taken one is a leftover of our own pid */
    PUBLISH_TRIES = 32 /* a delete may remove the emptied folder under our feet */
};

/* The name has host, process and a number, so two writers never choose the same. O_EXCL makes sure
 * of it. */
static int create_tmp(dl_upload *u)
{
    static atomic_uint number; /* of all handles of this process */
    char host[HOST_NAME_MAX + 1] = "";
    int fd = -1;
    if (gethostname(host, HOST_NAME_MAX)) strcpy(host, "host");
    errno = EEXIST;
    for (int i = 0; i < NAME_TRIES && fd < 0 && errno == EEXIST; i++) {
        snprintf(u->name, sizeof u->name, "%s.%ld.%u", host, (long)getpid(),
                 atomic_fetch_add(&number, 1));
        fd = openat(u->dir, u->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (fd >= 0) (void)flock(fd, LOCK_EX | LOCK_NB); /* where there are no locks, age decides */
    return fd;
}

diloco_status dl_upload_begin(dl_upload *u, dl_file_store *fs, const char *key)
{
    u->dir = u->fd = -1;
    DL_TRY(dl_file_store_tmp(fs, key, &u->dir));
    u->fd = create_tmp(u);
    if (u->fd >= 0) return DILOCO_OK;
    diloco_status status = dl_file_store_fail(fs, errno, "write", key);
    close(u->dir);
    u->dir = -1;
    return status;
}

/* Writes in pieces, so that an abort or the time limit takes effect in between. */
diloco_status dl_upload_add(dl_upload *u, const dl_file_store *fs, const char *key,
                            const void *data, size_t len, dl_time until)
{
    for (const unsigned char *at = data; len > 0;) {
        DL_TRY(dl_store_check(fs->aborted, until, key));
        ssize_t n = write(u->fd, at, dl_size_min(len, DL_STORE_PIECE));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return dl_file_store_fail(fs, errno, "write", key);
        at += n;
        len -= (size_t)n;
    }
    return DILOCO_OK;
}

/* The bytes are on the disk before the object has a name. close may also report a write that failed
 * on a network file system. */
diloco_status dl_upload_finish(dl_upload *u, const dl_file_store *fs, const char *key)
{
    diloco_status status = DILOCO_OK;
    if (fsync(u->fd)) status = dl_file_store_fail(fs, errno, "sync", key);
    if (close(u->fd) && !status) status = dl_file_store_fail(fs, errno, "close", key);
    u->fd = -1;
    return status;
}

/* link(2) fails if the name exists, which makes the creation exclusive; rename(2) replaces. The
 * folder is synced afterwards, so a power cut does not lose the name. */
static diloco_status publish_once(const dl_upload *u, dl_file_store *fs, const char *key,
                                  bool *taken)
{
    int folder;
    const char *leaf;
    DL_TRY(dl_file_store_folder(fs, key, true, &folder, &leaf));
    int failed =
        taken ? linkat(u->dir, u->name, folder, leaf, 0) : renameat(u->dir, u->name, folder, leaf);
    int error = failed ? errno : 0;
    if (taken) *taken = error == EEXIST;
    if (taken && error == EEXIST) error = 0; /* a retry's own object is synced, too */
    if (taken && !error && dl_file_store_sync_folder(folder)) error = errno;
    close(folder);
    return error ? dl_file_store_fail(fs, error, "publish", key) : DILOCO_OK;
}

/* Again when a folder on the way was just removed because it was empty. */
diloco_status dl_upload_publish(const dl_upload *u, dl_file_store *fs, const char *key, bool *taken)
{
    diloco_status status = DILOCO_EUNREACHABLE;
    for (int i = 0; i < PUBLISH_TRIES && status == DILOCO_EUNREACHABLE; i++)
        status = publish_once(u, fs, key, taken);
    return status;
}

void dl_upload_discard(dl_upload *u)
{
    if (u->dir < 0) return;
    if (u->fd >= 0) close(u->fd);
    unlinkat(u->dir, u->name, 0); /* not there any more after a rename */
    close(u->dir);
    u->dir = u->fd = -1;
}

/* ---- leftovers of killed processes */

/* A writer that is still active, however slow, has the file locked. A process number would not
 * help: in containers the dead writer and the active one are both process 1. */
static bool is_leftover(int tmp, const char *name)
{
    struct stat st;
    if (fstatat(tmp, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) return false;
    if (st.st_mtime + LEFTOVER_AGE_S >= time(NULL)) return false;
    int fd = openat(tmp, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return !locked;
}

void dl_upload_clean(int tmp)
{
    DIR *folder = fdopendir(tmp);
    if (!folder) {
        close(tmp);
        return;
    }
    for (struct dirent *d; (d = readdir(folder));)
        if (is_leftover(tmp, d->d_name))
            unlinkat(tmp, d->d_name, 0); /* cannot: read-only, or another opener was faster */
    closedir(folder);
}
