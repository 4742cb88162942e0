/* tcp_pacing.c - see tcp_pacing.h. */
#include "store/http/tcp_pacing.h"

#include <linux/tcp.h> /* more than <netinet/tcp.h> knows */
#include <math.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

static const dl_time QUEUE = 100 * DL_MILLISECOND; /* that may always be */

/* Steps of the cap, as shares of the line's rate, for each queue of the allowed length that is
 * missing or too much. Then the largest single step, and how far above the arriving rate a cap has
 * no effect. Measured: with a slower MORE a line that began in others' queue takes seconds to
 * recover. */
static const double MORE = 0.6, LESS = 0.1, MOST = 0.2, FREE = 2;

static void set_control(int fd, const char *name, socklen_t len)
{
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, len);
}

void dl_line_pace(int fd)
{
    set_control(fd, "bbr", 3);
}

void dl_line_unpace(int fd)
{
    set_control(fd, "reno", 4); /* every kernel has it, and every process may use it */
}

/* Pure: returns the next cap from what was measured. A sender that had nothing to send learned
 * nothing, and keeps its cap. */
double dl_line_cap(const dl_line *line)
{
    const dl_time allowed = line->shortest > QUEUE ? line->shortest : QUEUE;
    const dl_time queue = line->trip - line->shortest;
    if (line->waits || !line->shortest || !(line->rate > 0)) return line->cap;
    const double over = dl_seconds(queue) / dl_seconds(allowed) - 0.5;
    if (over <= 0) return line->cap > FREE * line->rate ? HUGE_VAL : line->cap * (1 - MORE * over);
    const double now = fmin(line->cap, fmax(line->rate, line->average));
    return fmax(now * (1 - fmin(LESS * over, MOST)), line->average / 2);
}

/* Returns false if the kernel does not report enough, for example an old one. */
static bool look(dl_line *line, int fd)
{
    struct tcp_info info = {0};
    unsigned long cap = ~0UL;
    socklen_t len = sizeof info, cap_len = sizeof cap;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
        len < offsetof(struct tcp_info, tcpi_busy_time) + sizeof info.tcpi_busy_time ||
        getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &cap, &cap_len) || cap_len != sizeof cap)
        return false;
    const double busy_s = (double)info.tcpi_busy_time * 1e-6;
    *line = (dl_line){
        .trip = (dl_time)info.tcpi_rtt * (DL_MILLISECOND / 1000),
        .shortest = (dl_time)info.tcpi_min_rtt * (DL_MILLISECOND / 1000),
        .rate = (double)info.tcpi_delivery_rate,
        .average = busy_s > 0 ? (double)info.tcpi_bytes_acked / busy_s : 0,
        .waits = info.tcpi_delivery_rate_app_limited,
        .cap = cap == ~0UL ? HUGE_VAL : (double)cap,
    };
    return true;
}

/* Returns the time until the next look: two round trips, and at least QUEUE. */
dl_time dl_line_ease(int fd)
{
    dl_line line;
    if (!look(&line, fd)) return DL_SECOND;
    const double cap = dl_line_cap(&line);
    if (cap != line.cap) {
        const unsigned long bytes = isfinite(cap) ? (unsigned long)cap : ~0UL;
        (void)!setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes, sizeof bytes);
    }
    return 2 * line.trip > QUEUE ? 2 * line.trip : QUEUE;
}
