/* playback_test.c - small records, their play worked by hand. */
#include "plan/playback.h"

#include "check.h"

static dl_playback *playback;
static int taken[2]; /* steps of r0, r1; a record may begin anywhere */

static void begin(void)
{
    dl_playback_destroy(playback);
    CHECK_OK(dl_playback_create(&playback));
    taken[0] = taken[1] = 1000;
}

__attribute__((format(printf, 1, 2))) static void line(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    CHECK_OK(dl_playback_line(playback, text, (size_t)len));
}

static int *taken_by(const char *replica)
{
    return &taken[replica[1] - '0'];
}

static void steps(const char *replica, int n, double seconds)
{
    for (int i = 0; i < n; i++)
        line("{\"event\":\"step\",\"replica\":\"%s\",\"step\":%d,\"tokens\":100,"
             "\"tokens_per_s\":%.9g}",
             replica, ++*taken_by(replica), 100 / seconds);
}

/* Its line is where it is called; it was taken `late` steps earlier. */
static void late_contribution(const char *replica, int entry, double bytes, double put_s, int late)
{
    line("{\"event\":\"contribution\",\"replica\":\"%s\",\"entry\":%d,\"step\":%d,\"bytes\":%.0f,"
         "\"encode_s\":0.5,\"put_s\":%g}",
         replica, entry, *taken_by(replica) - late, bytes, put_s);
}

static void contribution(const char *replica, int entry, double bytes, double put_s)
{
    late_contribution(replica, entry, bytes, put_s, 0);
}

static void commit(const char *replica, int entry, const char *members, double bytes)
{
    line("{\"event\":\"commit\",\"replica\":\"%s\",\"entry\":%d,\"members\":[%s],"
         "\"bytes_received\":%.0f,\"outer_s\":0.25,\"committer\":\"r0.0000\"}",
         replica, entry, members, bytes);
}

static void end(const char *replica, double utilization, double sent, double received,
                double background_sent, double background_received)
{
    line("{\"event\":\"end\",\"replica\":\"%s\",\"utilization\":%.17g,\"bytes_sent\":%.0f,"
         "\"bytes_received\":%.0f,\"background_bytes_sent\":%.0f,"
         "\"background_bytes_received\":%.0f}",
         replica, utilization, sent, received, background_sent, background_received);
}

static dl_playback_result play(double bps, double latency_s, const dl_plan_link *recorded, int tau)
{
    dl_playback_result r;
    dl_playback_args args = {.link = {bps, bps, latency_s}, .recorded = recorded, .tau = tau};
    CHECK_OK(dl_playback_predict(&r, playback, &args));
    return r;
}

/* r1 takes 2 s a step where r0 takes 1; an exchange is 1e6 bytes up at 80 Mbit/s, 2e6 down. */
static void two_replicas(int rounds)
{
    begin();
    line("{\"event\":\"run\",\"run\":\"x\",\"life\":\"r0.0000\"}");
    for (int e = 0; e < rounds; e++)
        for (int r = 0; r < 2; r++) {
            const char *name = r ? "r1" : "r0";
            steps(name, 10, r ? 2 : 1);
            contribution(name, e, 1e6, 0.1);
            commit(name, e, "\"r0\",\"r1\"", 2e6);
        }
}

static void both_end_after(double seconds)
{
    end("r0", 30 / seconds, 3e6, 6e6, 0, 0);
    end("r1", 60 / seconds, 3e6, 6e6, 0, 0);
}

/* On 8 Mbit/s: 20 s of r1's steps, 0.5 of encoding, 1 up, 2 down, 0.25 of the outer step; latency
 * is that of 2 + 2 + 2 requests. */
TEST(a_blocking_round_is_the_slowest_replica_then_up_down_and_the_outer_step)
{
    two_replicas(3);
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_INT(2, r.replicas);
    CHECK_INT(3, r.entries);
    CHECK_INT(60, r.steps);
    CHECK_INT(0, r.tau);
    CHECK_INT(0, r.ended);
    CHECK_NEAR(6e6, r.bytes_sent, 0);
    CHECK_NEAR(12e6, r.bytes_received, 0);
    CHECK_NEAR(3 * 23.75, r.predicted_s, 1e-6);
    CHECK_NEAR((30 + 60) / 71.25 / 2, r.predicted_utilization, 1e-6);
    CHECK_NEAR(3 * (23.75 + 6 * 0.1), play(8e6, 0.1, NULL, -1).predicted_s, 1e-6);
}

