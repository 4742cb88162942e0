/* file_store.c - a folder as a store: on one machine, or shared by several (NFS and its kin).
 *
 * The key is the path below the root. An object is written under a temporary name and then given
 * its own (file_upload.c). link(2) either makes the name or finds it taken, also over NFS; put uses
 * rename(2), which replaces. Hence
 *  1. under a key there is at any moment nothing or one whole object;
 *  2. an object that create reported is on disk, and so is every folder above it;
 *  3. leftovers of a killed writer are in .tmp/, which no listing shows and which
 *     open cleans.
 * Every call finds the root by its path again: a share that was unmounted is missed at once
 * (.tmp/ is not there) and used again when it is back. Below the root no symbolic link is
 * followed. Nothing here allocates after open, but for buffers that reach their size. */
#include "store/file_store.h"

#include "base/log.h"
#include "store/run_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    OPEN_FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
    OPEN_OBJECT = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
    MAX_NAMES_BYTES = 1 << 28
};

/* ---- errors */

/* A row is an errno with the status that a caller acts on and advice for people. EUNREACHABLE means
 * that a retry may help; EFULL that space has to be freed. An errno without a row is EIO. */
diloco_status dl_file_store_fail(const dl_file_store *fs, int error, const char *what,
                                 const char *key)
{
    static const struct {
        int error;
        diloco_status status;
        const char *advice;
    } known[] = {
        {ENOSPC, DILOCO_EFULL, "; free some space there and try again"},
        {EDQUOT, DILOCO_EFULL, "; free some of the quota there and try again"},
        {EFBIG, DILOCO_EFULL, "; raise the limit on file sizes (ulimit -f) and try again"},
        {EROFS, DILOCO_EIO, ": the store is read-only; mount it writable or give another folder"},
        {EACCES, DILOCO_EIO, "; check owner and mode of the folder"},
        {EPERM, DILOCO_EIO, "; check the folder, and that its file system has hard links"},
        {ENOTDIR, DILOCO_EIO, ": a file or a symbolic link is in the way; move it away"},
        {ELOOP, DILOCO_EIO, ": a symbolic link is in the way; move it away"},
        {EISDIR, DILOCO_EIO, ": a folder is in the way; a key cannot be the folder of another"},
        {ENOENT, DILOCO_EUNREACHABLE, ": the folder changed meanwhile; try again"},
        {ESTALE, DILOCO_EUNREACHABLE, "; try again"},
        {ENOTCONN, DILOCO_EUNREACHABLE, ": is it mounted? try again"},
        {ENODEV, DILOCO_EUNREACHABLE, ": is it mounted? try again"},
        {ETIMEDOUT, DILOCO_EUNREACHABLE, "; try again"},
        {EHOSTDOWN, DILOCO_EUNREACHABLE, "; try again"},
        {EHOSTUNREACH, DILOCO_EUNREACHABLE, "; try again"},
    };
    diloco_status status = DILOCO_EIO;
    const char *advice = "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].error == error) {
            status = known[i].status;
            advice = known[i].advice;
        }
    char text[128];
    return dl_fail(status, "%s %s in store %s: %s%s", what, key, fs->root,
                   strerror_r(error, text, sizeof text), advice);
}

static diloco_status no_object(const dl_file_store *fs, const char *key)
{
    return dl_fail(DILOCO_ENOENT, "%s is not in store %s", key, fs->root);
}

static diloco_status root_is_gone(const dl_file_store *fs)
{
    return dl_fail(DILOCO_EUNREACHABLE,
                   "store %s is gone; mount it or move it back, and the run resumes", fs->root);
}

/* ---- folders */

int dl_file_store_sync_folder(int fd)
{
    return fsync(fd) && errno != EINVAL ? -1 : 0;
}

/* Each call opens the root again. A share that was unmounted leaves an empty folder there, which
 * must not pass for an empty store: `marked` shows it. */
static diloco_status open_root(const dl_file_store *fs, int *out)
{
    *out = open(fs->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*out < 0 && (errno == ENOENT || errno == ENOTDIR)) return root_is_gone(fs);
    if (*out < 0) return dl_file_store_fail(fs, errno, "open", "the root");
    if (fs->marked && faccessat(*out, DL_FILE_TMP, F_OK, 0) && errno == ENOENT) {
        close(*out); /* an empty mount point, say */
        *out = -1;
        return root_is_gone(fs);
    }
    return DILOCO_OK;
}

