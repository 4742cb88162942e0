/* fetch_pool_test.c - the order in which blocks come, readers that wait, errors, and two pools over
 * one file. The test decides which blocks its source gives, so nothing depends on time. */
#include "fetch/fetch_pool.h"

#include "check.h"
#include "scratch.h"

#include <pthread.h>

enum { BLOCK = DL_ARRIVING_BLOCK, BLOCKS = 12, LEN = (BLOCKS - 1) * BLOCK + 100, MOST = 64 };

/* The object at the source. `closed`: a read that begins at this block waits. */
static struct {
    unsigned char bytes[LEN];
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool closed[BLOCKS];
    size_t begun[MOST], n_begun; /* the first blocks of all reads, in order */
    size_t n_waiting;
    int n_finished;
    size_t told, told_of;
    diloco_status fails; /* of all reads */
    size_t len;          /* of the object, as the source says */
    size_t surplus;      /* bytes that the source sends beyond what was asked for */
} source;

typedef struct handle {
    atomic_bool aborted;
} handle;

static diloco_status open_source(void *context, void **out)
{
    (void)context;
    *out = calloc(1, sizeof(handle));
    return *out ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "no memory");
}

static diloco_status wait_at_gate(const handle *h, size_t block)
{
    pthread_mutex_lock(&source.lock);
    if (source.n_begun < MOST) source.begun[source.n_begun++] = block;
    source.n_waiting++;
    pthread_cond_broadcast(&source.moved);
    while (source.closed[block] && !atomic_load(&h->aborted))
        pthread_cond_wait(&source.moved, &source.lock);
    source.n_waiting--;
    const diloco_status status = source.fails;
    pthread_mutex_unlock(&source.lock);
    if (atomic_load(&h->aborted)) return dl_fail(DILOCO_ECLOSED, "aborted");
    return status ? dl_fail(status, "the source fails") : DILOCO_OK;
}

static diloco_status read_source(void *context, const char *key, dl_store_part *part, dl_sink sink)
{
    if (strcmp(key, "shard.bin") != 0 || strcmp(part->version, "v1") != 0)
        return dl_fail(DILOCO_ENOENT, "there is no %s of version %s", key, part->version);
    DL_TRY(wait_at_gate(context, part->begin / BLOCK));
    DL_TRY(sink.begin(sink.context, source.len));
    for (size_t at = part->begin, n; at < part->end; at += n) {
        n = dl_size_min(part->end - at, 100000);
        DL_TRY(sink.piece(sink.context, source.bytes + at, n));
    }
    return source.surplus ? sink.piece(sink.context, source.bytes, source.surplus) : DILOCO_OK;
}

static void abort_source(void *context)
{
    handle *h = context;
    atomic_store(&h->aborted, true);
    pthread_mutex_lock(&source.lock);
    pthread_cond_broadcast(&source.moved);
    pthread_mutex_unlock(&source.lock);
}

static diloco_status on_finish(void *context, const char *key, dl_arriving *a)
{
    dl_hash digest;
    (void)context, (void)key;
    DL_TRY(dl_arriving_finish(&digest, a));
    pthread_mutex_lock(&source.lock);
    source.n_finished++;
    pthread_cond_broadcast(&source.moved);
    pthread_mutex_unlock(&source.lock);
    return DILOCO_OK;
}

static void on_progress(void *context, size_t bytes, size_t of)
{
    (void)context;
    pthread_mutex_lock(&source.lock);
    source.told = bytes;
    source.told_of = of;
    pthread_cond_broadcast(&source.moved);
    pthread_mutex_unlock(&source.lock);
}

static const dl_fetch_from from = {.open = open_source,
                                   .read = read_source,
                                   .abort = abort_source,
                                   .close = free,
                                   .finish = on_finish,
                                   .progress = on_progress};

static volatile int stop;

/* A new file of which nothing has arrived. */
static void begin(void)
{
    memset(&source, 0, sizeof source);
    pthread_mutex_init(&source.lock, NULL);
    pthread_cond_init(&source.moved, NULL);
    for (size_t i = 0; i < LEN; i++)
        source.bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    source.len = LEN;
    stop = 0;
    CHECK_OK(dl_arriving_create(scratch_path("shard"), scratch_path("record"), LEN, "v1"));
}

