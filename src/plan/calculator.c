/* calculator.c - DL_RULES_CALCULATOR of published.h: 128 buckets with one deadline.
 *
 * The buckets of a step are released at equal distances and take equal times, so their queue has a
 * closed form (last_bucket). At most one transfer of a fragment is in the air (tau < H), so `ends`
 * holds one for each fragment. */
#include "plan/published.h"

#include <math.h>

/* Constants of mino98/diloco-calculator; a run is as long as its own. */
enum { BUCKETS = 128, RUN_INTERVALS = 3, RUN_MIN_STEPS = 2000 };

/* When the last bucket is through a queue that is free from `link` on. The j-th is released at
 * first + j * apart. After the last one that found the queue empty, all later ones follow without a
 * gap. Their end is linear in j, so the first or the last decides. */
static double last_bucket(double link, double first, double apart, double transfer)
{
    double from_first = fmax(link, first) + BUCKETS * transfer;
    double from_last = first + (BUCKETS - 1) * apart + transfer;
    return fmax(from_first, from_last);
}

/* Return the number of fragments that are due at step t. Those that are due at the same step
 * follow each other. */
static uint64_t fragments_due(const dl_published *p, uint64_t t)
{
    uint64_t fragment, n = 0, P = dl_published_fragments(p);
    if (!dl_published_due(&fragment, p, t)) return 0;
    while (fragment + n < P && (fragment + n) * p->sync_every / P == t % p->sync_every)
        n++;
    return n;
}

/* Only `now`, the compute stream, and `link`, the end of the queue, move. Waits are FIFO: the
 * fragments of step t - tau are awaited in the order in which they were sent. */
double dl_calculator_utilization(const dl_published *p, double gbit)
{
    double forward = p->step_s / 3, apart = (p->step_s - forward) / BUCKETS;
    double whole = p->parameters * p->bits * 2 * (1 - 1.0 / p->replicas) / (gbit * 1e9);
    double share = whole / (double)dl_published_fragments(p) / BUCKETS; /* a fragment's bucket */
    double now = 0, link = 0, ends[DL_PLAN_MAX_LAYERS];
    uint64_t steps = RUN_INTERVALS * (uint64_t)p->sync_every, sent = 0, awaited = 0;
    steps = steps > RUN_MIN_STEPS ? steps : RUN_MIN_STEPS;
    for (uint64_t t = 1; t <= steps; t++) {
        uint64_t n = fragments_due(p, t);
        if (n) {
            link = last_bucket(link, now + forward + apart, apart, (double)n * share);
            ends[sent++ % DL_PLAN_MAX_LAYERS] = link;
        }
        now += p->step_s;
        if (t > p->tau && fragments_due(p, t - p->tau))
            now = fmax(now, ends[awaited++ % DL_PLAN_MAX_LAYERS]);
    }
    return (double)steps * p->step_s / fmax(now, link);
}