/* A folder that another writer made at the same time is fine. The parent is synced, so the folder
 * survives a power cut. */
static int make_folder(int dir, const char *name)
{
    if (mkdirat(dir, name, 0777)) return errno == EEXIST ? 0 : -1;
    return dl_file_store_sync_folder(dir);
}

/* Return true if key[0, len) is a folder of a run, and what has its name may go. An empty log or
 * gen would look like those of a run that has just begun, so their names are left as they are. */
static bool may_be_cleared(const char *key, size_t len)
{
    char folder[DL_KEY_MAX + 1];
    memcpy(folder, key, len);
    folder[len] = '\0';
    return dl_run_key_shape(folder) == DL_KEY_FOLDER && strcmp(folder, "log") != 0 &&
           strcmp(folder, "gen") != 0;
}

/* Replace a file, a link or a pipe that has the name of a run's folder by the folder. It is no
 * object of the run, and no replica could write below it. */
static int replace_by_folder(const dl_file_store *fs, int dir, const char *name, const char *key,
                             size_t len)
{
    if (!may_be_cleared(key, len)) return -1;
    if (unlinkat(dir, name, 0) && errno != ENOENT && errno != EISDIR) return -1;
    dl_log(DILOCO_LOG_WARN, "store %s: %.*s was no folder, and was removed", fs->root, (int)len,
           key);
    if (make_folder(dir, name)) return -1;
    return openat(dir, name, OPEN_FOLDER);
}

/* Opens one folder after the other, each without following links. So no key can lead out of the
 * root, whatever is in it. Replacing is tried only by a writer (`make`). */
diloco_status dl_file_store_folder(dl_file_store *fs, const char *key, bool make, int *out,
                                   const char **leaf)
{
    int dir;
    *out = -1;
    DL_TRY(open_root(fs, &dir));
    const char *at = key;
    for (const char *slash; (slash = strchr(at, '/')); at = slash + 1) {
        char name[NAME_MAX + 1];
        size_t len = (size_t)(slash - at); /* store.c saw that it fits */
        memcpy(name, at, len);
        name[len] = '\0';
        int next = openat(dir, name, OPEN_FOLDER);
        if (next < 0 && errno == ENOENT && make && !make_folder(dir, name))
            next = openat(dir, name, OPEN_FOLDER);
        int error = errno;
        if (next < 0 && make && (error == ENOTDIR || error == ELOOP))
            next = replace_by_folder(fs, dir, name, key, (size_t)(slash - key));
        close(dir);
        if (next < 0 && !make && (error == ENOENT || error == ENOTDIR || error == ELOOP))
            return no_object(fs, key);
        if (next < 0)
            return dl_file_store_fail(fs, error, make ? "make the folder of" : "open the folder of",
                                      key);
        dir = next;
    }
    if (leaf) *leaf = at;
    *out = dir;
    return DILOCO_OK;
}

/* Once .tmp/ was seen, its absence means that the store is gone. */
diloco_status dl_file_store_tmp(dl_file_store *fs, const char *key, int *out)
{
    int root;
    DL_TRY(open_root(fs, &root));
    *out = openat(root, DL_FILE_TMP, OPEN_FOLDER);
    if (*out < 0 && errno == ENOENT && !make_folder(root, DL_FILE_TMP))
        *out = openat(root, DL_FILE_TMP, OPEN_FOLDER);
    int error = errno;
    close(root);
    if (*out < 0) return dl_file_store_fail(fs, error, "write", key);
    fs->marked = true;
    return DILOCO_OK;
}

/* ---- open and close */

/* The root was made, perhaps with folders above it: put all of them on disk. Walks up from the root
 * and syncs each folder, as far as it may be opened. */
static diloco_status sync_ancestors(const dl_file_store *fs)
{
    int dir;
    DL_TRY(open_root(fs, &dir));
    for (const char *at = fs->root; at; at = strchr(at + 1, '/')) {
        int up = openat(dir, "..", OPEN_FOLDER);
        close(dir);
        if (up < 0) return DILOCO_OK; /* not readable: then we did not make anything in it */
        dir = up;
        dl_file_store_sync_folder(dir);
    }
    close(dir);
    return DILOCO_OK;
}

