/* launch_control.c - see launch_control.h. */
#include "launch/launch_control.h"

#include <stdarg.h>

/* Between two looks at `stop`. */
#define SLICE (100 * DL_MILLISECOND)

double dl_control_period(const dl_control *c)
{
    return c->spec->config->launch_poll_s > 0 ? c->spec->config->launch_poll_s
                                              : c->executor->poll_s;
}

bool dl_control_is_spent(const dl_control *c)
{
    return c->most_machine_s > 0 && dl_book_machine_seconds(c->book) >= c->most_machine_s;
}

bool dl_control_pause(const dl_control *c, double seconds)
{
    const dl_time due = dl_time_after(dl_clock_now(), dl_time_from_seconds(seconds));
    while (!(c->stop && *c->stop)) {
        const dl_time left = due - dl_clock_now();
        if (left <= 0) return true;
        dl_clock_sleep(left < SLICE ? left : SLICE);
    }
    return false;
}

/* A generation above 0 is a restart, which a person wants to know. */
void dl_control_print_state(const dl_control *c, const dl_job *job)
{
    dl_control_print(c, "r%u: %s%s%s%s", job->rank, dl_job_state_name(job->state),
                     *job->message ? ": " : "", job->message,
                     job->generation && !dl_job_is_over(job->state) ? " (started again)" : "");
}

void dl_control_print(const dl_control *c, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!c->on_notice) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    c->on_notice(c->user, line);
}
