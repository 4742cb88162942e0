/* recommend_test.c - the recommendation is the first candidate, in the stated order, that does. */
#include "plan/recommend.h"

#include "check.h"

static dl_plan_task task = {.parameters = 1e8, .step_s = 1, .steps = 10000, .replicas = 2};

static bool all(void *user, const char *kind, const char *name)
{
    (void)user, (void)kind, (void)name;
    return true;
}

static bool none(void *user, const char *kind, const char *name)
{
    (void)user, (void)kind, (void)name;
    return false;
}

static bool only_f32_diloco(void *user, const char *kind, const char *name)
{
    (void)user, (void)kind;
    return !strcmp(name, "f32") || !strcmp(name, "diloco");
}

static dl_recommendation on(double bps, dl_plan_offered offered)
{
    dl_recommendation r;
    task.link = (dl_plan_link){bps, bps, 0};
    CHECK_OK(dl_plan_recommend(&r, &task, 12, 3, DL_ALLGATHER, 0.95, NULL, offered, NULL));
    return r;
}

TEST(a_link_that_carries_every_step_needs_no_diloco)
{
    dl_recommendation r = on(1e12, all);
    CHECK_STR("data_parallel", r.method->name);
    CHECK(r.reached);
    CHECK_CONTAINS("nothing has to be saved", r.reason);
}

/* 3 * 3.2e9 bits at 1e10: 0.96 s in 30 steps. Half the link would be half short of 95 %. */
TEST(a_good_link_takes_the_plainest_method_and_the_finest_codec)
{
    dl_recommendation r = on(1e10, all);
    CHECK_STR("diloco", r.method->name);
    CHECK_STR("f32", r.codec);
    CHECK_INT(30, r.choice.sync_every);
    CHECK_CONTAINS("data_parallel does best", r.reason);
}

/* Every candidate that is earlier in the order stays below the target. */
TEST(a_slow_link_takes_fragments_overlap_and_a_coarse_codec_before_a_longer_interval)
{
    dl_recommendation r = on(1e8, all);
    CHECK(r.reached && r.forecast.utilization >= 0.95);
    CHECK_INT(30, r.choice.sync_every);
    dl_plan_choice c = {.sync_every = 30, .fragments = 1, .bits = 4.125};
    CHECK(dl_plan_forecast(&task, &c, NULL).utilization < 0.95);
}

TEST(where_nothing_does_the_best_is_named_as_such)
{
    dl_recommendation r = on(1e3, only_f32_diloco);
    CHECK(!r.reached);
    CHECK_STR("diloco", r.method->name);
    CHECK_INT(500, r.choice.sync_every);
    CHECK_CONTAINS("comes nearest", r.reason);
}

TEST(recommendations_are_among_the_offered_presets)
{
    dl_recommendation r = on(1e8, only_f32_diloco);
    CHECK_STR("diloco", r.method->name);
    CHECK_STR("f32", r.codec);
    CHECK_STATUS(DILOCO_EREFUSED,
                 dl_plan_recommend(&r, &task, 12, 3, DL_ALLGATHER, 0.95, NULL, none, NULL));
}

TEST(short_run_has_at_least_two_exchanges)
{
    const double steps[] = {400, 100, 24, 3, 1};
    const uint32_t most[] = {200, 50, 12, 1, 1};
    for (size_t i = 0; i < 5; i++) {
        task.steps = steps[i];
        const dl_recommendation r = on(1e3, all);
        CHECK(!r.reached);
        CHECK_INT(most[i], r.choice.sync_every);
    }
    task.steps = 10000;
}

TEST_MAIN(a_link_that_carries_every_step_needs_no_diloco,
          a_good_link_takes_the_plainest_method_and_the_finest_codec,
          a_slow_link_takes_fragments_overlap_and_a_coarse_codec_before_a_longer_interval,
          where_nothing_does_the_best_is_named_as_such,
          recommendations_are_among_the_offered_presets, short_run_has_at_least_two_exchanges)