static dl_fetch_file *open_pool(dl_fetch_pool **pool, int threads, bool fills)
{
    dl_arriving *a;
    const dl_fetch_options options = {
        .threads = threads, .stop = &stop, .lock_path = fills ? scratch_path("filling") : NULL};
    CHECK_OK(dl_fetch_pool_create(pool, &from, &options));
    CHECK_OK(dl_arriving_open(&a, scratch_path("shard"), scratch_path("record")));
    CHECK_OK(dl_fetch_pool_add(*pool, "shard.bin", a));
    return dl_fetch_pool_file(*pool, 0);
}

static void set_gates(bool closed)
{
    pthread_mutex_lock(&source.lock);
    for (size_t i = 0; i < BLOCKS; i++)
        source.closed[i] = closed;
    pthread_cond_broadcast(&source.moved);
    pthread_mutex_unlock(&source.lock);
}

static void set_failure(diloco_status status)
{
    pthread_mutex_lock(&source.lock);
    source.fails = status;
    pthread_mutex_unlock(&source.lock);
}

/* Waits until the source has begun n reads in all. */
static void wait_for_reads(size_t n)
{
    pthread_mutex_lock(&source.lock);
    while (source.n_begun < n)
        pthread_cond_wait(&source.moved, &source.lock);
    pthread_mutex_unlock(&source.lock);
}

static size_t n_begun(void)
{
    pthread_mutex_lock(&source.lock);
    const size_t n = source.n_begun;
    pthread_mutex_unlock(&source.lock);
    return n;
}

static void check_bytes(const dl_fetch_file *file, size_t at, size_t len)
{
    CHECK_BYTES(source.bytes + at, dl_fetch_file_map(file)->data + at, len);
}

TEST(a_reader_gets_its_bytes_before_the_rest_has_arrived)
{
    dl_fetch_pool *pool;
    begin();
    dl_fetch_file *file = open_pool(&pool, 8, true);
    set_gates(true);
    source.closed[5] = source.closed[6] = false;
    CHECK_OK(dl_fetch_file_await(file, 6 * BLOCK - 10, 20));
    check_bytes(file, 5 * BLOCK, 2 * BLOCK);
    CHECK_INT(0, source.n_finished);
    dl_fetch_pool_destroy(pool);
}

TEST(awaited_blocks_come_first_then_announced_ones_then_the_others)
{
    static const size_t order[] = {0, 9, 4, 7, 1};
    dl_fetch_pool *pool;
    begin();
    dl_fetch_file *file = open_pool(&pool, 1, true);
    set_gates(true);
    dl_fetch_file_want(file, 0, 1, false);
    wait_for_reads(1);
    dl_fetch_file_want(file, 4 * BLOCK, 1, false);
    dl_fetch_file_want(file, 7 * BLOCK, 1, false);
    dl_fetch_file_want(file, 9 * BLOCK, 1, true);
    set_gates(false);
    wait_for_reads(5); /* the last one begins to fill */
    for (size_t i = 0; i < 5; i++)
        CHECK_INT(order[i], source.begun[i]);
    dl_fetch_pool_destroy(pool);
}

TEST(the_rest_arrives_and_the_file_is_finished_once)
{
    dl_fetch_pool *pool;
    begin();
    dl_fetch_file *file = open_pool(&pool, 8, true);
    CHECK_OK(dl_fetch_file_await(file, 3 * BLOCK, 10));
    pthread_mutex_lock(&source.lock);
    while (!source.n_finished || source.told < LEN)
        pthread_cond_wait(&source.moved, &source.lock);
    pthread_mutex_unlock(&source.lock);
    check_bytes(file, 0, LEN);
    CHECK_INT(LEN, source.told_of);
    dl_fetch_pool_destroy(pool);
    CHECK_INT(1, source.n_finished);
}

TEST(a_pool_that_does_not_fill_fetches_only_what_is_read)
{
    dl_fetch_pool *pool;
    begin();
    dl_fetch_file *file = open_pool(&pool, 8, false);
    CHECK_INT(0, source.n_begun);
    CHECK_OK(dl_fetch_file_await(file, 11 * BLOCK, 100));
    CHECK_OK(dl_fetch_file_await(file, 11 * BLOCK, 100));
    dl_fetch_pool_destroy(pool);
    CHECK_INT(1, source.n_begun);
}

