/* tcp_pacing_test.c - the rate that a line may send, by the kernel's measurements of it. */
#include "store/http/tcp_pacing.h"

#include "check.h"

#include <math.h>

#define MS DL_MILLISECOND

/* A line of 1 MB/s and 100 ms with such a queue. */
static dl_line with_queue(dl_time queue, double cap)
{
    return (dl_line){
        .trip = 100 * MS + queue, .shortest = 100 * MS, .rate = 1e6, .average = 1e6, .cap = cap};
}

static double cap_of(dl_line line)
{
    return dl_line_cap(&line);
}

TEST(a_line_with_a_short_queue_sends_as_it_likes)
{
    CHECK(isinf(cap_of(with_queue(0, HUGE_VAL))));
    CHECK(isinf(cap_of(with_queue(49 * MS, HUGE_VAL))));
    dl_line far = with_queue(140 * MS, HUGE_VAL); /* a round trip of 0.4 s allows more */
    far.trip += 300 * MS, far.shortest += 300 * MS;
    CHECK(isinf(cap_of(far)));
}

TEST(behind_a_long_queue_it_sends_less_than_arrives)
{
    CHECK_NEAR(0.95e6, cap_of(with_queue(100 * MS, HUGE_VAL)), 1);
    CHECK_NEAR(0.95 * 0.9e6, cap_of(with_queue(100 * MS, 0.9e6)), 1); /* which was not enough */
    CHECK_NEAR(0.8e6, cap_of(with_queue(900 * MS, HUGE_VAL)), 1);     /* at once, no less */
}

TEST(the_shorter_the_queue_the_sooner_it_is_let_go)
{
    CHECK_NEAR(1.3e6, cap_of(with_queue(0, 1e6)), 1);
    CHECK_NEAR(1.06e6, cap_of(with_queue(40 * MS, 1e6)), 1);
    CHECK_NEAR(1e6, cap_of(with_queue(50 * MS, 1e6)), 1);
    double cap = 0.5e6;
    for (int i = 0; i < 10 && isfinite(cap); i++)
        cap = cap_of(with_queue(0, cap));
    CHECK(isinf(cap)); /* the line is not limited by its cap */
}

/* Another's traffic keeps the queue full, whatever we do. */
TEST(no_queue_brings_it_below_half_its_average)
{
    double cap = HUGE_VAL;
    for (int i = 0; i < 100; i++)
        cap = cap_of(with_queue(900 * MS, cap));
    CHECK_NEAR(0.5e6, cap, 1);
}

/* A round trip that held the line back for a moment, as BBR does to measure, is no new rate. */
TEST(one_slow_moment_does_not_count_beside_the_average)
{
    dl_line line = with_queue(200 * MS, HUGE_VAL);
    line.rate = 0.1e6;
    CHECK_NEAR(0.85e6, cap_of(line), 1);
}

TEST(unknown_pacing_changes_nothing)
{
    dl_line line = with_queue(900 * MS, 3e6);
    line.waits = true;
    CHECK_NEAR(3e6, cap_of(line), 0);
    line = with_queue(900 * MS, 3e6);
    line.rate = 0;
    CHECK_NEAR(3e6, cap_of(line), 0);
    line = with_queue(0, 3e6);
    line.shortest = 0;
    CHECK_NEAR(3e6, cap_of(line), 0);
    CHECK(dl_line_ease(-1) > 0); /* no socket, no harm */
}

TEST_MAIN(a_line_with_a_short_queue_sends_as_it_likes,
          behind_a_long_queue_it_sends_less_than_arrives,
          the_shorter_the_queue_the_sooner_it_is_let_go, no_queue_brings_it_below_half_its_average,
          one_slow_moment_does_not_count_beside_the_average, unknown_pacing_changes_nothing)
