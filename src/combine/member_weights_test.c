/* member_weights_test.c - the rules of weighting: hand-worked weights, and every refusal. */
#include "combine/combine.h"

#include "check.h"

static uint64_t raw[4];
static float weight[4];

static diloco_status weigh(const char *rule, const dl_member_facts *members, size_t n)
{
    const dl_weighting *row = dl_weighting_find(rule);
    CHECK(row);
    return dl_weights(raw, weight, row, members, n);
}

TEST(the_table_finds_by_name_and_ends)
{
    CHECK_STR("uniform", dl_weighting_at(0)->name);
    CHECK(dl_weighting_find("num_samples") && dl_weighting_find("steps"));
    CHECK(!dl_weighting_find("tokens"));
    CHECK(!dl_weighting_at(1000));
}

TEST(each_rule_weighs_by_its_definition)
{
    dl_member_facts members[] = {
        {.samples = 100, .steps = 5}, {.samples = 300, .steps = 5}, {.samples = 1, .steps = 30}};
    CHECK_OK(weigh("uniform", members, 3));
    CHECK(raw[0] == 1 && raw[2] == 1);
    CHECK(weight[0] == (float)(1.0 / 3) && weight[1] == weight[0] && weight[2] == weight[0]);
    CHECK_OK(weigh("num_samples", members, 3));
    CHECK_INT(300, raw[1]);
    CHECK(weight[0] == (float)(100.0 / 401) && weight[1] == (float)(300.0 / 401));
    CHECK_OK(weigh("steps", members, 3));
    CHECK(weight[0] == 0.125f && weight[1] == 0.125f && weight[2] == 0.75f);
}

TEST(tokens2_per_step_is_rounded_once_and_never_overflows)
{
    dl_member_facts members[] = {{.samples = 1, .steps = 4, .tokens = 100},
                                 {.samples = 1, .steps = 3, .tokens = 10},  /* 33.3 */
                                 {.samples = 1, .steps = 8, .tokens = 10},  /* 12.5 */
                                 {.samples = 1, .steps = 0, .tokens = 10}}; /* none completed */
    CHECK_OK(weigh("tokens2_per_step", members, 4));
    CHECK_INT(2500, raw[0]);
    CHECK_INT(33, raw[1]);
    CHECK_INT(13, raw[2]);
    CHECK_INT(0, raw[3]);
    members[0].tokens = UINT64_MAX; /* its weight is 2^64 - 1, the others' are nothing beside it */
    CHECK_OK(weigh("tokens2_per_step", members, 4));
    CHECK(raw[0] == UINT64_MAX >> 2 && raw[1] == 8 && raw[2] == 3 && weight[0] == 1);
}

TEST(a_member_with_no_samples_cannot_count)
{
    dl_member_facts members[] = {{.samples = 100, .steps = 5}, {.samples = 0, .steps = 5}};
    CHECK_STATUS(DILOCO_EINVAL, weigh("uniform", members, 2));
    CHECK_CONTAINS("member 1", diloco_error_text());
}

TEST(weights_that_sum_to_nothing_are_refused)
{
    dl_member_facts members[] = {{.samples = 1, .steps = 0}, {.samples = 9, .steps = 0}};
    CHECK_STATUS(DILOCO_EINVAL, weigh("steps", members, 2));
    CHECK_STATUS(DILOCO_EINVAL, weigh("uniform", members, 0));
}

/* A hostile member's claim about itself does not prevent the entry. */
TEST(weights_that_sum_to_more_than_an_integer_holds_are_halved_together)
{
    dl_member_facts members[] = {{.samples = 1001}, {.samples = INT64_MAX - 1001}, {.samples = 8}};
    CHECK_OK(weigh("num_samples", members, 2));
    CHECK(raw[0] == 1001 && raw[1] == INT64_MAX - 1001);
    CHECK_OK(weigh("num_samples", members, 3));
    CHECK(raw[0] == 500 && raw[1] == INT64_MAX / 2 - 500 && raw[2] == 4);
    for (size_t m = 0; m < 3; m++)
        members[m].samples = UINT64_MAX;
    CHECK_OK(weigh("num_samples", members, 3));
    CHECK(raw[0] == UINT64_MAX >> 3 && raw[1] == raw[0] && raw[2] == raw[0]);
    CHECK(weight[0] == (float)(1.0 / 3));
}

TEST_MAIN(the_table_finds_by_name_and_ends, each_rule_weighs_by_its_definition,
          tokens2_per_step_is_rounded_once_and_never_overflows,
          a_member_with_no_samples_cannot_count, weights_that_sum_to_nothing_are_refused,
          weights_that_sum_to_more_than_an_integer_holds_are_halved_together)
