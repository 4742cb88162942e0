/* fetch_pool.c - see fetch_pool.h.
 *
 * Each block has a state:
 *
 *     IDLE --want--> AHEAD or NOW --a thread takes it--> FLYING --> IDLE, and in the file
 *       \____ a thread that fills takes it ____________> FILLING __/
 *
 * Two rings have the blocks of the states AHEAD and NOW. A block that is wanted now while it is
 * AHEAD is in both rings; the second one finds it taken, and passes it over. One that is wanted now
 * while it is FILLING is read by a second thread, since the first one reads many blocks, and may
 * have begun long before it. At most half of the threads fill. Rings have a fixed
 * size, so that a training step allocates nothing. A block that does not fit is not queued, and
 * dl_fetch_file_await queues the block that it waits for again. */
#include "fetch/fetch_pool.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Threads; places of a ring; blocks of a request of the thread that fills, which are 8 MiB. */
enum { MOST_THREADS = 16, RING = 4096, RUN = 32 };

/* Time between two looks at the lock, and two reports; between two looks of a reader at `stop`. */
#define LOOK         DL_SECOND
#define LOOK_AT_STOP (50 * DL_MILLISECOND)
/* After it an unreachable store is asked again for blocks that no reader waits for. */
#define PAUSE (5 * DL_SECOND)

enum { IDLE, AHEAD, NOW, FLYING, FILLING };

struct dl_fetch_file {
    dl_fetch_pool *pool;
    char *key; /* owned */
    dl_arriving *a;
    unsigned char *states; /* owned; [blocks] */
    bool *checked;         /* owned; [blocks]: it fits its digest, so a reader may have it */
    size_t low;            /* all blocks before it have arrived */
    bool finished;
};

typedef struct place {
    dl_fetch_file *file;
    size_t block;
} place;

typedef struct ring {
    place places[RING];
    size_t first, n;
} ring;

/* The next work of a thread: it reads `n` blocks, or finishes a file. */
typedef struct job {
    dl_fetch_file *file;
    size_t block, n;
    bool now, fills, finishes;
} job;

typedef struct worker {
    dl_fetch_pool *pool;
    pthread_t thread;
    void *handle; /* set and cleared under the lock; NULL: not open */
    /* of the read in progress; used by the thread alone */
    dl_fetch_file *file;
    size_t at, have; /* the block that arrives, and its bytes so far */
    size_t end;      /* the block after the last one that was asked for */
    unsigned char *buffer;
} worker;

struct dl_fetch_pool {
    dl_fetch_from from;
    dl_fetch_options options;
    char *lock_path; /* owned; NULL: does not fill */
    dl_fetch_file **files;
    size_t n_files, cap;

    pthread_mutex_t lock; /* guards all below, and the files' states, low and finished */
    pthread_cond_t moved;
    ring now, ahead;
    worker workers[MOST_THREADS];
    int n_workers, n_filling;
    bool started, stopping, finishing;
    int fill_fd;       /* the lock's descriptor; -1: another process fills */
    dl_time fill_from; /* not before this time; also when the lock is tried again */
    dl_time reported;  /* when the progress was */
    bool reporting;    /* a thread reports it */
    bool must_report;  /* the end */
    diloco_status status;
    char error[512];
};

/* ---- making */

diloco_status dl_fetch_pool_create(dl_fetch_pool **out, const dl_fetch_from *from,
                                   const dl_fetch_options *options)
{
    dl_fetch_pool *pool = *out = calloc(1, sizeof *pool);
    if (!pool) return dl_fail(DILOCO_ENOMEM, "out of memory for the data that arrives");
    pool->from = *from;
    pool->options = *options;
    pool->fill_fd = -1;
    pthread_mutex_init(&pool->lock, NULL);
    dl_cond_init(&pool->moved);
    if (options->lock_path) pool->lock_path = strdup(options->lock_path);
    if (pool->lock_path || !options->lock_path) return DILOCO_OK;
    dl_fetch_pool_destroy(pool);
    *out = NULL;
    return dl_fail(DILOCO_ENOMEM, "out of memory for a path");
}

