/* file_list.c - the keys under a folder in ascending byte order, without allocating.
 *
 * Folder by folder: all names of one folder are read (getdents64 into the handle's piece
 * buffer), made a heap, and walked in order, going into folders on the way. A folder's name is kept
 * with its '/', which makes the order of names the order of whole keys ("a-b" < "a/x" < "a0").
 * A page ends the walk early, so it costs no sort of all names of a large folder. Names and their
 * order are in two stacks of the handle that grow to their size once; a folder's part of them is
 * taken off when it was walked. Files that no key can name (hidden, odd letters, links) are not
 * objects and not shown. */
#include "store/file_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct walk {
    dl_file_store *fs;
    const char *after; /* "": from the first */
    dl_found_fn found;
    void *context;
    dl_time until;
    char key[DL_KEY_MAX + 2]; /* the folder in flight, then each of its names */
} walk;

/* ---- names */

/* Returns the i-th name in the order of the sort. The stacks may move when they grow, so names are
 * addressed by offset. */
static const char *name_at(const dl_file_store *fs, size_t i)
{
    return (const char *)fs->names.data + ((const uint32_t *)(const void *)fs->order.data)[i];
}

static size_t n_names(const dl_file_store *fs)
{
    return fs->order.len / sizeof(uint32_t);
}

/* Lets the entry i, below which are heaps with the least name on top, sink to its place. */
static void sift(const dl_file_store *fs, size_t first, size_t i, size_t n)
{
    uint32_t *order = (uint32_t *)(void *)fs->order.data + first;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && strcmp(name_at(fs, first + child), name_at(fs, first + child + 1)) > 0)
            child++;
        if (strcmp(name_at(fs, first + i), name_at(fs, first + child)) <= 0) return;
        uint32_t swap = order[i];
        order[i] = order[child];
        order[child] = swap;
    }
}

static void make_heap(const dl_file_store *fs, size_t first)
{
    const size_t n = n_names(fs) - first;
    for (size_t i = n / 2; i-- > 0;)
        sift(fs, first, i, n);
}

/* Copies the least name from `first` on to `out`, and takes it off. */
static void pop(dl_file_store *fs, size_t first, char *out)
{
    const size_t n = n_names(fs) - first - 1;
    uint32_t *order = (uint32_t *)(void *)fs->order.data + first;
    strcpy(out, name_at(fs, first));
    order[0] = order[n];
    fs->order.len -= sizeof *order;
    sift(fs, first, 0, n);
}

/* Adds a name to both stacks. A folder gets its '/' here, which decides its place in the order. */
static diloco_status push(dl_file_store *fs, const char *name, bool folder)
{
    uint32_t at = (uint32_t)fs->names.len; /* the buffer's maximum is below 2^32 */
    DL_TRY(dl_buf_add(&fs->order, &at, sizeof at));
    DL_TRY(dl_buf_add(&fs->names, name, strlen(name)));
    return dl_buf_add(&fs->names, folder ? "/" : "", folder ? 2 : 1); /* with the zero byte */
}

/* 'd', 'f', or 0 for what is neither folder nor object (or gone). */
static char type_of(int dir, const struct dirent64 *d)
{
    struct stat st;
    if (d->d_type == DT_DIR) return 'd';
    if (d->d_type == DT_REG) return 'f';
    if (d->d_type != DT_UNKNOWN || fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW)) return 0;
    return S_ISDIR(st.st_mode) ? 'd' : S_ISREG(st.st_mode) ? 'f' : 0;
}

/* Returns whether a name in a folder, and all below it, is at or before `after`: the rest of a key
 * there. */
static bool is_past(const char *name, bool folder, const char *after)
{
    const size_t len = strlen(name);
    const int order = strncmp(name, after, len);
    if (order) return order < 0;
    return !folder || (unsigned char)after[len] > '/';
}

/* Pushes the names in a folder that can be (part of) a key, and come after `after`. Names are
 * checked before they are kept, so nothing else is sorted. */
