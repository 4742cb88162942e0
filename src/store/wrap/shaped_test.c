/* shaped_test.c - the shaper on a clock of its own, on which sleeping is instant. Its delays are
 * exact, but for the quanta in which large objects take turns. */
#include "store/wrap/shaped.h"

#include "check.h"
#include "store/kind.h"
#include "store_suite.h"

#include <pthread.h>
#include <stdlib.h>

enum { MB = 1000000 };

static atomic_llong time_now;
static dl_time mark, oversleeps;

static dl_time test_now(void *context)
{
    (void)context;
    return time_now;
}

static void test_sleep(void *context, dl_time duration)
{
    (void)context;
    time_now += duration + oversleeps;
}

static const dl_shaper_clock test_clock = {NULL, test_now, test_sleep};
static dl_shaper *shaper;
static dl_store *store, *clean;
static unsigned char *bytes;

static void begin(const char *text)
{
    dl_link link;
    dl_store *inner;
    CHECK_OK(dl_link_parse(&link, "test", text));
    CHECK_OK(dl_shaper_create(&shaper, &link, 7, &test_clock));
    CHECK_OK(dl_store_open(&clean, "mem://shaped-test", true));
    CHECK_OK(dl_store_open(&inner, "mem://shaped-test", true));
    CHECK_OK(dl_store_shaped(&store, inner, shaper));
    bytes = calloc(MB, 1);
    time_now = mark = dl_clock_now();
}

static void end(void)
{
    dl_store_close(store);
    dl_store_close(clean);
    dl_shaper_destroy(shaper);
    free(bytes);
}

/* Seconds of the link since the last call of this. */
static double took(diloco_status status)
{
    CHECK_OK(status);
    const double s = dl_seconds(time_now - mark);
    mark = time_now;
    return s;
}

static diloco_status get(const char *key)
{
    dl_buf buf;
    dl_buf_init(&buf, MB);
    const diloco_status status = dl_store_get(store, &buf, key, DL_NEVER);
    dl_buf_deinit(&buf);
    return status;
}

static diloco_status count_one(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    ++*(int *)context;
    return DILOCO_OK;
}

TEST(a_request_takes_the_delay_and_its_bytes_at_the_rate)
{
    int n = 0;
    begin("8mbit/80mbit,100ms"); /* 1 MB/s up, 10 MB/s down */
    const dl_span span = {bytes, MB};
    CHECK_NEAR(1.1, took(dl_store_put(store, "a", bytes, MB, DL_NEVER)), 1e-6);
    CHECK_NEAR(1.1, took(dl_store_create(store, "b", &span, 1, NULL, DL_NEVER)), 1e-6);
    CHECK_NEAR(0.2, took(get("a")), 1e-6);
    CHECK_NEAR(0.1, took(dl_store_list(store, "", NULL, count_one, &n, DL_NEVER)), 1e-9);
    CHECK_NEAR(0.1, took(dl_store_delete(store, "a", DL_NEVER)), 1e-9);
    CHECK_INT(2, n);
    end();
}

TEST(a_link_that_oversleeps_each_slice_loses_no_rate)
{
    begin("8mbit");
    const dl_span span = {bytes, MB};
    oversleeps = 7 * DL_MILLISECOND;
    CHECK_NEAR(1.0, took(dl_store_create(store, "c/1/r0.0", &span, 1, NULL, DL_NEVER)), 0.008);
    oversleeps = 0;
    end();
}

TEST(without_a_rate_bytes_take_no_time)
{
    begin("5ms");
    CHECK_NEAR(0.005, took(dl_store_put(store, "a", bytes, MB, DL_NEVER)), 1e-9);
    CHECK_NEAR(0.005, took(get("a")), 1e-9);
    end();
}

/* A handle of the same link puts a heartbeat in the middle of a large object. */
typedef struct beat {
    dl_store *handle;
    double seconds;
} beat;

static diloco_status beat_begin(void *context, size_t len)
{
    (void)context, (void)len;
    return DILOCO_OK;
}

static diloco_status beat_piece(void *context, const void *data, size_t len)
{
    beat *b = context;
    (void)data, (void)len;
    mark = time_now;
    b->seconds = took(dl_store_put(b->handle, "hb/r0.0", "{}", 2, DL_NEVER));
    return DILOCO_OK;
}

TEST(small_objects_go_ahead_of_large_ones)
{
    begin("8mbit,100ms");
    dl_store *inner;
    beat b = {.seconds = 0};
    const dl_sink sink = {&b, beat_begin, beat_piece};
    CHECK_OK(dl_store_put(clean, "big", bytes, MB, DL_NEVER));
    CHECK_OK(dl_store_open(&inner, "mem://shaped-test", true));
    CHECK_OK(dl_store_shaped(&b.handle, inner, shaper));
    CHECK_OK(dl_store_read(store, "big", sink, DL_NEVER));
    CHECK_NEAR(0.1, b.seconds, 1e-3);
    dl_store_close(b.handle);
    end();
}

/* Two large objects at once: each gives up time to the other in quanta, and is as slow as both. */
static void *put_big(void *handle)
{
    static diloco_status status;
    status = dl_store_put(handle, "second", bytes, MB, DL_NEVER);
    return &status;
}

