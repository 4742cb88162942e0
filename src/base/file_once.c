/* file_once.c - a large file, written past the system's cache (O_DIRECT).
 *
 *     this thread    look at 256 KB, copy them to a piece  | ... the next piece
 *     writer         the piece before                      | this piece
 *
 * So the file takes the time of the processor or that of the disk, and not both. The first piece is
 * written last: a digest of all bytes may be in it. */
#include "base/file.h"

#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory, length and place of a direct write are multiples of a disk's block. */
enum { BLOCK = 4096, PIECE = 2 << 20, DIRECT_MIN = 16 << 20, N_PIECES = 3 };

typedef struct file_once {
    const dl_span *spans;
    size_t n_spans;
    const dl_file_viewer *viewer; /* or NULL */
    int fd;

    unsigned char *first; /* [PIECE] the file's first piece */
    unsigned char *piece; /* [PIECE] the one that is being filled */
    size_t place, len;    /* of the piece in the file, and its bytes so far */
    unsigned char *other; /* [PIECE] the writer's, or free */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool writes, over; /* `other` is to be written; no more pieces come */
    size_t other_place, other_len;
    int error; /* the first errno of a write */
} file_once;

/* ---- the writer ---------------------------------------------------------------------------- */

/* Gives 0 or an errno. A short write continues where it ended. */
static int write_at(int fd, const unsigned char *from, size_t len, size_t place)
{
    while (len) {
        const ssize_t n = pwrite(fd, from, len, (off_t)place);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        from += n;
        place += (size_t)n;
        len -= (size_t)n;
        if (len && (size_t)n % BLOCK && fcntl(fd, F_SETFL, 0)) return errno;
    }
    return 0;
}

/* A piece that a file system or a disk refuses to take directly goes through the cache, and so do
 * all later ones. */
static int write_piece(int fd, const unsigned char *piece, size_t len, size_t place)
{
    if (len % BLOCK && fcntl(fd, F_SETFL, 0)) return errno;
    const int error = write_at(fd, piece, len, place);
    if (error != EINVAL) return error;
    return fcntl(fd, F_SETFL, 0) ? errno : write_at(fd, piece, len, place);
}

