/* log.c - the sink is set before other threads use the library (diloco_log_set says so),
 * so it is read without a lock. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

/* The sink of the program; NULL: lines are dropped. */
static diloco_log_fn sink;
static void *sink_user;
static diloco_log_level sink_level;

/* Lines above `level` are not built at all. */
void diloco_log_set(diloco_log_fn fn, void *user, diloco_log_level level)
{
    sink = fn;
    sink_user = user;
    sink_level = level;
}

/* A line may quote bytes from outside: nothing in it may look like a second line. */
static void make_one_line(char *line)
{
    for (; *line; line++)
        if ((unsigned char)*line < ' ' || *line == 127) *line = '?';
}

/* The sink runs on the calling thread. A line that is too long is cut. */
void dl_log(diloco_log_level level, const char *format, ...)
{
    if (!sink || level > sink_level) return;
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    make_one_line(line);
    sink(sink_user, level, line);
}
