/* claims_test.c - a contribution's claims about itself count within bounds. */
#include "log/claims.h"

#include "check.h"

#include <math.h>

static const char *refused(uint64_t position, uint64_t steps, dl_train_bounds bounds)
{
    const dl_contribution c = {.stats.position = position,
                               .stats.steps = steps,
                               .stats.samples = 1,
                               .stats.end_sample = 1};
    return dl_claims_refuse(&c, &bounds);
}

TEST(a_position_or_steps_that_no_replica_can_have_are_refused)
{
    const dl_train_bounds round = {.since = 30, .due = 40, .steps = 10};
    CHECK(!refused(40, 10, round));
    CHECK(!refused(40, 1, round)); /* it joined late */
    CHECK_CONTAINS("position that no replica has reached", refused(41, 10, round));
    CHECK_CONTAINS("before that of its base", refused(29, 0, round));
    CHECK_CONTAINS("more steps", refused(40, 11, round));
    CHECK_CONTAINS("more steps", refused(35, 6, round));
    CHECK_CONTAINS("more steps", refused(40, UINT64_MAX, round));
    const dl_train_bounds async = {.due = UINT64_MAX, .steps = 10};
    CHECK(!refused(1000, 10, async));
    CHECK_CONTAINS("more steps", refused(1000, 11, async));
    CHECK_CONTAINS("more steps", refused(5, 6, async));
    CHECK(!refused(UINT64_MAX, UINT64_MAX, (dl_train_bounds){.due = 0}));
}

TEST(an_announcement_may_be_before_the_base)
{
    const dl_train_bounds round = {.since = 30, .due = 40, .steps = 10};
    CHECK(!dl_claims_refuse(&(dl_contribution){.stats.position = 0}, &round));
    CHECK_CONTAINS("position", dl_claims_refuse(&(dl_contribution){.stats.position = 41}, &round));
}

static const char *refused_samples(uint64_t samples, uint64_t first, uint64_t end,
                                   size_t n_assigned)
{
    const dl_train_bounds round = {.since = 30, .due = 40, .steps = 10};
    const dl_contribution c = {.stats = {.position = 40,
                                         .steps = 10,
                                         .samples = samples,
                                         .first_sample = first,
                                         .end_sample = end},
                               .assigned.n = n_assigned};
    return dl_claims_refuse(&c, &round);
}

/* A range may be longer than the samples: skipped positions skip samples. */
TEST(more_samples_than_the_range_has_are_refused)
{
    CHECK(!refused_samples(80, 100, 180, 0));
    CHECK(!refused_samples(80, 100, 300, 0));
    CHECK_CONTAINS("more samples", refused_samples(81, 100, 180, 0));
    CHECK_CONTAINS("more samples", refused_samples(UINT64_MAX, 100, 180, 0));
    CHECK(!refused_samples(80, 0, 0, 1)); /* the log has assigned them */
}

TEST(samples_count_up_to_16_times_the_median)
{
    dl_member_facts facts[] = {{.samples = 10, .tokens = 100},
                               {.samples = UINT64_MAX, .tokens = UINT64_MAX},
                               {.samples = 40, .tokens = 90}};
    dl_claims_cut(facts, 3);
    CHECK_INT(10, facts[0].samples);
    CHECK_INT(40 * DL_CLAIMS_CUT, facts[1].samples);
    CHECK_INT(100 * DL_CLAIMS_CUT, facts[1].tokens);
    CHECK_INT(40, facts[2].samples);
    dl_member_facts two[] = {{.samples = 10}, {.samples = UINT64_MAX}};
    dl_claims_cut(two, 2);
    CHECK_INT(10 * DL_CLAIMS_CUT, two[1].samples);
    dl_member_facts one[] = {{.samples = UINT64_MAX / 2}};
    dl_claims_cut(one, 1);
    CHECK_INT(UINT64_MAX / 2, one[0].samples);
}

