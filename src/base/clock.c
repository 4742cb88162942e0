/* clock.c - the operating system's clocks. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

dl_time dl_clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (dl_time)t.tv_sec * DL_SECOND + t.tv_nsec;
}

double dl_clock_wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Until a point in time, so that signals do not lengthen it. */
void dl_clock_sleep(dl_time duration)
{
    if (duration <= 0) return;
    dl_time until = dl_time_after(dl_clock_now(), duration);
    struct timespec t = {.tv_sec = (time_t)(until / DL_SECOND),
                         .tv_nsec = (long)(until % DL_SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}
