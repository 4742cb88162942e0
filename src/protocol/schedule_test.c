/* schedule_test.c - compares due points with the examples of the paper and of torchft. */
#include "protocol/schedule.h"

#include "check.h"

static dl_schedule of(const char *steps, const char *delay, const char *schedule, int n)
{
    dl_config c;
    dl_schedule s;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "trainer.local_steps_per_round", steps, "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.overlap_steps", delay, "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.schedule", schedule, "test"));
    CHECK_OK(dl_schedule_of(&s, &c, n));
    return s;
}

static diloco_status refused(const char *option, const char *value, const char *schedule, int n)
{
    dl_config c;
    dl_schedule s;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "trainer.local_steps_per_round", "12", "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.schedule", schedule, "test"));
    CHECK_OK(dl_config_set(&c, option, value, "test"));
    return dl_schedule_of(&s, &c, n);
}

TEST(alg_19_an_own_overlap_moves_the_adoption_and_nothing_else)
{
    dl_config c;
    dl_schedule all = of("100", "60", "offset", 2), own;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "trainer.local_steps_per_round", "100", "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.overlap_steps", "60", "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.own_overlap_steps", "7", "test"));
    CHECK_OK(dl_schedule_of(&own, &c, 2));
    for (uint64_t e = 0; e < 10; e++) {
        CHECK_INT(dl_schedule_capture(&all, e), dl_schedule_capture(&own, e));
        CHECK_INT(dl_schedule_capture(&all, e) + 7, dl_schedule_adopt(&own, e));
    }
    /* which the log says about all replicas */
    CHECK_INT(dl_schedule_ahead(&all), dl_schedule_ahead(&own));
    CHECK_OK(dl_config_set(&c, "server.diloco.own_overlap_steps", "61", "test"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_schedule_of(&own, &c, 2));
    CHECK_CONTAINS("is above server.diloco.overlap_steps = 60", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, refused("server.diloco.own_overlap_steps", "0", "torchft", 1));
    CHECK_STATUS(DILOCO_EREFUSED, refused("server.diloco.own_overlap_steps", "0", "async", 1));
}

TEST(one_fragment_is_due_every_H_steps)
{
    const dl_schedule s = of("5", "0", "offset", 1);
    for (uint64_t e = 0; e < 4; e++) {
        CHECK(dl_schedule_capture(&s, e) == (e + 1) * 5);
        CHECK(dl_schedule_adopt(&s, e) == (e + 1) * 5);
        CHECK(dl_schedule_fragment(&s, e, e) == 0);
    }
    CHECK(dl_schedule_ahead(&s) == 1);
    CHECK(dl_schedule_entries(&s, 4) == 4);
    CHECK(dl_schedule_round(&s, 3) == 3);
    const dl_schedule alone = {.interval = 5, .n_fragments = 1, .async = true, .replicas = 4};
    CHECK(dl_schedule_entries(&alone, 3) == 12);
    CHECK(dl_schedule_round(&alone, 3) == 0 && dl_schedule_round(&alone, 4) == 1);
    CHECK(dl_schedule_end(&s, 4) == 20);
}

/* 2501.18512 section 2.2: H = 100, P = 2: one at 100, 200, …, the other at 150, 250, …; the
 * firing at 50 is skipped. */
TEST(the_first_partial_interval_is_skipped)
{
    const dl_schedule s = of("100", "1", "offset", 2);
    const uint64_t at[] = {100, 150, 200, 250, 300, 350};
    for (uint64_t e = 0; e < 6; e++) {
        CHECK(dl_schedule_capture(&s, e) == at[e]);
        CHECK(dl_schedule_adopt(&s, e) == at[e] + 1);
        CHECK(dl_schedule_fragment(&s, e, 0) == e % 2);
    }
    CHECK(dl_schedule_entries(&s, 3) == 6);
    CHECK(dl_schedule_round(&s, 1) == 0 && dl_schedule_round(&s, 2) == 1);
    CHECK(dl_schedule_end(&s, 6) == 350);
}

TEST(every_fragment_is_due_when_its_offset_and_H_say_so)
{
    const dl_schedule s = of("7", "0", "offset", 3);
    for (uint64_t e = 0; e < 30; e++) {
        const uint64_t p = dl_schedule_fragment(&s, e, 0), t = dl_schedule_capture(&s, e);
        CHECK((t - p * 7 / 3) % 7 == 0 && t >= 7);
        if (e) CHECK(dl_schedule_capture(&s, e - 1) <= t);
    }
}

TEST(L_counts_the_due_points_within_tau)
{
    CHECK(dl_schedule_ahead(&(dl_schedule){.interval = 24, .n_fragments = 24, .delay = 2}) == 3);
    CHECK(dl_schedule_ahead(&(dl_schedule){.interval = 100, .n_fragments = 2, .delay = 49}) == 1);
    CHECK(dl_schedule_ahead(&(dl_schedule){.interval = 100, .n_fragments = 2, .delay = 50}) == 2);
    CHECK(dl_schedule_ahead(&(dl_schedule){.interval = 2, .n_fragments = 4}) == 2); /* two a step */
    CHECK(dl_schedule_ahead(&(dl_schedule){.interval = 9, .n_fragments = 1, .delay = 9}) == 2);
}

static dl_schedule phased(const char *phases, const char *steps, const char *delay, int n)
{
    dl_config c;
    dl_schedule s;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "trainer.local_steps_per_round", steps, "test"));
    CHECK_OK(dl_config_set(&c, "trainer.local_steps_phases", phases, "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.overlap_steps", delay, "test"));
    CHECK_OK(dl_schedule_of(&s, &c, n));
    return s;
}

