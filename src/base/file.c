/* file.c - files over plain system calls, because a checkpoint must be written also
 * when there is no memory left to ask for. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE_MAX = 1 << 30, READ_STEP = 1 << 16 };

/* `what` is a verb phrase: "open", "sync". */
diloco_status dl_fail_errno(int error, const char *what, const char *path)
{
    char text[256];
    diloco_status status = DILOCO_EIO;
    if (error == ENOSPC || error == EDQUOT) status = DILOCO_EFULL;
    if (error == ENOENT) status = DILOCO_ENOENT;
    return dl_fail(status, "%s %s: %s", what, path, strerror_r(error, text, sizeof text));
}

/* ---- reading */

/* A regular file's size is checked against the buffer's maximum first. Files without a size, such
 * as pipes, are read in steps up to that maximum. */
static diloco_status read_all(dl_buf *out, int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st)) return dl_fail_errno(errno, "stat", path);
    if (S_ISREG(st.st_mode)) { /* at once, and refused before a byte is read */
        size_t len;
        if (!dl_size_add(&len, out->len, (size_t)st.st_size)) len = SIZE_MAX;
        DL_TRY(dl_buf_reserve(out, len));
    }
    for (;;) {
        unsigned char probe; /* a full buffer still has to see the end of the file */
        bool full = out->len == out->max;
        if (!full && (!out->data || out->len == out->cap))
            DL_TRY(dl_buf_reserve(out, dl_size_min(out->max, out->len + READ_STEP)));
        ssize_t n =
            full ? read(fd, &probe, 1) : read(fd, out->data + out->len, out->cap - out->len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return dl_fail_errno(errno, "read", path);
        if (n == 0) return DILOCO_OK;
        if (full)
            return dl_fail(DILOCO_EPROTO, "it is longer than the allowed %zu bytes", out->max);
        out->len += (size_t)n;
    }
}

/* After an error the buffer has its former content. */
diloco_status dl_file_read(dl_buf *out, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return dl_fail_errno(errno, "open", path);
    size_t before = out->len;
    diloco_status status = read_all(out, fd, path);
    close(fd);
    if (status) out->len = before;
    if (status == DILOCO_EPROTO || status == DILOCO_ENOMEM)
        return dl_fail_context(status, "read %s", path);
    return status;
}

void dl_map_let_go(void *base, size_t len)
{
    (void)madvise(base, len, MADV_DONTNEED); /* advice */
}

/* The descriptor is closed at once; the mapping keeps the file. Only regular files are mapped. */
diloco_status dl_map_open(dl_map *out, const char *path)
{
    *out = (dl_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return dl_fail_errno(errno, "open", path);
    struct stat st;
    void *data = NULL;
    int error = 0;
    if (fstat(fd, &st)) error = errno;
    if (!error && !S_ISREG(st.st_mode)) error = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    if (!error && st.st_size > 0) {
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) error = errno;
    }
    close(fd);
    if (error) return dl_fail_errno(error, "map", path);
    *out = (dl_map){data, (size_t)st.st_size};
    return DILOCO_OK;
}

void dl_map_close(dl_map *map)
{
    if (map->data) munmap((void *)(uintptr_t)map->data, map->len);
    *map = (dl_map){0};
}

bool dl_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Lines are numbered from 1, comments and empty ones included, so the number in an error is the
 * editor's. */
diloco_status dl_file_each_line(const char *path, size_t most, dl_line_fn fn, void *context)
{
    dl_buf file;
    dl_buf_init(&file, most);
    diloco_status status = dl_file_read(&file, path);
    const char *text = status ? NULL : dl_buf_str(&file);
    if (!status && !text) status = dl_fail(DILOCO_ENOMEM, "not enough memory to read %s", path);
    for (int line = 1; !status && *text; line++) {
        const size_t len = strcspn(text, "\n");
        size_t used = len;
        while (used && (text[used - 1] == '\r' || text[used - 1] == ' '))
            used--;
        if (used && *text != '#') status = fn(context, text, used);
        if (status) status = dl_fail_context(status, "%s:%d", path, line);
        text += len + (text[len] == '\n');
    }
    if (file.data) explicit_bzero(file.data, file.cap);
    dl_buf_deinit(&file);
    return status;
}

/* ---- spans */

/* The spans are in memory, so their sum fits a size_t; anything else is a bug. */
size_t dl_spans_len(const dl_span *spans, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        const bool fits = dl_size_add(&total, total, spans[i].len);
        DL_ASSERT(fits);
    }
    return total;
}

/* The output refers to the same memory. It needs as much room as the input. */
size_t dl_spans_cut(dl_span *out, const dl_span *spans, size_t n, size_t skip, size_t len)
{
    size_t n_out = 0;
    for (size_t i = 0; i < n && len > 0; i++) {
        const size_t from = dl_size_min(skip, spans[i].len);
        const size_t here = dl_size_min(spans[i].len - from, len);
        skip -= from;
        len -= here;
        if (here) out[n_out++] = (dl_span){(const char *)spans[i].data + from, here};
    }
    return n_out;
}

