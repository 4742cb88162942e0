/* thread.c - one generation counter starts the workers, one count of pending parts ends
 * the run.
 *
 *     caller   write fn, context, pending; generation + 1 (release)
 *     worker   sees a new generation (acquire); runs its part; pending - 1 (release)
 *     caller   runs part 0; sees pending == 0 (acquire); returns
 *
 * Both sides spin a moment, then sleep on a condition variable. The condition of a sleeper
 * changes only with the lock held, or is followed by a signal under the lock, so no
 * wake-up is lost. */
#include "base/thread.h"

#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SPINS_PER_LOOK = 32 };
static const dl_time spin_time = 20 * 1000; /* ns: about what sleeping and waking cost */

/* One thread of a pool. Its part number is fixed, so the split is the same in every run. */
typedef struct worker {
    dl_pool *pool;
    pthread_t thread;
    int part;
} worker;

struct dl_pool {
    int n_threads; /* with the caller */
    bool spins;
    dl_part_fn fn; /* these two: written before a generation begins, read during it */
    void *context;
    _Alignas(64) atomic_uint generation; /* changed under the lock */
    _Alignas(64) atomic_int pending;     /* parts of workers not finished */
    _Alignas(64) atomic_bool stop;       /* read when a new generation is seen */
    pthread_mutex_t lock;                /* guards no field, only the sleeping */
    pthread_cond_t start, done;
    int n_workers; /* started */
    worker workers[];
};

/* Spares the core's other thread while this one spins. */
static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Acquire pairs with the release in begin_generation: fn and context are then visible. */
static bool new_generation(dl_pool *pool, unsigned seen)
{
    return atomic_load_explicit(&pool->generation, memory_order_acquire) != seen;
}

static bool none_pending(dl_pool *pool, unsigned unused)
{
    (void)unused;
    return atomic_load_explicit(&pool->pending, memory_order_acquire) == 0;
}

/* Return when ready(pool, arg), having slept on `wake` if that took long. */
static void wait_for(dl_pool *pool, pthread_cond_t *wake, bool (*ready)(dl_pool *, unsigned),
                     unsigned arg)
{
    if (pool->spins) {
        dl_time until = dl_clock_now() + spin_time;
        do {
            for (int i = 0; i < SPINS_PER_LOOK; i++, relax())
                if (ready(pool, arg)) return;
        } while (dl_clock_now() < until);
    }
    pthread_mutex_lock(&pool->lock);
    while (!ready(pool, arg))
        pthread_cond_wait(wake, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

/* The broadcast is made under the lock, so a worker that is about to sleep does not miss it. */
static void begin_generation(dl_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
}

/* Only the last part wakes the caller. */
static void finish_part(dl_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_acq_rel) > 1) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->lock);
}

static void *work(void *arg)
{
    worker *self = arg;
    dl_pool *pool = self->pool;
    for (unsigned seen = 0;; seen++) { /* no generation is skipped: each waits for all */
        wait_for(pool, &pool->start, new_generation, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed)) return NULL;
        pool->fn(pool->context, self->part, pool->n_threads);
        finish_part(pool);
    }
}

/* A new thread inherits what is blocked. */
int dl_thread_start(pthread_t *out, void *(*body)(void *context), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(out, NULL, body, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Wall time may jump, and would then end waits early or late. */
void dl_cond_init(pthread_cond_t *out)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(out, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* n_workers counts the started threads, so that a failed start can be undone. */
static int start_workers(dl_pool *pool)
{
    int error = 0;
    for (int i = 0; i < pool->n_threads - 1 && !error; i++) {
        pool->workers[i] = (worker){.pool = pool, .part = i + 1};
        error = dl_thread_start(&pool->workers[i].thread, work, &pool->workers[i]);
        if (!error) pool->n_workers++;
    }
    return error;
}

/* The pool spins only if each of its threads has a core. Otherwise spinning would take the core
 * from the thread that it waits for. */
diloco_status dl_pool_create(dl_pool **out, int n_threads)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > DL_POOL_MAX)
        return dl_fail(DILOCO_EINVAL, "%d threads: a pool has 1 to %d", n_threads, DL_POOL_MAX);
    size_t size = sizeof(dl_pool) + (size_t)(n_threads - 1) * sizeof(worker);
    dl_pool *pool = aligned_alloc(64, dl_size_round_up(size, 64));
    if (!pool) return dl_fail(DILOCO_ENOMEM, "out of memory for a pool of %d threads", n_threads);
    memset(pool, 0, size);
    pool->n_threads = n_threads;
    pool->spins = n_threads <= dl_cores();
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->done, NULL);

    int error = start_workers(pool);
    if (error) {
        dl_pool_destroy(pool);
        return dl_fail(DILOCO_ENOMEM, "start %d threads: %s", n_threads, strerror(error));
    }
    *out = pool;
    return DILOCO_OK;
}

/* `stop` is set before a new generation wakes the workers, which then end. No work may be
 * running. */
void dl_pool_destroy(dl_pool *pool)
{
    if (!pool) return;
    atomic_store_explicit(&pool->stop, true, memory_order_relaxed);
    begin_generation(pool);
    for (int i = 0; i < pool->n_workers; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->start);
    pthread_cond_destroy(&pool->done);
    free(pool);
}

int dl_pool_size(const dl_pool *pool)
{
    return pool ? pool->n_threads : 1;
}

/* The release of begin_generation makes fn and context visible to the workers. */
void dl_pool_run(dl_pool *pool, dl_part_fn fn, void *context)
{
    if (dl_pool_size(pool) == 1) {
        fn(context, 0, 1);
        return;
    }
    pool->fn = fn;
    pool->context = context;
    atomic_store_explicit(&pool->pending, pool->n_threads - 1, memory_order_relaxed);
    begin_generation(pool);
    fn(context, 0, pool->n_threads);
    wait_for(pool, &pool->done, none_pending, 0);
}

/* Blocks before part `part` when the first n_blocks % n_parts parts have one more. */
static size_t blocks_before(size_t n_blocks, size_t part, size_t n_parts)
{
    return n_blocks / n_parts * part + dl_size_min(part, n_blocks % n_parts);
}

/* The first n_blocks mod n_parts parts have one block more. A part may be empty. */
void dl_part_range(size_t *begin, size_t *end, size_t n, size_t grain, int part, int n_parts)
{
    DL_ASSERT(grain > 0 && part >= 0 && part < n_parts);
    size_t n_blocks = n / grain + (n % grain != 0);
    size_t first = blocks_before(n_blocks, (size_t)part, (size_t)n_parts);
    size_t last = blocks_before(n_blocks, (size_t)part + 1, (size_t)n_parts);
    *begin = first == n_blocks ? n : first * grain;
    *end = last == n_blocks ? n : last * grain;
}