TEST(first_rounds_may_be_shorter)
{
    const dl_schedule s = phased("3x10, 2x20", "100", "0", 1);
    const uint64_t at[] = {10, 20, 30, 50, 70, 170, 270};
    const uint64_t interval[] = {10, 10, 10, 20, 20, 100, 100};
    for (uint64_t e = 0; e < 7; e++) {
        CHECK_INT(at[e], dl_schedule_capture(&s, e));
        CHECK_INT(interval[e], dl_schedule_interval(&s, e));
        CHECK_INT(at[e], dl_schedule_steps(&s, e + 1));
    }
    CHECK_INT(270, dl_schedule_end(&s, 7));
    CHECK_INT(0, dl_schedule_steps(&s, 0));
}

/* Two fragments: the second is due in the middle of the next round, whatever its length is. */
TEST(phases_of_several_fragments_keep_their_order)
{
    const dl_schedule s = phased("2x10", "100", "4", 2);
    const uint64_t at[] = {10, 15, 20, 70, 120, 170, 220};
    const uint64_t interval[] = {10, 10, 10, 55, 100, 100, 100};
    for (uint64_t e = 0; e < 7; e++) {
        CHECK_INT(at[e], dl_schedule_capture(&s, e));
        CHECK_INT(interval[e], dl_schedule_interval(&s, e));
        CHECK_INT(at[e] + 4, dl_schedule_adopt(&s, e));
    }
}

TEST(L_counts_the_due_points_of_the_densest_rounds)
{
    const dl_schedule last = phased("3x100", "10", "6", 2), first = phased("3x10", "100", "6", 2);
    CHECK_INT(2, dl_schedule_ahead(&last));
    CHECK_INT(2, dl_schedule_ahead(&first));
    const dl_schedule one = phased("3x100", "10", "6", 1);
    CHECK_INT(1, dl_schedule_ahead(&one));
}

TEST(phases_that_cannot_be_are_refused_by_name)
{
    const char *bad[] = {"10",      "x10",  "3x",   "0x10", "3x0",          "3x10 5x20",
                         "3x10,,4", "-3x1", "3x1x", "3 x1", "123456789x10", "one"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_STATUS(DILOCO_EINVAL, refused("trainer.local_steps_phases", bad[i], "offset", 1));
    CHECK_CONTAINS("trainer.local_steps_phases", diloco_error_text());
    CHECK_OK(refused("trainer.local_steps_phases", " 3x10 , 2x4,1x1 ", "offset", 1));
    CHECK_STATUS(DILOCO_EREFUSED, refused("trainer.local_steps_phases", "3x6", "torchft", 1));
    CHECK_STATUS(DILOCO_EREFUSED, refused("trainer.local_steps_phases", "3x6", "async", 1));

    dl_config c;
    dl_schedule s;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "trainer.local_steps_phases", "3x6", "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.overlap_steps", "6", "test"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_schedule_of(&s, &c, 1));
    CHECK_OK(dl_config_set(&c, "server.diloco.overlap_steps", "5", "test"));
    CHECK_OK(dl_schedule_of(&s, &c, 1));
    CHECK_OK(dl_config_set(&c, "server.diloco.overlap", "eager", "test"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_schedule_of(&s, &c, 1));
}

TEST(torchft_fires_every_slice_and_retries_an_aborted_fragment)
{
    const dl_schedule s = of("6", "1", "torchft", 3);
    CHECK(dl_schedule_capture(&s, 0) == 1 && dl_schedule_adopt(&s, 0) == 2);
    CHECK(dl_schedule_capture(&s, 4) == 9 && dl_schedule_adopt(&s, 4) == 10);
    CHECK(dl_schedule_fragment(&s, 4, 4) == 1);
    CHECK(dl_schedule_fragment(&s, 5, 4) == 1); /* entry 4 aborted */
    CHECK(dl_schedule_ahead(&s) == 1);
}

TEST(impossible_schedules_are_refused_by_name)
{
    CHECK_STATUS(DILOCO_EREFUSED, refused("server.diloco.overlap_steps", "12", "offset", 2));
    CHECK_OK(refused("server.diloco.overlap_steps", "11", "offset", 2));
    CHECK_STATUS(DILOCO_EREFUSED, refused("server.diloco.overlap_steps", "6", "torchft", 2));
    CHECK_OK(refused("server.diloco.overlap_steps", "5", "torchft", 2));
    CHECK_STATUS(DILOCO_EREFUSED, refused("server.diloco.overlap_steps", "0", "torchft", 5));
    CHECK_STATUS(DILOCO_EREFUSED, refused("server.diloco.overlap", "eager", "torchft", 1));
    CHECK_OK(refused("server.diloco.overlap", "eager", "offset", 1)); /* a round is exempt (P21) */
}

TEST_MAIN(alg_19_an_own_overlap_moves_the_adoption_and_nothing_else,
          one_fragment_is_due_every_H_steps, the_first_partial_interval_is_skipped,
          every_fragment_is_due_when_its_offset_and_H_say_so, first_rounds_may_be_shorter,
          phases_of_several_fragments_keep_their_order,
          L_counts_the_due_points_of_the_densest_rounds, phases_that_cannot_be_are_refused_by_name,
          L_counts_the_due_points_within_tau,
          torchft_fires_every_slice_and_retries_an_aborted_fragment,
          impossible_schedules_are_refused_by_name)
