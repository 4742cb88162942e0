/* launch_control.c - see launch_control.h. */
#include "launch/launch_control.h"

#include <stdarg.h>

double dl_control_period(const dl_control *c)
{
    return c->spec->config->launch_poll_s > 0 ? c->spec->config->launch_poll_s
                                              : c->executor->poll_s;
}

bool dl_control_is_spent(const dl_control *c)
{
    return c->most_machine_s > 0 && dl_book_machine_seconds(c->book) >= c->most_machine_s;
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