/* Without `create` a missing folder is an error, since a run that exists must not be begun again in
 * an empty place. */
static diloco_status find_root(dl_file_store *fs, bool create)
{
    struct stat st;
    int error = stat(fs->root, &st) ? errno : 0;
    if (!error && S_ISDIR(st.st_mode)) return DILOCO_OK;
    if (!error) return dl_fail(DILOCO_EIO, "store %s is not a folder", fs->root);
    if (error != ENOENT) return dl_file_store_fail(fs, error, "open", "the root");
    if (!create)
        return dl_fail(DILOCO_ENOENT,
                       "there is no folder %s; check its spelling, and that it is mounted",
                       fs->root);
    diloco_status status = dl_dir_make(fs->root);
    if (status)
        return dl_fail_context(status == DILOCO_EFULL ? status : DILOCO_EIO,
                               "store %s cannot be created; give another folder", fs->root);
    return sync_ancestors(fs);
}

/* Only a writer, which may create objects, puts a .tmp/ into the folder. */
static diloco_status find_tmp(dl_file_store *fs, bool create)
{
    int root, tmp;
    DL_TRY(open_root(fs, &root));
    fs->marked = faccessat(root, DL_FILE_TMP, F_OK, 0) == 0;
    close(root);
    if (!fs->marked && !create) return DILOCO_OK;
    DL_TRY(dl_file_store_tmp(fs, DL_FILE_TMP, &tmp));
    dl_upload_clean(tmp);
    return DILOCO_OK;
}

/* Everything that a call needs is allocated here, since a round should not allocate. */
static diloco_status file_open(void *self, const char *place, bool create,
                               const atomic_bool *aborted)
{
    dl_file_store *fs = self;
    fs->aborted = aborted;
    fs->notify = -1;
    fs->root = strdup(place);
    fs->piece = malloc(DL_STORE_PIECE);
    dl_buf_init(&fs->names, MAX_NAMES_BYTES);
    dl_buf_init(&fs->order, MAX_NAMES_BYTES);
    dl_buf_init(&fs->watched, MAX_NAMES_BYTES);
    if (!fs->root || !fs->piece)
        return dl_fail(DILOCO_ENOMEM, "not enough memory to open %s", place);
    for (size_t len = strlen(fs->root); len > 1 && fs->root[len - 1] == '/'; len--)
        fs->root[len - 1] = '\0';
    DL_TRY(find_root(fs, create));
    DL_TRY(dl_buf_reserve(&fs->watched, 4 * DL_KEY_MAX)); /* now, not in the middle of a round */
    return find_tmp(fs, create);
}

static void file_close(void *self)
{
    dl_file_store *fs = self;
    if (fs->notify >= 0) close(fs->notify);
    dl_buf_deinit(&fs->names);
    dl_buf_deinit(&fs->order);
    dl_buf_deinit(&fs->watched);
    free(fs->piece);
    free(fs->root);
}

/* ---- writing */

/* Is the name there, and as an object? A folder, a link or a pipe takes a name, too. Links are not
 * followed: a link under a key is no object. */
static diloco_status look(dl_file_store *fs, const char *key, bool *there, bool *is_object)
{
    int folder;
    const char *leaf;
    struct stat st;
    *there = *is_object = false;
    diloco_status status = dl_file_store_folder(fs, key, false, &folder, &leaf);
    if (status) return status == DILOCO_ENOENT ? DILOCO_OK : status;
    int error = fstatat(folder, leaf, &st, AT_SYMLINK_NOFOLLOW) ? errno : 0;
    close(folder);
    if (error == ENOENT) return DILOCO_OK;
    if (error) return dl_file_store_fail(fs, error, "look for", key);
    *there = true;
    *is_object = S_ISREG(st.st_mode);
    return DILOCO_OK;
}

/* The whole object under a temporary name, then its own; taken == NULL: replaces. The time limit is
 * checked once more before the object gets its name, so a late writer publishes nothing. */