/* ---- writing */

/* A short write continues where it ended. WRITE_MAX keeps a single call below the system's
 * limit. */
diloco_status dl_fd_write(int fd, const dl_span *spans, size_t n_spans, const char *name_for_errors)
{
    for (size_t i = 0; i < n_spans; i++) {
        const unsigned char *from = spans[i].data;
        for (size_t left = spans[i].len; left > 0;) {
            ssize_t n = write(fd, from, dl_size_min(left, WRITE_MAX));
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return dl_fail_errno(errno, "write", name_for_errors);
            from += n;
            left -= (size_t)n;
        }
    }
    return DILOCO_OK;
}

/* Create a file beside `path` that no one else writes: threads differ by the number,
 * processes by the pid, machines and leftovers of the dead by trying the next number. */
static int open_sibling(char *name, size_t size, const char *path)
{
    static atomic_uint number;
    for (;;) {
        int len = snprintf(name, size, "%s.%ld-%u.tmp", path, (long)getpid(),
                           atomic_fetch_add_explicit(&number, 1, memory_order_relaxed));
        if (len < 0 || (size_t)len >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
}

/* The rename is durable only once the folder is on disk. */
static diloco_status sync_parent(const char *path)
{
    char parent[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    if (slash) { /* the path was short enough to open, so it fits */
        size_t len = dl_size_max((size_t)(slash - path), 1);
        memcpy(parent, path, len);
        parent[len] = 0;
    }
    return dl_dir_sync(parent);
}

/* The order gives the promise: bytes on disk, then the name, then the folder. A crash at any point
 * leaves the old file or the new one under the name. */
diloco_status dl_file_write_beside(const char *path, dl_file_fill_fn fill, void *context)
{
    char sibling[PATH_MAX];
    int fd = open_sibling(sibling, sizeof sibling, path);
    if (fd < 0) return dl_fail_errno(errno, "create a file beside", path);

    diloco_status status = fill(context, fd, path);
    if (!status && fsync(fd)) status = dl_fail_errno(errno, "sync", path);
    if (close(fd) && !status) status = dl_fail_errno(errno, "close", path);
    if (!status && rename(sibling, path)) status = dl_fail_errno(errno, "rename into", path);
    if (status) {
        unlink(sibling);
        return status;
    }
    return sync_parent(path);
}

typedef struct spans {
    const dl_span *at;
    size_t n;
} spans;

static diloco_status fill_with_spans(void *context, int fd, const char *name)
{
    const spans *all = context;
    return dl_fd_write(fd, all->at, all->n, name);
}

diloco_status dl_file_write(const char *path, const dl_span *at, size_t n)
{
    return dl_file_write_beside(path, fill_with_spans, &(spans){at, n});
}

/* The name is removed before the space is taken, so a process that is killed leaves nothing. */
diloco_status dl_file_nameless(int *fd, const char *folder, const char *what, size_t size)
{
    char path[PATH_MAX], task[64];
    const int len = snprintf(path, sizeof path, "%s/%s.XXXXXX", folder, what);
    snprintf(task, sizeof task, "create a file for the %s in", what);
    if (len < 0 || (size_t)len >= sizeof path) return dl_fail_errno(ENAMETOOLONG, task, folder);
    *fd = mkostemp(path, O_CLOEXEC);
    if (*fd < 0) return dl_fail_errno(errno, task, folder);
    snprintf(task, sizeof task, "take space for the %s in", what);
    const int error = unlink(path) ? errno : posix_fallocate(*fd, 0, (off_t)size);
    if (!error) return DILOCO_OK;
    close(*fd);
    return dl_fail_errno(error, task, folder);
}

/* ---- folders */

/* A folder that exists is fine, also if another process has just made it. */
static diloco_status make_one(const char *path)
{
    if (mkdir(path, 0777) == 0) return DILOCO_OK;
    int error = errno; /* on what is there already it may be EEXIST, EROFS, EACCES, … */
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return DILOCO_OK;
    return dl_fail_errno(error, "make folder", path);
}

/* Makes each folder of the path in turn, from the top. */
diloco_status dl_dir_make(const char *path)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof part)
        return dl_fail_errno(len ? ENAMETOOLONG : ENOENT, "make folder", path);
    memcpy(part, path, len + 1);
    for (size_t i = 1; i < len; i++) {
        if (part[i] != '/' || part[i - 1] == '/') continue;
        part[i] = 0;
        DL_TRY(make_one(part));
        part[i] = '/';
    }
    return make_one(part);
}

/* A folder that cannot be synced, such as on some network file systems, is fine. */
diloco_status dl_dir_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return dl_fail_errno(errno, "open", path);
    int error = fsync(fd) ? errno : 0;
    close(fd);
    if (error && error != EINVAL) return dl_fail_errno(error, "sync", path);
    return DILOCO_OK; /* EINVAL: this file system has nothing to sync in folders */
}
