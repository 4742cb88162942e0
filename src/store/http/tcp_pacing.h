/* tcp_pacing.h - TCP lines that do not fill a router's queue, in which a heartbeat would have to
 * wait. */
#ifndef DL_STORE_HTTP_TCP_PACING_H
#define DL_STORE_HTTP_TCP_PACING_H

#include "base/clock.h"

#include <stdbool.h>

/* Pace the socket by the link's rate and round trip as the kernel measures them (BBR), not by
 * losses. It then fills no queue by itself, and tolerates losses. Where the kernel has no BBR that
 * we may use, nothing changes. */
void dl_line_pace(int fd);
/* The same of loopback, which has no router and loses nothing: no pacing, where BBR is this
 * machine's habit. Its timers cost more than they spread, and every ten seconds it holds a line
 * back to measure the round trip. */
void dl_line_unpace(int fd);

/* The kernel's measurements of a line. */
typedef struct dl_line {
    dl_time trip;     /* the round trip now; packets wait in queues for the time above the
                       * shortest */
    dl_time shortest; /* the shortest of the last minutes; 0: not known */
    double rate;      /* bytes/s that arrived lately */
    double average;   /* rate since the line began, while there was something to send */
    bool waits;       /* while we have nothing to send */
    double cap;       /* bytes/s that it may send; HUGE_VAL: as it likes */
} dl_line;

/* Several paced lines on one link still fill its queue within minutes: each takes the others'
 * packets in it for length of the link. So each sends a little less than arrives while the queue
 * holds more than half of the allowed length, which is a round trip (0.1 s at least). It sends more
 * again while the queue holds less, and so settles there (RFC 6817's idea). Never less than half
 * the average: another's traffic may keep the queue full. The cap to set. */
double dl_line_cap(const dl_line *line);

/* Hold a line to that, once in a while as much is sent over it. How long until the next time: a
 * cap shows after a round trip. */
dl_time dl_line_ease(int fd);

#endif