static void free_file(dl_fetch_file *file)
{
    if (!file) return;
    dl_arriving_close(file->a);
    free(file->states);
    free(file->checked);
    free(file->key);
    free(file);
}

static diloco_status no_memory(void)
{
    return dl_fail(DILOCO_ENOMEM, "out of memory for the list of arriving files");
}

diloco_status dl_fetch_pool_add(dl_fetch_pool *pool, const char *key, dl_arriving *a)
{
    DL_ASSERT(!pool->started);
    dl_fetch_file *file = calloc(1, sizeof *file);
    if (file) {
        *file = (dl_fetch_file){.pool = pool, .a = a, .key = strdup(key)};
        file->states = calloc(dl_arriving_blocks(a), 1);
        file->checked = calloc(dl_arriving_blocks(a), sizeof *file->checked);
    } else {
        dl_arriving_close(a);
    }
    if (pool->n_files == pool->cap) {
        const size_t cap = pool->cap ? 2 * pool->cap : 16;
        dl_fetch_file **files = reallocarray(pool->files, cap, sizeof *files);
        if (files) pool->files = files, pool->cap = cap;
    }
    if (!file || !file->key || !file->states || !file->checked || pool->n_files == pool->cap) {
        free_file(file);
        return no_memory();
    }
    pool->files[pool->n_files++] = file;
    return DILOCO_OK;
}

size_t dl_fetch_pool_files(const dl_fetch_pool *pool)
{
    return pool->n_files;
}

dl_fetch_file *dl_fetch_pool_file(dl_fetch_pool *pool, size_t i)
{
    return pool->files[i];
}

const dl_map *dl_fetch_file_map(const dl_fetch_file *file)
{
    return dl_arriving_map(file->a);
}

/* ---- the end of all */

/* Keeps the first error. The caller holds the lock, and the error's text is this thread's. */
static void fail_pool(dl_fetch_pool *pool, diloco_status status)
{
    if (pool->status || pool->stopping) return;
    pool->status = status;
    snprintf(pool->error, sizeof pool->error, "%s", diloco_error_text());
}

void dl_fetch_pool_destroy(dl_fetch_pool *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    for (int i = 0; i < pool->n_workers; i++)
        if (pool->workers[i].handle) pool->from.abort(pool->workers[i].handle);
    pthread_cond_broadcast(&pool->moved);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_workers; i++)
        pthread_join(pool->workers[i].thread, NULL);
    for (size_t i = 0; i < pool->n_files; i++)
        free_file(pool->files[i]);
    if (pool->fill_fd >= 0) close(pool->fill_fd);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->moved);
    free(pool->lock_path);
    free(pool->files);
    free(pool);
}

/* ---- choosing. The caller holds the lock. */

static void push(ring *r, dl_fetch_file *file, size_t block, unsigned char state)
{
    if (r->n == RING) return;
    r->places[(r->first + r->n++) % RING] = (place){file, block};
    file->states[block] = state;
}

/* Takes the first block of a ring that has not arrived and that no thread reads. */
static bool pop(job *out, ring *r)
{
    while (r->n > 0) {
        const place p = r->places[r->first];
        r->first = (r->first + 1) % RING;
        r->n--;
        unsigned char *state = &p.file->states[p.block];
        const bool now = *state == NOW;
        if (*state != AHEAD && *state != NOW) continue;
        *state = IDLE;
        if (dl_arriving_has(p.file->a, p.block)) continue;
        *state = FLYING;
        *out = (job){.file = p.file, .block = p.block, .n = 1, .now = now};
        return true;
    }
    return false;
}

