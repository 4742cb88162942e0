/* playback_test.c - small records, their play worked by hand. */
#include "plan/playback.h"

#include "check.h"

static dl_playback *playback;

static void begin(void)
{
    dl_playback_destroy(playback);
    CHECK_OK(dl_playback_create(&playback));
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

static void steps(const char *replica, int n, double seconds)
{
    for (int i = 0; i < n; i++)
        line("{\"event\":\"step\",\"replica\":\"%s\",\"tokens\":100,\"tokens_per_s\":%.9g}",
             replica, 100 / seconds);
}

static void contribution(const char *replica, int entry, double bytes, double put_s)
{
    line("{\"event\":\"contribution\",\"replica\":\"%s\",\"entry\":%d,\"bytes\":%.0f,\"encode_s\":"
         "0.5,"
         "\"put_s\":%g}",
         replica, entry, bytes, put_s);
}

static void commit(const char *replica, int entry, const char *members, double bytes, double wait_s,
                   double exchange_s)
{
    line("{\"event\":\"commit\",\"replica\":\"%s\",\"entry\":%d,\"members\":[%s],"
         "\"bytes_received\":%.0f,\"wait_s\":%g,\"exchange_s\":%g,\"outer_s\":0.25}",
         replica, entry, members, bytes, wait_s, exchange_s);
}

static void end(const char *replica, double utilization)
{
    line("{\"event\":\"end\",\"replica\":\"%s\",\"utilization\":%.9g}", replica, utilization);
}

static dl_playback_result play(double bps, double latency_s, const dl_plan_link *recorded, int tau)
{
    dl_playback_result r;
    dl_playback_args args = {.link = {bps, bps, latency_s}, .recorded = recorded, .tau = tau};
    CHECK_OK(dl_playback_predict(&r, playback, &args));
    return r;
}

/* r1 takes 2 s a step where r0 takes 1; an exchange is 1e6 bytes up, 2e6 down. */
static void two_replicas(int rounds)
{
    begin();
    line("{\"event\":\"run\",\"run\":\"x\",\"life\":\"r0.0000\"}");
    for (int e = 0; e < rounds; e++)
        for (int r = 0; r < 2; r++) {
            const char *name = r ? "r1" : "r0";
            steps(name, 10, r ? 2 : 1);
            contribution(name, e, 1e6, 0.1);
            commit(name, e, "\"r0\",\"r1\"", 2e6, r ? 0 : 10, 1.25);
        }
}

/* Local work is 1.25 - 0.1 * (1 + 2) = 0.95 s, 0.5 of it before the put. On 8 Mbit/s: 20 s of r1's
 * steps, 0.5 + 1 s up, 2 s down, 0.45 s; latency 2 + 3 + 2 requests. */
TEST(a_blocking_round_is_the_slowest_replica_then_up_down_and_local_work)
{
    two_replicas(3);
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_INT(2, r.replicas);
    CHECK_INT(3, r.entries);
    CHECK_INT(60, r.steps);
    CHECK_INT(0, r.tau);
    CHECK_NEAR(6e6, r.bytes_sent, 0);
    CHECK_NEAR(12e6, r.bytes_received, 0);
    CHECK_NEAR(3 * 23.95, r.predicted_s, 1e-6);
    CHECK_NEAR((30 / 71.85 + 60 / 71.85) / 2, r.predicted_utilization, 1e-6);
    CHECK_NEAR(3 * (23.95 + 7 * 0.1), play(8e6, 0.1, NULL, -1).predicted_s, 1e-6);
}

/* 0.1 s up and 0.2 s down at 80 Mbit/s, 7 requests of 0.05 s: 0.6 s of local work are left. */
TEST(the_records_own_link_is_taken_out)
{
    dl_plan_link recorded = {80e6, 80e6, 0.05};
    two_replicas(3);
    CHECK_NEAR(3 * (20 + 0.5 + 1 + 2 + 0.25), play(8e6, 0, &recorded, -1).predicted_s, 1e-6);
}

TEST(on_its_own_link_a_record_comes_out_as_it_was)
{
    dl_plan_link recorded = {80e6, 80e6, 0.01};
    two_replicas(3);
    CHECK_NEAR(3 * (20 + 1.25), play(80e6, 0.01, &recorded, -1).predicted_s, 0.05);
}

/* 30 steps of r1 are 60 s of 65 recorded: 1.25 are besides. */
TEST(what_was_neither_step_nor_exchange_is_added_as_it_was)
{
    two_replicas(3);
    end("r0", 30 / 65.0);
    end("r1", 60 / 65.0);
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_NEAR(65, r.measured_s, 1e-6);
    CHECK_NEAR(90 / 130.0, r.measured_utilization, 1e-6);
    CHECK_NEAR(3 * 23.95 + (65 - 60 - 3 * 1.25), r.predicted_s, 1e-6);
}

/* One replica, 4 steps an entry, adopted 2 steps later: 0.5 + 1 s up and 1 s down and 0.45 s of
 * work are hidden by 3 s of steps; at 1/10 of the rate 20 s up and down less 2 s of steps are not.
 */
static void overlapped(void)
{
    begin();
    steps("r0", 4, 1.5);
    for (int e = 0; e < 4; e++) {
        contribution("r0", e, 1e6, 0.15);
        steps("r0", 2, 1.5);
        commit("r0", e, "\"r0\"", 1e6, 0, 1.25);
        steps("r0", 2, 1.5);
    }
}

TEST(an_overlapped_exchange_costs_only_what_training_does_not_hide)
{
    overlapped();
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_INT(2, r.tau);
    CHECK_NEAR(20 * 1.5, r.predicted_s, 1e-6);
    CHECK_NEAR(1, r.predicted_utilization, 1e-9);
    CHECK_NEAR(30 + 4 * (0.5 + 10 + 10 + 0.45 - 3), play(8e5, 0, NULL, -1).predicted_s, 1e-6);
}

/* The same link with tau 4, by hand. Up: 6.5 to 16.5, to 26.5, 33.45 to 43.45, to 53.45; there,
 * down and worked on: 26.95, 36.95, 53.9, and the last, behind the last steps, 63.9. */
TEST(another_tau_can_be_asked_for)
{
    overlapped();
    CHECK_INT(4, play(8e5, 0, NULL, 4).tau);
    CHECK_NEAR(63.9, play(8e5, 0, NULL, 4).predicted_s, 1e-6);
}

TEST(only_the_last_life_of_a_replica_counts)
{
    begin();
    steps("r0", 100, 1);
    line("{\"event\":\"run\",\"run\":\"x\",\"life\":\"r0.0001\"}");
    steps("r0", 10, 1);
    contribution("r0", 7, 8, 0);
    commit("r0", 7, "\"r0\"", 8, 0, 0);
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
    commit("r0", 0, "\"r0\",\"r1\",\"r2\"", 3e6, 5, 0.75);
    dl_playback_result r = play(8e6, 0, NULL, -1);
    CHECK_INT(2, r.absent);
    CHECK_INT(1, r.replicas);
    CHECK_NEAR(10 + 0.5 + 1 + 3 + 0.25, r.predicted_s, 1e-6);
}

/* r1's contribution to entry 0 is in the record, its own word of the entry is not: so it is not
 * known to count, and r0 goes on. r0 waits for entry 1 until r1 has sent to it. */
TEST(a_record_with_gaps_is_played_to_its_end)
{
    begin();
    steps("r0", 1, 1), steps("r1", 5, 1);
    contribution("r0", 0, 8, 0), contribution("r1", 0, 8, 0);
    commit("r0", 0, "\"r0\",\"r1\"", 8, 0, 0);
    steps("r0", 1, 1), steps("r1", 5, 1);
    contribution("r0", 1, 8, 0), contribution("r1", 1, 8, 0);
    commit("r0", 1, "\"r0\",\"r1\"", 8, 0, 0);
    commit("r1", 1, "\"r0\",\"r1\"", 8, 0, 0);
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
    check_refused("tokens", "{\"event\":\"step\",\"replica\":\"r0\"}");
    check_refused("tokens_per_s",
                  "{\"event\":\"step\",\"replica\":\"r0\",\"tokens\":1,\"tokens_per_s\":0}");
    check_refused("bytes",
                  "{\"event\":\"contribution\",\"replica\":\"r0\",\"entry\":1,\"bytes\":-1}");
}

TEST(a_record_without_steps_or_entries_cannot_be_replayed)
{
    dl_playback_result r;
    dl_playback_args args = {.link = {1, 1, 0}, .tau = -1};
    begin();
    line("{\"event\":\"eval\",\"loss\":1}");
    CHECK_STATUS(DILOCO_EINVAL, dl_playback_predict(&r, playback, &args));
    CHECK_CONTAINS("no entries", diloco_error_text());
    commit("r0", 0, "\"r0\"", 8, 0, 0);
    CHECK_STATUS(DILOCO_EINVAL, dl_playback_predict(&r, playback, &args));
    CHECK_CONTAINS("no steps", diloco_error_text());
    dl_playback_destroy(playback);
    playback = NULL;
}

TEST_MAIN(a_blocking_round_is_the_slowest_replica_then_up_down_and_local_work,
          the_records_own_link_is_taken_out, on_its_own_link_a_record_comes_out_as_it_was,
          what_was_neither_step_nor_exchange_is_added_as_it_was,
          an_overlapped_exchange_costs_only_what_training_does_not_hide,
          another_tau_can_be_asked_for, only_the_last_life_of_a_replica_counts,
          a_member_that_left_no_record_is_counted_and_not_waited_for,
          a_record_with_gaps_is_played_to_its_end, lines_that_are_none_of_a_record_are_refused,
          a_record_without_steps_or_entries_cannot_be_replayed)