TEST(handles_share_the_rate)
{
    begin("8mbit");
    dl_store *inner, *second;
    pthread_t thread;
    void *status;
    CHECK_OK(dl_store_open(&inner, "mem://shaped-test", true));
    CHECK_OK(dl_store_shaped(&second, inner, shaper));
    const dl_time before = time_now;
    CHECK_INT(0, pthread_create(&thread, NULL, put_big, second));
    CHECK_OK(dl_store_put(store, "first", bytes, MB, DL_NEVER));
    CHECK_INT(0, pthread_join(thread, &status));
    CHECK_OK(*(diloco_status *)status);
    CHECK(dl_seconds(time_now - before) >= 2 - 1e-6); /* 2 MB at 1 MB/s, in whichever order */
    dl_store_close(second);
    end();
}

TEST(a_lost_request_is_made_again_after_a_second)
{
    begin("1%");
    int late = 0;
    for (int i = 0; i < 1000; i++) {
        const double s = took(dl_store_put(store, "hb/r0.0", "{}", 2, DL_NEVER));
        CHECK(s == 0 || s >= 1);
        late += s > 0;
    }
    CHECK(late > 1 && late < 30); /* of a thousand, 10 are expected */
    end();
}

TEST(an_effect_whose_answer_was_lost_is_ones_own)
{
    begin("50%");
    int reached = 0;
    for (int i = 0; i < 200; i++) {
        char key[16];
        const dl_span span = {key, (size_t)snprintf(key, sizeof key, "k%d", i)};
        const diloco_status status = dl_store_create(store, key, &span, 1, NULL, DL_NEVER);
        CHECK(status == DILOCO_OK || status == DILOCO_EUNREACHABLE);
        if (status == DILOCO_OK) store_must_hold(clean, key, key);
        reached += status == DILOCO_OK;
    }
    CHECK(reached > 180); /* 1 - 2^-6 of them */
    const dl_span other = {"other", 5};
    diloco_status status = DILOCO_EUNREACHABLE;
    while (status == DILOCO_EUNREACHABLE)
        status = dl_store_create(store, "k0", &other, 1, NULL, DL_NEVER);
    CHECK_INT(DILOCO_EEXIST, status);
    end();
}

TEST(a_cut_link_is_unreachable_and_an_end_in_time_is_kept)
{
    begin("100%");
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_put(store, "a", "x", 1, DL_NEVER));
    CHECK_CONTAINS("a in mem://shaped-test: lost on the link 6 times", diloco_error_text());
    CHECK_STATUS(DILOCO_ETIMEDOUT,
                 dl_store_put(store, "a", "x", 1, dl_time_after(time_now, 2 * DL_SECOND)));
    dl_store_abort(store);
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_put(store, "a", "x", 1, DL_NEVER));
    end();
}

TEST(a_large_object_ends_at_its_time)
{
    begin("8kbit");
    const dl_time until = dl_time_after(time_now, 100 * DL_SECOND);
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_put(store, "a", bytes, MB, until));
    CHECK(time_now >= until && time_now < dl_time_after(until, DL_SECOND));
    CHECK_STATUS(DILOCO_ENOENT, get("a"));
    end();
}

TEST(a_process_has_one_link)
{
    dl_store *plain;
    CHECK_STATUS(DILOCO_EINVAL, dl_store_set_link("fast"));
    CHECK_OK(dl_store_set_link("1gbit"));
    CHECK_OK(dl_store_set_link("1gbit"));
    CHECK_STATUS(DILOCO_EINVAL, dl_store_set_link("2gbit"));
    CHECK_CONTAINS("has the link 1gbit already", diloco_error_text());
    CHECK_OK(dl_store_open(&plain, "mem://shaped-process", true));
    store_must_create(plain, "a", "x");
    store_must_hold(plain, "a", "x");
    CHECK_STR("mem://shaped-process", dl_store_url(plain));
    dl_store_close(plain);
}

/* ---- the suite of all stores; without losses, after which one's own create is there already */

static dl_shaper *suite_link;

static void suite_make(char url[512])
{
    static int n;
    const dl_link link = {80e6, 80e6, 0.05, 0};
    CHECK_OK(dl_shaper_create(&suite_link, &link, 3, &test_clock));
    snprintf(url, 512, "mem://shaped-suite-%d", n++);
}

static dl_store *suite_open(const char *url)
{
    dl_store *inner, *out;
    CHECK_OK(dl_store_open(&inner, url, true));
    CHECK_OK(dl_store_shaped(&out, inner, suite_link));
    return out;
}

static void suite_destroy(const char *url)
{
    (void)url;
    dl_shaper_destroy(suite_link);
}

int main(int argc, char **argv)
{
    static const store_row row = {"shaped", suite_make, suite_open, suite_destroy, false};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_takes_the_delay_and_its_bytes_at_the_rate),
        cmocka_unit_test(a_link_that_oversleeps_each_slice_loses_no_rate),
        cmocka_unit_test(without_a_rate_bytes_take_no_time),
        cmocka_unit_test(small_objects_go_ahead_of_large_ones),
        cmocka_unit_test(handles_share_the_rate),
        cmocka_unit_test(a_lost_request_is_made_again_after_a_second),
        cmocka_unit_test(an_effect_whose_answer_was_lost_is_ones_own),
        cmocka_unit_test(a_cut_link_is_unreachable_and_an_end_in_time_is_kept),
        cmocka_unit_test(a_large_object_ends_at_its_time),
        cmocka_unit_test(a_process_has_one_link),
    };
    if (argc > 1) return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
    int failed = store_suite_run(&row); /* first: the last test above gives the process a link */
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    return failed ? 1 : 0;
}