/* On 80 Mbit/s and 50 ms it would have taken 3 * 21.35 s. */
TEST(on_its_own_link_a_record_comes_out_as_it_was)
{
    dl_plan_link recorded = {80e6, 80e6, 0.05};
    two_replicas(3);
    both_end_after(70);
    dl_playback_result r = play(80e6, 0.05, &recorded, -1);
    CHECK_NEAR(70, r.measured_s, 1e-6);
    CHECK_NEAR(90 / 140.0, r.measured_utilization, 1e-6);
    CHECK_NEAR(70, r.predicted_s, 1e-6);
    CHECK_NEAR(90 / 140.0, r.predicted_utilization, 1e-6);
    CHECK_NEAR(3 * 23.75 + 70 - 3 * 21.35, play(8e6, 0, &recorded, -1).predicted_s, 1e-6);
}

TEST(a_run_that_was_tried_on_a_link_names_it)
{
    two_replicas(3);
    both_end_after(70);
    line("{\"event\":\"run\",\"run\":\"x\",\"link\":\"80mbit,50ms\"}");
    CHECK_NEAR(3 * 23.75 + 70 - 3 * 21.35, play(8e6, 0, NULL, -1).predicted_s, 1e-6);
    const dl_plan_link other = {80e6, 80e6, 0};
    CHECK_NEAR(3 * 6 * 0.05 + play(8e6, 0, NULL, -1).predicted_s,
               play(8e6, 0, &other, -1).predicted_s, 1e-6);
    line("{\"event\":\"run\",\"run\":\"x\",\"link\":\"80mbit,50ms,1%%\"}"); /* estimated */
    CHECK_NEAR(3 * 23.75 + 70 - 3 * 21.05, play(8e6, 0, NULL, -1).predicted_s, 1e-6);
}

/* The link is estimated: 0.1 s up, 0.2 s down, so 3 * 21.05 s. Where that is more than was
 * measured, the estimate was wrong, and nothing is taken off. */
TEST(time_beyond_the_recorded_link_is_added_unchanged)
{
    two_replicas(3);
    both_end_after(65);
    CHECK_NEAR(3 * 23.75 + 65 - 3 * 21.05, play(8e6, 0, NULL, -1).predicted_s, 1e-6);
    two_replicas(3);
    both_end_after(62);
    CHECK_NEAR(3 * 23.75, play(8e6, 0, NULL, -1).predicted_s, 1e-6);
}

/* By hand, on 8 Mbit/s. The entry that the replica joined with had 5e6 bytes more: 5 s. Then 1 s of
 * steps; up from 6.5 to 7.5, down to 8.5, outer step to 8.75. A snapshot of 1e6 bytes up and 2e6
 * down ends at 11.75. Only then comes the next contribution, to 12.75; then 13.75, 14; the last
 * snapshot takes 3 s.
 */
TEST(snapshots_hold_up_the_next_contribution_and_the_end)
{
    begin();
    for (int e = 0; e < 2; e++) {
        steps("r0", 10, 0.1);
        contribution("r0", e, 1e6, 0);
        commit("r0", e, "\"r0\"", e ? 1e6 : 6e6);
    }
    end("r0", 2 / 4.0, 3e6, 9e6, 2e6, 4e6);
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_NEAR(4, r.measured_s, 1e-9);
    CHECK_NEAR(17 + 4 - 3.5, r.predicted_s, 1e-6); /* 3.5 without a link */
}

/* One replica, 4 steps an entry, adopted 2 steps later: 0.5 + 1 s up and 1 s down and 0.45 s of
 * work are hidden by 3 s of steps. At 1/10 of the rate 20 s up and down less 2 s of steps are not.
 */
static void overlapped(void)
{
    begin();
    steps("r0", 4, 1.5);
    for (int e = 0; e < 4; e++) {
        steps("r0", 1, 1.5);
        late_contribution("r0", e, 1e6, 0.15, 1);
        steps("r0", 1, 1.5);
        commit("r0", e, "\"r0\"", 1e6);
        steps("r0", 2, 1.5);
    }
}

TEST(an_overlapped_exchange_costs_only_the_time_beyond_training)
{
    overlapped();
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_INT(2, r.tau);
    CHECK_NEAR(20 * 1.5, r.predicted_s, 1e-6);
    CHECK_NEAR(1, r.predicted_utilization, 1e-9);
    CHECK_NEAR(30 + 4 * (0.5 + 10 + 10 + 0.25 - 3), play(8e5, 0, NULL, -1).predicted_s, 1e-6);
}

/* The same link with tau 4, by hand. Up: 6.5 to 16.5, to 26.5, 33.25 to 43.25, to 53.25; there,
 * down and worked on: 26.75, 36.75, 53.5, and the last, after the last steps, 63.5. */