static diloco_status write_object(dl_file_store *fs, const char *key, const dl_span *spans,
                                  size_t n_spans, bool *taken, dl_time until)
{
    dl_upload upload;
    DL_TRY(dl_upload_begin(&upload, fs, key));
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; i < n_spans && !status; i++)
        status = dl_upload_add(&upload, fs, key, spans[i].data, spans[i].len, until);
    if (!status) status = dl_upload_finish(&upload, fs, key);
    if (!status) status = dl_store_check(fs->aborted, until, key);
    if (!status) status = dl_upload_publish(&upload, fs, key, taken);
    dl_upload_discard(&upload);
    return status;
}

/* Equal bytes under a taken name count as success; store.c compares them. */
static diloco_status file_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                                 bool *taken, dl_time until)
{
    bool is_object;
    DL_TRY(look(self, key, taken,
                &is_object)); /* spares the loser of a race the writing; link decides */
    if (*taken) return DILOCO_OK;
    return write_object(self, key, spans, n_spans, taken, until);
}

/* The file is synced before the rename, or a power cut could leave an empty one. A heartbeat does
 * not need a durable rename. */
static diloco_status file_put(void *self, const char *key, const void *data, size_t len,
                              dl_time until)
{
    dl_span span = {data, len};
    return write_object(self, key, &span, 1, NULL, until);
}

/* ---- reading and deleting */

/* O_NONBLOCK keeps a pipe under that name from blocking the reader. Anything but a regular file
 * counts as no object. */
diloco_status dl_file_store_object(dl_file_store *fs, const char *key, int *out, struct stat *st)
{
    int folder;
    const char *leaf;
    DL_TRY(dl_file_store_folder(fs, key, false, &folder, &leaf));
    *out = openat(folder, leaf, OPEN_OBJECT);
    int error = errno;
    close(folder);
    if (*out < 0 && (error == ENOENT || error == ELOOP)) return no_object(fs, key);
    if (*out < 0) return dl_file_store_fail(fs, error, "read", key);
    diloco_status status = DILOCO_OK;
    if (fstat(*out, st))
        status = dl_file_store_fail(fs, errno, "read", key);
    else if (!S_ISREG(st->st_mode))
        status = no_object(fs, key);
    if (status) close(*out);
    return status;
}

/* The length is given before any byte, and the file may not change while it is read. A file that
 * shrinks ends early, and store.c reports it as damaged. */
static diloco_status feed(dl_file_store *fs, int fd, const struct stat *before, const char *key,
                          dl_sink sink, dl_time until)
{
    struct stat after;
    size_t len = (size_t)before->st_size;
    DL_TRY(sink.begin(sink.context, len));
    for (size_t at = 0; at < len;) {
        DL_TRY(dl_store_check(fs->aborted, until, key));
        ssize_t n = read(fd, fs->piece, dl_size_min(len - at, DL_STORE_PIECE));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return dl_file_store_fail(fs, errno, "read", key);
        if (n == 0) break;
        DL_TRY(sink.piece(sink.context, fs->piece, (size_t)n));
        at += (size_t)n;
    }
    if (fstat(fd, &after)) return dl_file_store_fail(fs, errno, "read", key);
    if (after.st_size != before->st_size)
        return dl_fail(DILOCO_EPROTO,
                       "%s in store %s changed while it was read; something else writes there", key,
                       fs->root);
    return DILOCO_OK;
}