static diloco_status read_names(walk *w, int dir, size_t key_len, const char *after)
{
    dl_file_store *fs = w->fs;
    for (;;) {
        DL_TRY(dl_store_check(fs->aborted, w->until, w->key));
        /* glibc has a function for this since 2.30 only */
        ssize_t n = syscall(SYS_getdents64, dir, fs->piece, (size_t)DL_STORE_PIECE);
        if (n == 0 || (n < 0 && errno == ENOENT)) return DILOCO_OK; /* ENOENT: removed meanwhile */
        if (n < 0) return dl_file_store_fail(fs, errno, "list", w->key);
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *d = (const struct dirent64 *)(const void *)(fs->piece + at);
            at += d->d_reclen;
            if (!dl_store_key_ok(d->d_name) || key_len + strlen(d->d_name) > DL_KEY_MAX) continue;
            char type = type_of(dir, d);
            if (type && !is_past(d->d_name, type == 'd', after))
                DL_TRY(push(fs, d->d_name, type == 'd'));
        }
    }
}

/* ---- the walk */

static diloco_status walk_folder(walk *w, int dir, size_t key_len);

/* The folder is opened below its parent without following links, so the walk never leaves the
 * root. */
static diloco_status walk_into(walk *w, int dir, size_t key_len)
{
    const char *name = w->key + key_len - 1;
    while (name > w->key && name[-1] != '/')
        name--;
    int inner = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0 && errno == ENOENT) return DILOCO_OK; /* emptied and removed meanwhile */
    if (inner < 0) return dl_file_store_fail(w->fs, errno, "list", w->key);
    diloco_status status = walk_folder(w, inner, key_len);
    close(inner);
    return status;
}

/* An object that was deleted since its folder was read is not shown. Its length is read only now,
 * so the stacks have names alone. */
static diloco_status visit(walk *w, int dir, size_t parent_len)
{
    struct stat st;
    size_t key_len = strlen(w->key);
    if (w->key[key_len - 1] == '/') return walk_into(w, dir, key_len);
    if (fstatat(dir, w->key + parent_len, &st, AT_SYMLINK_NOFOLLOW)) {
        if (errno == ENOENT) return DILOCO_OK; /* deleted meanwhile */
        return dl_file_store_fail(w->fs, errno, "list", w->key);
    }
    DL_TRY(dl_store_check(w->fs->aborted, w->until, w->key));
    return w->found(w->context, w->key, (size_t)st.st_size);
}

/* w->key holds the folder's own part, key_len bytes, and does so again at the end. The recursion is
 * as deep as a key has components. Both stacks are cut back at the end, also after an error. */
static diloco_status walk_folder(walk *w, int dir, size_t key_len)
{
    dl_file_store *fs = w->fs;
    size_t first = n_names(fs), names_len = fs->names.len;
    const int order = strncmp(w->after, w->key, key_len);
    if (order > 0) return DILOCO_OK;
    diloco_status status = read_names(w, dir, key_len, order ? "" : w->after + key_len);
    if (!status) make_heap(fs, first);
    while (!status && n_names(fs) > first) {
        pop(fs, first, w->key + key_len);
        status = visit(w, dir, key_len);
    }
    w->key[key_len] = '\0';
    fs->names.len = names_len;
    fs->order.len = first * sizeof(uint32_t);
    return status;
}

/* A folder that does not exist has no keys, which is no error. */
diloco_status dl_file_store_list(void *self, const char *prefix, const char *after,
                                 dl_found_fn found, void *context, dl_time until)
{
    dl_file_store *fs = self;
    walk w = {fs, after ? after : "", found, context, until, ""};
    int dir;
    diloco_status status = dl_file_store_folder(fs, prefix, false, &dir, NULL);
    if (status) return status == DILOCO_ENOENT ? DILOCO_OK : status;
    strcpy(w.key, prefix);
    status = walk_folder(&w, dir, strlen(prefix));
    close(dir);
    return status;
}