static void *write_pieces(void *context)
{
    file_once *f = context;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->writes && !f->over)
            pthread_cond_wait(&f->changed, &f->lock);
        if (!f->writes) break;
        pthread_mutex_unlock(&f->lock);
        const int error = write_piece(f->fd, f->other, f->other_len, f->other_place);
        pthread_mutex_lock(&f->lock);
        if (!f->error) f->error = error;
        f->writes = false;
        pthread_cond_signal(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Gives the writer the piece, once it has written the one before. Returns false after an error. */
static bool hand_over(file_once *f)
{
    pthread_mutex_lock(&f->lock);
    while (f->writes)
        pthread_cond_wait(&f->changed, &f->lock);
    const bool ok = !f->error;
    if (ok) {
        unsigned char *filled = f->piece;
        f->piece = f->other;
        f->other = filled;
        f->other_place = f->place;
        f->other_len = f->len;
        f->writes = true;
        pthread_cond_signal(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return ok;
}

static void end_writer(file_once *f, pthread_t writer)
{
    pthread_mutex_lock(&f->lock);
    f->over = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(writer, NULL);
}

/* ---- filling pieces ------------------------------------------------------------------------ */

/* Returns false after an error of the writer. */
static bool add(file_once *f, const unsigned char *from, size_t len)
{
    for (size_t n; len; len -= n, from += n) {
        n = dl_size_min(len, PIECE - f->len);
        memcpy((f->place ? f->piece : f->first) + f->len, from, n);
        f->len += n;
        if (f->len < PIECE) continue;
        if (f->place && !hand_over(f)) return false;
        f->place += PIECE;
        f->len = 0;
    }
    return true;
}

static diloco_status see(const file_once *f, size_t span, size_t from, size_t len)
{
    if (!f->viewer || !f->viewer->see) return DILOCO_OK;
    return f->viewer->see(f->viewer->context, span, from, len);
}

static void see_end(const file_once *f)
{
    if (f->viewer && f->viewer->end) f->viewer->end(f->viewer->context);
}

/* `adds`: also to pieces, from the processor's cache. */
static diloco_status see_all(file_once *f, bool adds)
{
    for (size_t i = 0; i < f->n_spans; i++)
        for (size_t at = 0, n; at < f->spans[i].len; at += n) {
            n = dl_size_min(f->spans[i].len - at, DL_FILE_SEEN);
            DL_TRY(see(f, i, at, n));
            if (adds && !add(f, (const unsigned char *)f->spans[i].data + at, n)) return DILOCO_OK;
        }
    see_end(f);
    return DILOCO_OK;
}

/* ---- the file ------------------------------------------------------------------------------ */

static void end_directly(file_once *f)
{
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    munmap(f->first, N_PIECES * PIECE);
}

/* Returns false if the file is small, or if the system refuses pieces, a direct write or a thread.
 * The pieces are no memory of malloc: a large block that is freed makes it keep more for later. */
static bool begin_directly(file_once *f, pthread_t *writer)
{
    if (dl_spans_len(f->spans, f->n_spans) < DIRECT_MIN) return false;
    void *pieces =
        mmap(NULL, N_PIECES * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pieces == MAP_FAILED) return false;
    f->first = pieces;
    f->piece = f->first + PIECE;
    f->other = f->piece + PIECE;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    if (!fcntl(f->fd, F_SETFL, O_DIRECT) && !dl_thread_start(writer, write_pieces, f)) return true;
    (void)fcntl(f->fd, F_SETFL, 0);
    end_directly(f);
    return false;
}

static diloco_status write_directly(file_once *f, pthread_t writer, const char *name)
{
    const diloco_status status = see_all(f, true);
    if (!status && f->len) (void)!hand_over(f);
    end_writer(f, writer);
    if (status) return status;
    const size_t may_differ = dl_size_min(f->spans[0].len, DL_FILE_SEEN);
    if (may_differ) memcpy(f->first, f->spans[0].data, may_differ);
    if (!f->error) f->error = write_piece(f->fd, f->first, PIECE, 0);
    return f->error ? dl_fail_errno(f->error, "write", name) : DILOCO_OK;
}

static diloco_status fill(void *context, int fd, const char *name)
{
    file_once *f = context;
    pthread_t writer;
    f->fd = fd;
    if (!begin_directly(f, &writer)) {
        DL_TRY(see_all(f, false));
        return dl_fd_write(fd, f->spans, f->n_spans, name);
    }
    const diloco_status status = write_directly(f, writer, name);
    end_directly(f);
    return status;
}

/* ---- the replaced file --------------------------------------------------------------------- */

static void *close_replaced(void *context)
{
    const dl_file_freeing *f = context;
    close(f->fd);
    return NULL;
}

void dl_file_freed(dl_file_freeing *f)
{
    if (f->runs) pthread_join(f->thread, NULL);
    f->runs = false;
}

/* A file that is open keeps its blocks when a rename takes its name. */
diloco_status dl_file_write_once(const char *path, const dl_span *spans, size_t n_spans,
                                 const dl_file_viewer *viewer, dl_file_freeing *freeing)
{
    file_once f = {.spans = spans, .n_spans = n_spans, .viewer = viewer};
    const bool large = dl_spans_len(spans, n_spans) >= DIRECT_MIN;
    if (freeing) dl_file_freed(freeing);
    const int replaced = freeing && large ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    const diloco_status status = dl_file_write_beside(path, fill, &f);
    if (replaced < 0) return status;
    freeing->fd = replaced;
    freeing->runs = !dl_thread_start(&freeing->thread, close_replaced, freeing);
    if (!freeing->runs) close(replaced);
    return status;
}
