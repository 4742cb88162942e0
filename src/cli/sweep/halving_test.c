/* halving_test.c - candidates and steps of each rung. */
#include "cli/sweep/halving.h"

#include "check.h"

static dl_halving plan;

static void rungs_are(size_t n, const dl_rung *want)
{
    CHECK_INT(n, plan.n);
    for (size_t i = 0; i < n; i++) {
        CHECK_INT(want[i].candidates, plan.rungs[i].candidates);
        CHECK_INT(want[i].steps, plan.rungs[i].steps);
    }
}

TEST(a_third_of_the_candidates_gets_three_times_the_steps)
{
    CHECK_OK(dl_halving_plan(&plan, 27, 900, 10));
    rungs_are(3, (dl_rung[]){{27, 100}, {9, 300}, {3, 900}});
    CHECK_OK(dl_halving_plan(&plan, 28, 900, 10));
    rungs_are(4, (dl_rung[]){{28, 30}, {10, 100}, {4, 300}, {2, 900}});
}

TEST(three_candidates_have_one_rung)
{
    for (size_t n = 1; n <= 3; n++) {
        CHECK_OK(dl_halving_plan(&plan, n, 70, 20));
        rungs_are(1, (dl_rung[]){{n, 60}});
    }
}

TEST(short_rungs_have_two_rounds)
{
    CHECK_OK(dl_halving_plan(&plan, 9, 200, 60));
    rungs_are(2, (dl_rung[]){{9, 120}, {3, 180}});
}

TEST(too_few_steps_for_two_rounds_are_refused)
{
    CHECK_STATUS(DILOCO_EINVAL, dl_halving_plan(&plan, 9, 119, 60));
    CHECK_CONTAINS("119 steps", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, dl_halving_plan(&plan, 9, 1000, UINT64_MAX));
    CHECK_STATUS(DILOCO_EINVAL, dl_halving_plan(&plan, 9, 0, 1));
}

TEST_MAIN(a_third_of_the_candidates_gets_three_times_the_steps, three_candidates_have_one_rung,
          short_rungs_have_two_rounds, too_few_steps_for_two_rounds_are_refused)