TEST(another_tau_can_be_asked_for)
{
    overlapped();
    CHECK_INT(4, play(8e5, 0, NULL, 4).tau);
    CHECK_NEAR(63.5, play(8e5, 0, NULL, 4).predicted_s, 1e-6);
}

TEST(only_the_last_generation_of_a_replica_counts)
{
    begin();
    steps("r0", 100, 1);
    line("{\"event\":\"run\",\"run\":\"x\",\"life\":\"r0.0001\"}");
    steps("r0", 10, 1);
    contribution("r0", 7, 8, 0);
    commit("r0", 7, "\"r0\"", 8);
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_INT(10, r.steps);
    CHECK_INT(1, r.entries);
    CHECK_NEAR(0, r.measured_s, 0);
}

TEST(a_member_that_left_no_record_is_counted_and_not_waited_for)
{
    begin();
    steps("r0", 10, 1);
    contribution("r0", 0, 1e6, 0);
    commit("r0", 0, "\"r0\",\"r1\",\"r2\"", 3e6);
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_INT(2, r.absent);
    CHECK_INT(1, r.replicas);
    CHECK_NEAR(10 + 0.5 + 1 + 3 + 0.25, r.predicted_s, 1e-6);
}

/* r1's contribution to entry 0 is in the record, its own word of the entry is not: so it is not
 * known to count, and r0 continues. r0 waits for entry 1 until r1 has sent to it. */
TEST(a_record_with_gaps_is_played_to_its_end)
{
    begin();
    steps("r0", 1, 1), steps("r1", 5, 1);
    contribution("r0", 0, 8, 0), contribution("r1", 0, 8, 0);
    commit("r0", 0, "\"r0\",\"r1\"", 8);
    steps("r0", 1, 1), steps("r1", 5, 1);
    contribution("r0", 1, 8, 0), contribution("r1", 1, 8, 0);
    commit("r0", 1, "\"r0\",\"r1\"", 8);
    commit("r1", 1, "\"r0\",\"r1\"", 8);
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_NEAR(10 + 0.5 + 0.25, r.predicted_s, 0.01);
}

static void check_refused(const char *part, const char *text)
{
    begin();
    CHECK_STATUS(DILOCO_EPROTO, dl_playback_line(playback, text, strlen(text)));
    CHECK_CONTAINS("line 1 of the record", diloco_error_text());
    CHECK_CONTAINS(part, diloco_error_text());
}

TEST(lines_that_are_none_of_a_record_are_refused)
{
    check_refused("", "");
    check_refused("event", "{}");
    check_refused("step",
                  "{\"event\":\"step\",\"replica\":\"r0\",\"tokens\":1,\"tokens_per_s\":1}");
    check_refused("tokens", "{\"event\":\"step\",\"replica\":\"r0\"}");
    check_refused(
        "tokens_per_s",
        "{\"event\":\"step\",\"replica\":\"r0\",\"step\":1,\"tokens\":1,\"tokens_per_s\":0}");
    check_refused(
        "bytes",
        "{\"event\":\"contribution\",\"replica\":\"r0\",\"entry\":1,\"step\":1,\"bytes\":-1}");
}

TEST(a_record_without_steps_or_entries_cannot_be_replayed)
{
    dl_playback_result r;
    dl_playback_args args = {.link = {1, 1, 0}, .tau = -1};
    begin();
    line("{\"event\":\"eval\",\"loss\":1}");
    CHECK_STATUS(DILOCO_EINVAL, dl_playback_predict(&r, playback, &args));
    CHECK_CONTAINS("no entries", diloco_error_text());
    commit("r0", 0, "\"r0\"", 8);
    CHECK_STATUS(DILOCO_EINVAL, dl_playback_predict(&r, playback, &args));
    CHECK_CONTAINS("no steps", diloco_error_text());
    dl_playback_destroy(playback);
    playback = NULL;
}

TEST_MAIN(a_blocking_round_is_the_slowest_replica_then_up_down_and_the_outer_step,
          on_its_own_link_a_record_comes_out_as_it_was, a_run_that_was_tried_on_a_link_names_it,
          time_beyond_the_recorded_link_is_added_unchanged,
          snapshots_hold_up_the_next_contribution_and_the_end,
          an_overlapped_exchange_costs_only_the_time_beyond_training, another_tau_can_be_asked_for,
          only_the_last_generation_of_a_replica_counts,
          a_member_that_left_no_record_is_counted_and_not_waited_for,
          a_record_with_gaps_is_played_to_its_end, lines_that_are_none_of_a_record_are_refused,
          a_record_without_steps_or_entries_cannot_be_replayed)
