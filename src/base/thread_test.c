/* thread_test.c - every part runs once, on its own thread, and its writes are seen. */
#include "base/thread.h"

#include "check.h"

#include <pthread.h>
#include <signal.h>

typedef struct job {
    int runs[256]; /* by part; written by that part only */
    int n_parts[256];
    pthread_t thread[256];
    bool signals_blocked[256];
} job;

static void note(void *context, int part, int n_parts)
{
    job *j = context;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    j->runs[part]++;
    j->n_parts[part] = n_parts;
    j->thread[part] = pthread_self();
    j->signals_blocked[part] = sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM);
}

static void check_runs(int n_threads, int times)
{
    static job j;
    dl_pool *pool;
    memset(&j, 0, sizeof j);
    CHECK_OK(dl_pool_create(&pool, n_threads));
    CHECK_INT(n_threads, dl_pool_size(pool));
    for (int i = 0; i < times; i++)
        dl_pool_run(pool, note, &j);
    for (int p = 0; p < n_threads; p++) {
        CHECK_INT(times, j.runs[p]);
        CHECK_INT(n_threads, j.n_parts[p]);
        CHECK((p > 0) == !pthread_equal(j.thread[p], pthread_self()));
        if (p > 0) CHECK(j.signals_blocked[p] && !pthread_equal(j.thread[p], j.thread[p - 1]));
    }
    dl_pool_destroy(pool);
}

TEST(every_part_runs_once_on_its_own_thread_with_signals_blocked)
{
    check_runs(1, 3);
    check_runs(2, 2000);
    check_runs(3, 500);
    check_runs(17, 50); /* more than there are cores: no spinning */
    check_runs(256, 2);
}

TEST(the_callers_signal_mask_is_left_alone)
{
    sigset_t before, after;
    dl_pool *pool;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    CHECK_OK(dl_pool_create(&pool, 2));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    CHECK_INT(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
    dl_pool_destroy(pool);
}

TEST(no_pool_is_one_part_on_the_caller)
{
    static job j;
    memset(&j, 0, sizeof j);
    CHECK_INT(1, dl_pool_size(NULL));
    dl_pool_run(NULL, note, &j);
    CHECK_INT(1, j.runs[0]);
    CHECK_INT(1, j.n_parts[0]);
    dl_pool_destroy(NULL);
}

TEST(a_pool_has_1_to_256_threads)
{
    dl_pool *pool;
    CHECK_STATUS(DILOCO_EINVAL, dl_pool_create(&pool, 0));
    CHECK(!pool);
    CHECK_STATUS(DILOCO_EINVAL, dl_pool_create(&pool, 257));
    CHECK_CONTAINS("256", diloco_error_text());
}

TEST(a_pool_that_never_ran_can_be_destroyed)
{
    dl_pool *pool;
    CHECK_OK(dl_pool_create(&pool, 3));
    dl_pool_destroy(pool);
}

/* Values that one call wrote, the next may read on other threads: part p reads the values
 * of part n - 1 - p. */
typedef struct relay {
    long numbers[3];
    long next[3];
} relay;

static void pass_on(void *context, int part, int n_parts)
{
    relay *r = context;
    r->next[part] = r->numbers[n_parts - 1 - part] + 1;
}

static void take_over(void *context, int part, int n_parts)
{
    relay *r = context;
    r->numbers[part] = r->next[n_parts - 1 - part];
}

TEST(writes_of_one_pool_run_are_visible_to_the_next)
{
    relay r = {{0}, {0}};
    dl_pool *pool;
    CHECK_OK(dl_pool_create(&pool, 3));
    for (int i = 1; i <= 1000; i++) {
        dl_pool_run(pool, pass_on, &r);
        dl_pool_run(pool, take_over, &r);
        for (int p = 0; p < 3; p++)
            CHECK_INT(i, r.numbers[p]);
    }
    dl_pool_destroy(pool);
}

static void check_ranges(size_t n, size_t grain, int n_parts)
{
    size_t begin, end, at = 0, least = SIZE_MAX, most = 0;
    for (int p = 0; p < n_parts; p++) {
        dl_part_range(&begin, &end, n, grain, p, n_parts);
        CHECK(begin == at && end >= begin && end <= n);
        CHECK(begin % grain == 0 || begin == n);
        size_t blocks = (end - begin) / grain + ((end - begin) % grain != 0);
        least = dl_size_min(least, blocks);
        most = dl_size_max(most, blocks);
        at = end;
    }
    CHECK(at == n);
    CHECK(most - least <= 1);
}

TEST(ranges_cover_everything_once_evenly_and_on_the_grain)
{
    for (size_t n = 0; n < 40; n++)
        for (size_t grain = 1; grain < 9; grain++)
            for (int parts = 1; parts < 8; parts++)
                check_ranges(n, grain, parts);
    check_ranges(SIZE_MAX, 64, 256);
    check_ranges(SIZE_MAX - 1, 1, 3);
}

TEST(there_is_at_least_one_core)
{
    CHECK(dl_cores() >= 1);
}

TEST_MAIN(every_part_runs_once_on_its_own_thread_with_signals_blocked,
          the_callers_signal_mask_is_left_alone, no_pool_is_one_part_on_the_caller,
          a_pool_has_1_to_256_threads, a_pool_that_never_ran_can_be_destroyed,
          writes_of_one_pool_run_are_visible_to_the_next,
          ranges_cover_everything_once_evenly_and_on_the_grain, there_is_at_least_one_core)
