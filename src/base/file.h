/* file.h - whole files: read with a limit, written so that a reader sees the old file
 * or the whole new one, and paths made safe. */
#ifndef DL_BASE_FILE_H
#define DL_BASE_FILE_H

#include "base/buf.h"

#include <pthread.h>

typedef struct dl_span {
    const void *data; /* borrowed */
    size_t len;
} dl_span;
size_t dl_spans_len(const dl_span *spans, size_t n); /* of all together */
/* Write the spans of bytes skip to skip + len, or up to their end, to out. Returns their number. */
size_t dl_spans_cut(dl_span *out, const dl_span *spans, size_t n, size_t skip, size_t len);

/* DILOCO_ENOENT, DILOCO_EIO, DILOCO_EPROTO (longer than buf->max). Appends. */
DL_MUST_CHECK diloco_status dl_file_read(dl_buf *out, const char *path);

/* Each line of such a text, but for empty ones and those that begin with '#', without what is blank
 * at its end; it continues in a line break. The text is wiped afterwards: it may be secret. An
 * error of fn ends it, with "<path>:<line>" before its text. */
typedef diloco_status (*dl_line_fn)(void *context, const char *line, size_t len);
DL_MUST_CHECK diloco_status dl_file_each_line(const char *path, size_t most, dl_line_fn fn,
                                              void *context);

/* Write a sibling (<path>.<pid>-<n>.tmp, which a process killed meanwhile leaves there),
 * fsync it, rename it into place, fsync the folder. Calls open, write, rename and nothing
 * that allocates. DILOCO_ENOENT (no such folder), DILOCO_EIO, DILOCO_EFULL: the old file
 * is as it was and the sibling is gone. */
DL_MUST_CHECK diloco_status dl_file_write(const char *path, const dl_span *spans, size_t n_spans);

/* The same for bytes that `fill` writes to the descriptor. `name` is for its errors. */
typedef diloco_status (*dl_file_fill_fn)(void *context, int fd, const char *name);
DL_MUST_CHECK diloco_status dl_file_write_beside(const char *path, dl_file_fill_fn fill,
                                                 void *context);

/* Functions that look at the bytes of a file while they are written; either may be NULL.
 *   see  gets all bytes, span by span in order, at most DL_FILE_SEEN of them at a time. An error of
 *        it ends the write.
 *   end  follows the last of them. It may change the first DL_FILE_SEEN bytes of the first span, as
 *        for a digest: they are written last. */
enum { DL_FILE_SEEN = 1 << 18 };
typedef struct dl_file_viewer {
    diloco_status (*see)(void *context, size_t span, size_t from, size_t len);
    void (*end)(void *context);
    void *context;
} dl_file_viewer;

/* Does the same for a large file that is seldom read again, such as a checkpoint (file_once.c). One
 * of 16 MB or more bypasses the system's cache where the file system allows that, which takes a
 * fraction of the processor time and no memory of the cache. One thread copies the bytes to pieces,
 * and another writes these. Allocates up to 6 MB and starts a thread; if that fails, it writes as
 * dl_file_write does. `viewer` may be NULL.
 *
 * The system frees the blocks of the replaced file, which takes about a second for 4 GB. With
 * `freeing` this is done beside the caller: zero it before the first write, and give it to the next
 * ones of that file. A write waits until the blocks of the one before are free. NULL: the call
 * returns when they are. */
typedef struct dl_file_freeing {
    pthread_t thread;
    int fd; /* of the replaced file */
    bool runs;
} dl_file_freeing;

DL_MUST_CHECK diloco_status dl_file_write_once(const char *path, const dl_span *spans,
                                               size_t n_spans, const dl_file_viewer *viewer,
                                               dl_file_freeing *freeing);
void dl_file_freed(dl_file_freeing *freeing); /* waits for the thread, if one runs */

/* Write all spans to a descriptor, through short writes and EINTR. */
DL_MUST_CHECK diloco_status dl_fd_write(int fd, const dl_span *spans, size_t n_spans,
                                        const char *name_for_errors);

DL_MUST_CHECK diloco_status dl_dir_make(const char *path); /* and its parents; there already: OK */
/* fsync the folder itself; OK where a file system has nothing to sync in folders. */
DL_MUST_CHECK diloco_status dl_dir_sync(const char *path);
bool dl_file_exists(const char *path);

/* A file without a name in that folder, with its space taken: gone once it is closed and unmapped.
 * `what` for errors: "spool". DILOCO_EFULL, DILOCO_EIO, DILOCO_ENOENT. */
DL_MUST_CHECK diloco_status dl_file_nameless(int *fd, const char *folder, const char *what,
                                             size_t size);

/* Let go of the pages of a shared mapping: its bytes stay in the file, and come back when they are
 * touched. Only for the mapping of a file: other bytes would be lost. */
void dl_map_let_go(void *base, size_t len);

/* A whole file mapped for reading. data is NULL for an empty file. */
typedef struct dl_map {
    const unsigned char *data;
    size_t len;
} dl_map;
DL_MUST_CHECK diloco_status dl_map_open(dl_map *out, const char *path);
void dl_map_close(dl_map *map); /* zeroed is fine */

/* DILOCO_EFULL for ENOSPC and EDQUOT, DILOCO_ENOENT for ENOENT, else DILOCO_EIO; worded
 * "<what> <path>: <strerror>". */
diloco_status dl_fail_errno(int error, const char *what, const char *path);

#endif
