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

double dl_control_machine_cost(const dl_control *c)
{
    return dl_book_machine_seconds(c->book) / 3600 * c->machine_hour;
}

static double store_cost(const dl_control *c)
{
    return c->store_cost ? *c->store_cost : 0;
}

bool dl_control_is_spent(const dl_control *c)
{
    return c->budget > 0 && dl_control_machine_cost(c) + store_cost(c) >= c->budget;
}

const char *dl_control_spent_text(char out[DL_CONTROL_SPENT], const dl_control *c)
{
    char store[48] = "";
    if (c->store_cost) snprintf(store, sizeof store, "store %.2f, ", *c->store_cost);
    snprintf(out, DL_CONTROL_SPENT, "launch.budget is used up (machine time %.2f, %sof %.2f)",
             dl_control_machine_cost(c), store, c->budget);
    return out;
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
