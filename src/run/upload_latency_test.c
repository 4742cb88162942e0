/* upload_latency_test.c - the overlap that a replica would need, computed from event times. */
#include "run/upload_latency.h"

#include "check.h"

static void begin(dl_upload_latency *t, dl_arena *arena)
{
    dl_arena measure = {0};
    *t = (dl_upload_latency){0};
    dl_upload_latency_layout(t, &measure, 2);
    CHECK_OK(dl_arena_init(arena, measure.used));
    dl_upload_latency_layout(t, arena, 2);
}

/* Takes ten steps of 20 ms from `now` on. */
static dl_time train(dl_upload_latency *t, dl_time now)
{
    dl_upload_latency_train(t, now);
    now += 200 * DL_MILLISECOND;
    for (int i = 0; i < 10; i++)
        dl_upload_latency_step(t);
    dl_upload_latency_pause(t, now);
    return now;
}

TEST(alg_35_the_overlap_proposed_is_the_longest_upload_in_steps)
{
    dl_upload_latency t;
    dl_arena arena;
    begin(&t, &arena);
    CHECK_INT(0, dl_upload_latency_overlap(&t)); /* nothing has been measured */
    dl_time now = train(&t, DL_SECOND);
    CHECK_INT(0, dl_upload_latency_overlap(&t)); /* nor was it in flight */
    dl_upload_latency_captured(&t, 4, now);
    dl_upload_latency_captured(&t, 5, now);
    dl_upload_latency_applied(&t, 4, now + 61 * DL_MILLISECOND);
    CHECK_INT(4, dl_upload_latency_overlap(&t)); /* 3.05 steps */
    dl_upload_latency_applied(&t, 5, now + 130 * DL_MILLISECOND);
    CHECK_INT(7, dl_upload_latency_overlap(&t));
    for (uint64_t e = 6; e < 6 + DL_UPLOAD_LATENCIES; e++) { /* of the newest trips only */
        dl_upload_latency_captured(&t, e, now);
        dl_upload_latency_applied(&t, e, now + 40 * DL_MILLISECOND);
    }
    CHECK_INT(2, dl_upload_latency_overlap(&t));
    dl_arena_deinit(&arena);
}

TEST(contribution_of_another_generation_is_not_measured)
{
    dl_upload_latency t;
    dl_arena arena;
    begin(&t, &arena);
    dl_time now = train(&t, DL_SECOND);
    dl_upload_latency_applied(&t, 1, now);
    dl_upload_latency_captured(&t, 2, now);
    dl_upload_latency_applied(&t, 4, now + DL_SECOND); /* in the same place */
    CHECK_INT(0, dl_upload_latency_overlap(&t));
    dl_upload_latency_applied(&t, 2, now + 20 * DL_MILLISECOND);
    dl_upload_latency_applied(&t, 2, now + DL_SECOND); /* reported twice */
    CHECK_INT(1, dl_upload_latency_overlap(&t));
    dl_arena_deinit(&arena);
}

TEST(waiting_is_no_training)
{
    dl_upload_latency t;
    dl_arena arena;
    begin(&t, &arena);
    dl_time now = train(&t, DL_SECOND);
    dl_upload_latency_pause(&t, now + 10 * DL_SECOND); /* training is paused already */
    now = train(&t, now + 10 * DL_SECOND);
    dl_upload_latency_captured(&t, 0, now);
    dl_upload_latency_applied(&t, 0, now + 100 * DL_MILLISECOND);
    CHECK_INT(5, dl_upload_latency_overlap(&t));
    dl_arena_deinit(&arena);
}

TEST_MAIN(alg_35_the_overlap_proposed_is_the_longest_upload_in_steps,
          contribution_of_another_generation_is_not_measured, waiting_is_no_training)