/* tokens x tokens per step: a claim of few steps raises the weight, too. */
TEST(a_weight_counts_up_to_16_times_the_median)
{
    const dl_weighting *rule = dl_weighting_find("tokens2_per_step");
    dl_member members[] = {{.stats = {.samples = 24, .steps = 24, .tokens = 1000, .loss = 1}},
                           {.stats = {.samples = 24, .steps = 1, .tokens = 16000, .loss = 1}},
                           {.stats = {.samples = 24, .steps = 24, .tokens = 1000, .loss = 1}}};
    const dl_entry e = {.commit = true, .members = members, .n_members = 3};
    const dl_claims_medians medians = dl_claims_medians_of(&e, rule);
    dl_member_facts facts[3];
    uint64_t raw[3];
    float weight[3];
    for (size_t i = 0; i < 3; i++) {
        const dl_train_stats *s = &members[i].stats;
        facts[i] = (dl_member_facts){.samples = s->samples, .steps = s->steps, .tokens = s->tokens};
        const char *what = dl_claims_what_is_cut(&e, i, &medians);
        CHECK_STR(i == 1 ? "weight" : "nothing", what ? what : "nothing");
    }
    dl_claims_cut(facts, 3);
    CHECK_OK(dl_weights_raw(raw, rule, facts, 3));
    CHECK(raw[1] > 1000 * raw[0]);
    dl_claims_cut_weights(raw, 3);
    CHECK_INT(16 * raw[0], raw[1]);
    CHECK_OK(dl_weights_share(weight, raw, rule, 3));
    CHECK_NEAR(1.0 / 18, weight[0], 1e-7);
    uint64_t one[] = {UINT64_MAX}, none[] = {0, 0, 7};
    dl_claims_cut_weights(one, 1);
    CHECK(one[0] == UINT64_MAX);
    dl_claims_cut_weights(none, 3);
    CHECK_INT(7, none[2]);
}

static const char *cut(const double *losses, size_t n, size_t i, double *mean)
{
    dl_member members[8] = {{.stats.samples = 1}};
    const dl_entry e = {.commit = true, .members = members, .n_members = n};
    for (size_t k = 0; k < n; k++) {
        members[k].stats.samples = 1;
        members[k].stats.loss = losses[k];
    }
    *mean = dl_claims_mean_loss(&e);
    const dl_claims_medians medians = dl_claims_medians_of(&e, dl_weighting_find("num_samples"));
    return dl_claims_what_is_cut(&e, i, &medians);
}

TEST(a_loss_that_is_far_off_is_left_out_of_the_mean)
{
    double mean;
    CHECK_STR("loss", cut((double[]){2, 1e308, 4}, 3, 1, &mean));
    CHECK_NEAR(3, mean, 1e-12);
    CHECK_STR("loss", cut((double[]){2, -1e308, 4}, 3, 1, &mean));
    CHECK(cut((double[]){2e-9, 900, 0}, 3, 1, &mean) == NULL); /* near 0 any factor is possible */
    CHECK_NEAR(300, mean, 1e-6);
    CHECK(cut((double[]){2, NAN, 4}, 3, 1, &mean) == NULL);
    CHECK(isnan(mean)); /* one that reports none */
    CHECK(cut((double[]){1e308}, 1, 0, &mean) == NULL);
}

/* As many as an entry may have. A walk over all for each of them, three times, would take too long.
 */
TEST(the_largest_entry_is_looked_through)
{
    static dl_member members[DL_MAX_MEMBERS];
    const dl_entry e = {.commit = true, .members = members, .n_members = DL_MAX_MEMBERS};
    for (size_t i = 0; i < DL_MAX_MEMBERS; i++)
        members[i].stats = (dl_train_stats){.samples = 1 + i, .tokens = 1, .loss = 1};
    members[7].stats.samples = UINT64_MAX;
    const dl_claims_medians medians = dl_claims_medians_of(&e, dl_weighting_find("num_samples"));
    CHECK_NEAR(DL_MAX_MEMBERS / 2 + 1, medians.samples, 0);
    CHECK_NEAR(1, medians.tokens, 0);
    for (size_t i = 0; i < DL_MAX_MEMBERS; i++)
        CHECK((dl_claims_what_is_cut(&e, i, &medians) != NULL) == (i == 7));
}

TEST_MAIN(a_position_or_steps_that_no_replica_can_have_are_refused,
          an_announcement_may_be_before_the_base, more_samples_than_the_range_has_are_refused,
          samples_count_up_to_16_times_the_median, a_weight_counts_up_to_16_times_the_median,
          a_loss_that_is_far_off_is_left_out_of_the_mean, the_largest_entry_is_looked_through)