/* A file that is replaced has another number, and one that is written in place another time. */
static void version_of(char *out, size_t cap, const struct stat *st)
{
    snprintf(out, cap, "%ju-%jd-%jd.%09ld", (uintmax_t)st->st_ino, (intmax_t)st->st_size,
             (intmax_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

static diloco_status was_changed(const dl_file_store *fs, const char *key)
{
    return dl_fail(DILOCO_EPROTO, "%s in store %s changed while it was read", key, fs->root);
}

/* Checks that nothing wrote to the file while it was read. */
static diloco_status still_is(const dl_file_store *fs, int fd, const dl_store_part *part,
                              const char *key)
{
    char now[sizeof part->version];
    struct stat st;
    if (fstat(fd, &st)) return dl_file_store_fail(fs, errno, "read", key);
    version_of(now, sizeof now, &st);
    return strcmp(now, part->version) == 0 ? DILOCO_OK : was_changed(fs, key);
}

static diloco_status feed_part(dl_file_store *fs, int fd, const struct stat *st, const char *key,
                               dl_store_part *part, dl_sink sink, dl_time until)
{
    char version[sizeof part->version];
    version_of(version, sizeof version, st);
    if (part->begin >= (size_t)st->st_size || (*part->version && strcmp(part->version, version)))
        return was_changed(fs, key);
    memcpy(part->version, version, sizeof version);
    DL_TRY(sink.begin(sink.context, (size_t)st->st_size));
    const size_t end = dl_size_min(part->end, (size_t)st->st_size);
    for (size_t at = part->begin; at < end;) {
        DL_TRY(dl_store_check(fs->aborted, until, key));
        ssize_t n = pread(fd, fs->piece, dl_size_min(end - at, DL_STORE_PIECE), (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return dl_file_store_fail(fs, errno, "read", key);
        if (n == 0) return dl_fail(DILOCO_EPROTO, "%s in store %s was cut short", key, fs->root);
        DL_TRY(sink.piece(sink.context, fs->piece, (size_t)n));
        at += (size_t)n;
    }
    return still_is(fs, fd, part, key);
}

/* A name that is taken by something other than an object reads as a damaged object. A reader that
 * found nothing there would try to create it again and again. */
static diloco_status not_there(dl_file_store *fs, const char *key)
{
    bool there, is_object;
    DL_TRY(look(fs, key, &there, &is_object));
    if (!there || is_object) return no_object(fs, key);
    return dl_fail(DILOCO_EPROTO,
                   "%s in store %s is a folder, a link or a pipe, and no object: move it away", key,
                   fs->root);
}

/* The caller closes *fd. */
static diloco_status open_object(dl_file_store *fs, const char *key, int *fd, struct stat *st)
{
    const diloco_status status = dl_file_store_object(fs, key, fd, st);
    return status == DILOCO_ENOENT ? not_there(fs, key) : status;
}

static diloco_status file_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    dl_file_store *fs = self;
    struct stat st;
    int fd;
    DL_TRY(open_object(fs, key, &fd, &st));
    const diloco_status status = feed(fs, fd, &st, key, sink, until);
    close(fd);
    return status;
}

static diloco_status file_read_part(void *self, const char *key, dl_store_part *part, dl_sink sink,
                                    dl_time until)
{
    dl_file_store *fs = self;
    struct stat st;
    int fd;
    DL_TRY(open_object(fs, key, &fd, &st));
    const diloco_status status = feed_part(fs, fd, &st, key, part, sink, until);
    close(fd);
    return status;
}

/* The folders that a key leaves empty go with it, or listings would slow down over a long
 * run; the root stays. */
static void remove_empty(dl_file_store *fs, const char *key)
{
    char path[DL_KEY_MAX + 1];
    strcpy(path, key);
    for (char *slash; (slash = strrchr(path, '/'));) {
        int parent;
        const char *leaf;
        *slash = '\0';
        if (dl_file_store_folder(fs, path, false, &parent, &leaf)) return;
        int kept = unlinkat(parent, leaf, AT_REMOVEDIR);
        close(parent);
        if (kept) return;
    }
}

/* A name that does not exist is no error. */
static diloco_status file_remove(void *self, const char *key, dl_time until)
{
    (void)until; /* a few system calls; entering looked at the clock */
    dl_file_store *fs = self;
    int folder;
    const char *leaf;
    diloco_status status = dl_file_store_folder(fs, key, false, &folder, &leaf);
    if (status) return status == DILOCO_ENOENT ? DILOCO_OK : status;
    int error = unlinkat(folder, leaf, 0) ? errno : 0;
    close(folder);
    if (error && error != ENOENT) return dl_file_store_fail(fs, error, "delete", key);
    remove_empty(fs, key);
    return DILOCO_OK;
}

const dl_store_kind dl_store_file = {
    .scheme = "file",
    .size = sizeof(dl_file_store),
    .io_may_pass = true,
    .open = file_open,
    .close = file_close,
    .create = file_create,
    .put = file_put,
    .read = file_read,
    .read_part = file_read_part,
    .list = dl_file_store_list,
    .remove = file_remove,
    .wait = dl_file_store_wait,
};