/* Returns true if this process fills. The lock of a process that was killed is free. */
static bool may_fill(dl_fetch_pool *pool)
{
    struct flock whole = {.l_type = F_WRLCK};
    const dl_time now = dl_clock_now();
    if (!pool->lock_path || now < pool->fill_from) return false;
    if (pool->fill_fd >= 0) return true;
    pool->fill_fd = open(pool->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (pool->fill_fd >= 0 && !fcntl(pool->fill_fd, F_OFD_SETLK, &whole)) return true;
    if (pool->fill_fd >= 0) close(pool->fill_fd);
    pool->fill_fd = -1;
    pool->fill_from = now + LOOK;
    return false;
}

static bool is_free(const dl_fetch_file *file, size_t block)
{
    return (file->states[block] == IDLE || file->states[block] == AHEAD) &&
           !dl_arriving_has(file->a, block);
}

/* Takes the next blocks of a file that no reader has asked for, or its end. */
static bool take_of(job *out, dl_fetch_file *file)
{
    const size_t n = dl_arriving_blocks(file->a);
    while (file->low < n && dl_arriving_has(file->a, file->low))
        file->low++;
    if (file->low == n) {
        if (file->pool->finishing) return false;
        file->pool->finishing = true;
        *out = (job){.file = file, .fills = true, .finishes = true};
        return true;
    }
    size_t begin = file->low, end;
    while (begin < n && !is_free(file, begin))
        begin++;
    for (end = begin; end < n && end - begin < RUN && is_free(file, end); end++)
        file->states[end] = FILLING;
    *out = (job){.file = file, .block = begin, .n = end - begin, .fills = true};
    return begin < end;
}

static bool fill(job *out, dl_fetch_pool *pool)
{
    if ((pool->n_filling > 0 && pool->n_filling >= pool->n_workers / 2) || !may_fill(pool))
        return false;
    for (size_t i = 0; i < pool->n_files; i++)
        if (!pool->files[i]->finished && take_of(out, pool->files[i])) {
            pool->n_filling++;
            return true;
        }
    return false;
}

static bool choose(job *out, dl_fetch_pool *pool)
{
    return pop(out, &pool->now) || pop(out, &pool->ahead) || fill(out, pool);
}

/* ---- reading */

static diloco_status changed(const worker *w)
{
    return dl_fail(DILOCO_EPROTO,
                   "%s has changed while it was fetched: start the command again, which fetches "
                   "the new one",
                   w->file->key);
}

static diloco_status on_begin(void *context, size_t len)
{
    const worker *w = context;
    return len == dl_arriving_map(w->file->a)->len ? DILOCO_OK : changed(w);
}

static diloco_status on_piece(void *context, const void *data, size_t len)
{
    worker *w = context;
    while (len > 0) {
        if (w->at == w->end)
            return dl_fail(DILOCO_EPROTO, "%s: more bytes came than were asked for", w->file->key);
        const size_t whole = dl_arriving_block_len(w->file->a, w->at);
        const size_t some = dl_size_min(len, whole - w->have);
        memcpy(w->buffer + w->have, data, some);
        w->have += some;
        data = (const char *)data + some;
        len -= some;
        if (w->have < whole) continue;
        DL_TRY(dl_arriving_put(w->file->a, w->at, w->buffer));
        w->have = 0;
        w->at++;
    }
    return DILOCO_OK;
}

static diloco_status open_handle(worker *w)
{
    void *handle;
    DL_TRY(w->pool->from.open(w->pool->from.context, &handle));
    pthread_mutex_lock(&w->pool->lock);
    w->handle = handle;
    if (w->pool->stopping) w->pool->from.abort(handle);
    pthread_mutex_unlock(&w->pool->lock);
    return DILOCO_OK;
}

/* The store's EPROTO means that the object is another one, or that its answers cannot be used; the
 * file is fetched again then. */
static diloco_status read_blocks(worker *w, const job *j)
{
    const dl_fetch_from *from = &w->pool->from;
    const size_t end = (j->block + j->n) * DL_ARRIVING_BLOCK;
    dl_store_part part = {.begin = j->block * DL_ARRIVING_BLOCK,
                          .end = dl_size_min(end, dl_arriving_map(j->file->a)->len)};
    const dl_sink sink = {.context = w, .begin = on_begin, .piece = on_piece};
    if (!w->handle) DL_TRY(open_handle(w));
    snprintf(part.version, sizeof part.version, "%s", dl_arriving_version(j->file->a));
    w->file = j->file;
    w->at = j->block;
    w->end = j->block + j->n;
    w->have = 0;
    diloco_status status = from->read(w->handle, j->file->key, &part, sink);
    if (!status && (w->at != j->block + j->n || w->have))
        status = dl_fail(DILOCO_EPROTO, "%s: a part of it ended early", j->file->key);
    if (status == DILOCO_EPROTO) dl_arriving_spoil(j->file->a);
    return status;
}

/* The first try may have failed because credentials had expired, which are then read again. */
static diloco_status read_job(worker *w, const job *j)
{
    const diloco_status status = read_blocks(w, j);
    return status == DILOCO_EUNREACHABLE ? read_blocks(w, j) : status;
}

/* ---- the threads */

/* The caller holds the lock. It is released during the caller's report, which may take long. */
static void report(dl_fetch_pool *pool, bool must)
{
    pool->must_report |= must;
    if (!pool->from.progress || pool->fill_fd < 0 || pool->reporting) return;
    if (!pool->must_report && dl_clock_now() - pool->reported < LOOK) return;
    pool->reporting = true;
    do {
        size_t bytes = 0, of = 0;
        pool->must_report = false;
        for (size_t i = 0; i < pool->n_files; i++) {
            bytes += dl_arriving_bytes(pool->files[i]->a);
            of += dl_arriving_map(pool->files[i]->a)->len;
        }
        pthread_mutex_unlock(&pool->lock);
        pool->from.progress(pool->from.context, bytes, of);
        pthread_mutex_lock(&pool->lock);
        pool->reported = dl_clock_now();
    } while (pool->must_report);
    pool->reporting = false;
}

/* Ends a job. A store that cannot be reached is an error only if a reader waits for the block. */
static void end_job(dl_fetch_pool *pool, const job *j, diloco_status status)
{
    const unsigned char state = j->fills ? FILLING : FLYING;
    for (size_t i = 0; i < j->n; i++)
        if (j->file->states[j->block + i] == state) j->file->states[j->block + i] = IDLE;
    pool->n_filling -= j->fills;
    if (j->finishes) {
        pool->finishing = false;
        j->file->finished = true;
    }
    if (status == DILOCO_EUNREACHABLE && !j->now)
        pool->fill_from = dl_clock_now() + PAUSE;
    else if (status)
        fail_pool(pool, status);
    bool all = true;
    for (size_t i = 0; j->finishes && i < pool->n_files; i++)
        all = all && pool->files[i]->finished;
    report(pool, j->finishes && all);
    pthread_cond_broadcast(&pool->moved);
}

static void *work(void *user)
{
    worker *w = user;
    dl_fetch_pool *pool = w->pool;
    job j;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stopping && !pool->status) {
        if (!choose(&j, pool)) {
            const dl_time until = dl_clock_now() + LOOK;
            const struct timespec at = {.tv_sec = until / DL_SECOND, .tv_nsec = until % DL_SECOND};
            pthread_cond_timedwait(&pool->moved, &pool->lock, &at);
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        const diloco_status status =
            !j.finishes         ? read_job(w, &j)
            : pool->from.finish ? pool->from.finish(pool->from.context, j.file->key, j.file->a)
                                : DILOCO_OK;
        pthread_mutex_lock(&pool->lock);
        end_job(pool, &j, status);
    }
    void *handle = w->handle;
    w->handle = NULL;
    pthread_mutex_unlock(&pool->lock);
    if (handle) pool->from.close(handle);
    free(w->buffer);
    return NULL;
}

/* Starts the threads with the first request. If the system refuses some, the others do the work. */
static void start(dl_fetch_pool *pool)
{
    const int n = pool->options.threads < MOST_THREADS ? pool->options.threads : MOST_THREADS;
    if (pool->started) return;
    pool->started = true;
    for (int i = 0; i < n; i++) {
        worker *w = &pool->workers[pool->n_workers];
        *w = (worker){.pool = pool, .buffer = malloc(DL_ARRIVING_BLOCK)};
        if (w->buffer && dl_thread_start(&w->thread, work, w) == 0)
            pool->n_workers++;
        else
            free(w->buffer);
    }
    if (pool->n_workers > 0) return;
    dl_fail(DILOCO_ENOMEM, "no thread could be started to fetch data");
    fail_pool(pool, DILOCO_ENOMEM);
}

/* ---- readers */

void dl_fetch_file_want(dl_fetch_file *file, size_t begin, size_t len, bool now)
{
    dl_fetch_pool *pool = file->pool;
    bool pushed = false;
    if (len == 0) return;
    const size_t last = (begin + len - 1) / DL_ARRIVING_BLOCK;
    for (size_t b = begin / DL_ARRIVING_BLOCK; b <= last; b++) {
        if (dl_arriving_has(file->a, b)) continue;
        pthread_mutex_lock(&pool->lock);
        start(pool);
        const unsigned char state = file->states[b];
        if (state == IDLE || (now && (state == AHEAD || state == FILLING)))
            push(now ? &pool->now : &pool->ahead, file, b, now ? NOW : AHEAD), pushed = true;
        pthread_mutex_unlock(&pool->lock);
    }
    if (pushed) pthread_cond_broadcast(&pool->moved);
}

/* The caller holds the lock. */
static bool is_readable(dl_fetch_file *file, size_t block)
{
    if (file->checked[block]) return true;
    file->checked[block] = dl_arriving_has(file->a, block) && dl_arriving_check(file->a, block);
    return file->checked[block];
}

/* Waits for one block. The caller holds the lock. */
static diloco_status await_block(dl_fetch_file *file, size_t block)
{
    dl_fetch_pool *pool = file->pool;
    while (!is_readable(file, block)) {
        const dl_time until = dl_clock_now() + LOOK_AT_STOP;
        const struct timespec at = {.tv_sec = until / DL_SECOND, .tv_nsec = until % DL_SECOND};
        if (pool->status) return dl_fail(pool->status, "%s", pool->error);
        if (pool->options.stop && __atomic_load_n(pool->options.stop, __ATOMIC_RELAXED))
            return dl_fail(DILOCO_EINTERRUPTED, "stopped while data was fetched");
        start(pool);
        if (file->states[block] != NOW && file->states[block] != FLYING) {
            push(&pool->now, file, block, NOW);
            pthread_cond_broadcast(&pool->moved);
        }
        pthread_cond_timedwait(&pool->moved, &pool->lock, &at);
    }
    return DILOCO_OK;
}

diloco_status dl_fetch_file_await(dl_fetch_file *file, size_t begin, size_t len)
{
    dl_fetch_pool *pool = file->pool;
    diloco_status status = DILOCO_OK;
    if (len == 0) return DILOCO_OK;
    const size_t last = (begin + len - 1) / DL_ARRIVING_BLOCK;
    pthread_mutex_lock(&pool->lock);
    if (pool->lock_path) start(pool);
    for (size_t b = begin / DL_ARRIVING_BLOCK; !status && b <= last; b++)
        status = await_block(file, b);
    /* A later error is reported, too: the bytes so far may be those of a damaged file. */
    if (!status && pool->status) status = dl_fail(pool->status, "%s", pool->error);
    if (!status && dl_arriving_is_spoiled(file->a))
        status = dl_fail(DILOCO_EPROTO,
                         "%s has changed, or its copy in the cache is damaged: start the command "
                         "again, which fetches it again",
                         file->key);
    pthread_mutex_unlock(&pool->lock);
    return status;
}
