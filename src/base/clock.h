/* clock.h - time. Only dl_clock_now decides anything; wall time is for people. */
#ifndef DL_BASE_CLOCK_H
#define DL_BASE_CLOCK_H

#include <stdint.h>

typedef int64_t dl_time; /* nanoseconds on this machine's monotonic clock */

#define DL_SECOND      ((dl_time)1000000000)
#define DL_MILLISECOND ((dl_time)1000000)
#define DL_NEVER       ((dl_time)INT64_MAX)

/* Time since an arbitrary start; it never goes back. Times of two machines cannot be compared. */
dl_time dl_clock_now(void);
double dl_clock_wall(void); /* seconds since 1970 */
void dl_clock_sleep(dl_time duration);
/* Converts a duration to seconds. */
static inline double dl_seconds(dl_time t)
{
    return (double)t * 1e-9;
}
/* `t` later, saturating at DL_NEVER. */
static inline dl_time dl_time_after(dl_time t, dl_time duration)
{
    return duration >= DL_NEVER - t ? DL_NEVER : t + duration;
}
/* Durations beyond about 292 years become DL_NEVER, which a nanosecond count could not hold. */
static inline dl_time dl_time_from_seconds(double s)
{
    return s >= 9.2e9 ? DL_NEVER : (dl_time)(s * 1e9);
}

#endif
