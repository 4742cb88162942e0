/* faulty_test.c - the faults of kind.h, each alone with probability 1, and that a seed
 * replays. */
#include "store/kind.h"

#include "check.h"
#include "store_suite.h"

static dl_store *clean, *broken; /* one store: as it is, and through faults */

static void begin(dl_faults faults)
{
    dl_store *inner;
    CHECK_OK(dl_store_open(&clean, "mem://faulty-test", true));
    CHECK_OK(dl_store_open(&inner, "mem://faulty-test", true));
    CHECK_OK(dl_store_faulty(&broken, inner, faults));
}

static void end(void)
{
    dl_store_close(broken);
    dl_store_close(clean);
}

TEST(unreachable_before_leaves_no_effect)
{
    dl_span span = {"x", 1};
    begin((dl_faults){.p_unreachable_before = 1});
    store_must_create(clean, "old", "1");
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_create(broken, "a", &span, 1, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_put(broken, "b", "x", 1, DL_NEVER));
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_delete(broken, "old", DL_NEVER));
    CHECK_STR("old ", store_keys(clean, "", NULL));
    end();
}

TEST(unreachable_after_leaves_the_effect)
{
    dl_span span = {"x", 1};
    dl_buf buf;
    dl_buf_init(&buf, 8);
    begin((dl_faults){.p_unreachable_after = 1});
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_create(broken, "a", &span, 1, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_put(broken, "b", "x", 1, DL_NEVER));
    CHECK_STR("a b ", store_keys(clean, "", NULL));
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_get(broken, &buf, "a", DL_NEVER));
    CHECK_INT(0, buf.len);
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_delete(broken, "a", DL_NEVER));
    CHECK_STR("b ", store_keys(clean, "", NULL));
    dl_buf_deinit(&buf);
    end();
}

TEST(a_retry_after_an_unknown_outcome_is_success)
{
    dl_span span = {"mine", 4};
    begin((dl_faults){.seed = 11, .p_unreachable_before = 0.3, .p_unreachable_after = 0.3});
    for (int i = 0; i < 50; i++) {
        char key[16];
        diloco_status status;
        snprintf(key, sizeof key, "k%d", i);
        do
            status = dl_store_create(broken, key, &span, 1, NULL, DL_NEVER);
        while (status == DILOCO_EUNREACHABLE);
        CHECK_STATUS(DILOCO_OK, status);
        store_must_hold(clean, key, "mine");
    }
    end();
}

TEST(truncation_gives_a_shorter_object)
{
    dl_buf buf;
    dl_buf_init(&buf, 100);
    begin((dl_faults){.seed = 2, .p_truncate = 1});
    store_must_create(clean, "a", "0123456789");
    for (int i = 0; i < 20; i++) {
        dl_buf_clear(&buf);
        CHECK_OK(dl_store_get(broken, &buf, "a", DL_NEVER));
        CHECK(buf.len < 10);
        CHECK(!memcmp("0123456789", dl_buf_str(&buf), buf.len));
    }
    dl_buf_deinit(&buf);
    end();
}

TEST(a_flip_changes_exactly_one_bit)
{
    size_t n = 2500000; /* more than a piece: the bit may be in any */
    unsigned char *zeros = calloc(1, n);
    dl_buf buf;
    CHECK(zeros != NULL);
    dl_buf_init(&buf, n);
    begin((dl_faults){.seed = 3, .p_flip = 1});
    CHECK_OK(dl_store_put(clean, "a", zeros, n, DL_NEVER));
    CHECK_OK(dl_store_put(clean, "short", "", 1, DL_NEVER));
    for (int i = 0; i < 10; i++) {
        dl_buf_clear(&buf);
        CHECK_OK(dl_store_get(broken, &buf, i < 5 ? "a" : "short", DL_NEVER));
        CHECK_INT(i < 5 ? n : 1, buf.len);
        int flipped = 0;
        for (size_t k = 0; k < buf.len; k++)
            flipped += __builtin_popcount(buf.data[k]);
        CHECK_INT(1, flipped);
    }
    dl_buf_deinit(&buf);
    free(zeros);
    end();
}

TEST(win_every_create_lets_every_create_win)
{
    dl_span one = {"one", 3}, two[] = {{"t", 1}, {"wo", 2}};
    bool taken = true;
    begin((dl_faults){.win_every_create = true});
    CHECK_OK(dl_store_create(broken, "log/1", &one, 1, &taken, DL_NEVER));
    CHECK(!taken);
    CHECK_OK(dl_store_create(broken, "log/1", two, 2, &taken, DL_NEVER));
    CHECK(!taken);
    store_must_hold(clean, "log/1", "two");
    end();
}

TEST(a_delay_ends_with_the_time_given_or_with_abort)
{
    dl_span span = {"x", 1};
    begin((dl_faults){.p_delay = 1, .delay_s = 0.001});
    CHECK_OK(dl_store_create(broken, "a", &span, 1, NULL, DL_NEVER));
    end();
    begin((dl_faults){.p_delay = 1, .delay_s = 1e9});
    dl_time soon = dl_clock_now() + 20 * DL_MILLISECOND;
    CHECK_STATUS(DILOCO_ETIMEDOUT, dl_store_create(broken, "b", &span, 1, NULL, soon));
    CHECK_STR("", store_keys(clean, "", NULL));
    dl_store_abort(broken);
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_create(broken, "b", &span, 1, NULL, DL_NEVER));
    end();
}

/* One letter for each of 200 calls: how it ended. */
static void trace(char out[201], uint64_t seed)
{
    dl_span span = {"0123456789", 10};
    dl_buf buf;
    dl_buf_init(&buf, 16);
    begin((dl_faults){.seed = seed,
                      .p_unreachable_before = 0.2,
                      .p_unreachable_after = 0.2,
                      .p_truncate = 0.3,
                      .p_flip = 0.3});
    for (int i = 0; i < 200; i += 2) {
        diloco_status made = dl_store_create(broken, "a", &span, 1, NULL, DL_NEVER);
        dl_buf_clear(&buf);
        diloco_status got = dl_store_get(broken, &buf, "a", DL_NEVER);
        out[i] = (char)('a' + (int)made);
        out[i + 1] = got ? (char)('a' + (int)got) : (char)('A' + (int)buf.len);
    }
    out[200] = '\0';
    dl_buf_deinit(&buf);
    end();
}

TEST(equal_seeds_give_equal_faults)
{
    char first[201], second[201], other[201];
    trace(first, 5);
    trace(second, 5);
    trace(other, 6);
    CHECK_STR(first, second);
    CHECK(strcmp(first, other) != 0);
}

TEST_MAIN(unreachable_before_leaves_no_effect, unreachable_after_leaves_the_effect,
          a_retry_after_an_unknown_outcome_is_success, truncation_gives_a_shorter_object,
          a_flip_changes_exactly_one_bit, win_every_create_lets_every_create_win,
          a_delay_ends_with_the_time_given_or_with_abort, equal_seeds_give_equal_faults)
