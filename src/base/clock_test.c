/* clock_test.c - the arithmetic of times. */
#include "base/clock.h"

#include "check.h"

#include <signal.h>
#include <sys/time.h>

TEST(the_clock_does_not_go_back_and_sleep_sleeps)
{
    dl_time before = dl_clock_now();
    dl_clock_sleep(2 * DL_MILLISECOND);
    CHECK(dl_clock_now() >= before + 2 * DL_MILLISECOND);
    dl_clock_sleep(0);
    dl_clock_sleep(-DL_SECOND);
}

static void nothing(int signal_number)
{
    (void)signal_number;
}

TEST(a_signal_does_not_shorten_a_sleep)
{
    struct itimerval every = {{0, 1000}, {0, 1000}}, off = {0};
    void (*before_handler)(int) = signal(SIGALRM, nothing);
    CHECK_INT(0, setitimer(ITIMER_REAL, &every, NULL));
    dl_time before = dl_clock_now();
    dl_clock_sleep(10 * DL_MILLISECOND);
    dl_time after = dl_clock_now();
    setitimer(ITIMER_REAL, &off, NULL);
    signal(SIGALRM, before_handler);
    CHECK(after >= before + 10 * DL_MILLISECOND);
}

TEST(wall_time_is_of_this_century)
{
    CHECK(dl_clock_wall() > 1.6e9 && dl_clock_wall() < 4.2e9);
}

TEST(times_saturate_at_never)
{
    CHECK_INT(7, dl_time_after(3, 4));
    CHECK_INT(DL_NEVER, dl_time_after(3, DL_NEVER));
    CHECK_INT(DL_NEVER, dl_time_after(DL_NEVER, DL_SECOND));
    CHECK_INT(DL_NEVER, dl_time_from_seconds(1e300));
    CHECK_INT(1500 * DL_MILLISECOND, dl_time_from_seconds(1.5));
    CHECK_NEAR(1.5, dl_seconds(1500 * DL_MILLISECOND), 1e-12);
}

TEST_MAIN(the_clock_does_not_go_back_and_sleep_sleeps, a_signal_does_not_shorten_a_sleep,
          wall_time_is_of_this_century, times_saturate_at_never)