TEST(an_object_of_another_length_or_version_ends_all_readers)
{
    dl_fetch_pool *pool, *other;
    dl_arriving *a;
    begin();
    dl_fetch_file *file = open_pool(&pool, 2, false), *second = open_pool(&other, 2, false);
    CHECK_OK(dl_fetch_file_await(second, 0, 1));
    pthread_mutex_lock(&source.lock);
    source.len = LEN + 1;
    pthread_mutex_unlock(&source.lock);
    CHECK_STATUS(DILOCO_EPROTO, dl_fetch_file_await(file, BLOCK, 1));
    CHECK_CONTAINS("shard.bin has changed", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, dl_fetch_file_await(file, 0, 1));
    CHECK_STATUS(DILOCO_EPROTO, dl_fetch_file_await(second, 0, 1)); /* of another process */
    dl_fetch_pool_destroy(pool);
    dl_fetch_pool_destroy(other);
    CHECK_STATUS(DILOCO_EPROTO,
                 dl_arriving_open(&a, scratch_path("shard"), scratch_path("record")));
}

TEST(more_bytes_than_were_asked_for_are_an_error)
{
    static const size_t at[] = {2 * BLOCK, (BLOCKS - 1) * BLOCK};
    for (size_t i = 0; i < 2; i++) {
        dl_fetch_pool *pool;
        begin();
        dl_fetch_file *file = open_pool(&pool, 1, false);
        source.surplus = BLOCK + 1;
        CHECK_STATUS(DILOCO_EPROTO, dl_fetch_file_await(file, at[i], 1));
        CHECK_CONTAINS("more bytes", diloco_error_text());
        dl_fetch_pool_destroy(pool);
    }
}

TEST(a_store_that_cannot_be_reached_is_an_error_only_of_a_reader_that_waits)
{
    dl_fetch_pool *pool;
    begin();
    dl_fetch_file *file = open_pool(&pool, 1, true);
    set_failure(DILOCO_EUNREACHABLE);
    dl_fetch_file_want(file, 0, 1, false);
    wait_for_reads(2); /* each block is tried twice */
    set_failure(DILOCO_OK);
    CHECK_OK(dl_fetch_file_await(file, 0, 1));
    set_failure(DILOCO_EUNREACHABLE);
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_fetch_file_await(file, 11 * BLOCK, 1));
    dl_fetch_pool_destroy(pool);
}

TEST(a_request_to_stop_ends_a_wait)
{
    dl_fetch_pool *pool;
    begin();
    dl_fetch_file *file = open_pool(&pool, 2, true);
    set_gates(true);
    dl_fetch_file_want(file, 0, 1, true);
    wait_for_reads(1);
    stop = 1;
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_fetch_file_await(file, 0, 1));
    dl_fetch_pool_destroy(pool);
}

/* The second pool is another process's: it has no block of its own to wait for, and fills as soon
 * as the first one has ended. */
TEST(pools_share_what_has_arrived_and_one_fills_at_a_time)
{
    dl_fetch_pool *pool, *other;
    begin();
    dl_fetch_file *file = open_pool(&pool, 8, true), *second = open_pool(&other, 8, true);
    set_gates(true);
    source.closed[3] = false;
    CHECK_OK(dl_fetch_file_await(file, 3 * BLOCK, 10));
    wait_for_reads(3); /* the first pool fills the blocks before and after it */
    CHECK_OK(dl_fetch_file_await(second, 3 * BLOCK, 10));
    check_bytes(second, 3 * BLOCK, BLOCK);
    CHECK_INT(3, n_begun());
    dl_fetch_pool_destroy(pool);
    set_gates(false);
    pthread_mutex_lock(&source.lock);
    while (!source.n_finished)
        pthread_cond_wait(&source.moved, &source.lock);
    pthread_mutex_unlock(&source.lock);
    check_bytes(second, 0, LEN);
    dl_fetch_pool_destroy(other);
}

TEST_MAIN(a_reader_gets_its_bytes_before_the_rest_has_arrived,
          awaited_blocks_come_first_then_announced_ones_then_the_others,
          the_rest_arrives_and_the_file_is_finished_once,
          a_pool_that_does_not_fill_fetches_only_what_is_read,
          an_object_of_another_length_or_version_ends_all_readers,
          more_bytes_than_were_asked_for_are_an_error,
          a_store_that_cannot_be_reached_is_an_error_only_of_a_reader_that_waits,
          a_request_to_stop_ends_a_wait, pools_share_what_has_arrived_and_one_fills_at_a_time)
