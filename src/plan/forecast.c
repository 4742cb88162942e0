/* forecast.c - one exchange by the formulas of forecast.h, then a run as a walk along one replica.
 * The walk has its steps, its link as a queue in order, and the waits at t + tau.
 *
 * Replicas are equal, so at an exchange all of them are at the same place, and the longest path
 * of one replica is that of all. */
#include "plan/forecast.h"

#include <math.h>

enum { WALK_INTERVALS = 5, WALK_MIN_STEPS = 500 };
enum { GRADIENT_BYTES = 4, STATE_BYTES = 8 }; /* a value: combined; theta and momentum */

/* ---- one exchange */

/* One after another: read log, put c, list; …; create log, read log. */
static const double REQUESTS_AROUND = 5;

/* Requests are counted as the exchange makes them (docs/protocol.md P19 and Requests). The
 * longest path decides `requests`, the store's bill `put` and `get`. */
dl_plan_exchange dl_plan_exchange_of(const dl_plan_task *task, const dl_plan_choice *choice)
{
    double M = task->replicas, values = task->parameters / choice->fragments;
    double S = values * choice->bits / 8, F = values * GRADIENT_BYTES;
    dl_plan_exchange x = {
        .written = M * S, .sent = S, .put = 3 * M, .get = 2 * M, .requests = REQUESTS_AROUND};
    switch (choice->exchange) {
    case DL_LEADER:
        x.written += F, x.read = (M - 1) * (S + F);
        x.sent += F, x.received = (M - 1) * S + F;
        x.put += 1, x.get += 2 * (M - 1), x.requests += M - 1 + 2;
        break;
    case DL_SHARDED:
        x.written += F, x.read = (M - 1) * (S + F);
        x.sent += F / M, x.received = (M - 1) / M * (S + F);
        x.put += M * M + M, x.get += 2 * M * (M - 1), x.requests += 2 * (M - 1) + 1;
        break;
    case DL_ALLGATHER:
    case DL_N_EXCHANGES:
        x.read = M * (M - 1) * S, x.received = (M - 1) * S;
        x.get += M * (M - 1), x.requests += M - 1;
    }
    return x;
}

/* In all; where that is the same, by the busiest replica. */
static bool moves_less(const dl_plan_exchange *a, const dl_plan_exchange *b)
{
    const double x = a->written + a->read, y = b->written + b->read;
    return x != y ? x < y : a->sent + a->received < b->sent + b->received;
}

/* Volumes of one exchange are enough: their number does not depend on the topology. */
dl_exchange dl_plan_cheapest(const dl_plan_task *task, dl_plan_choice choice)
{
    dl_exchange best = DL_ALLGATHER;
    dl_plan_exchange least = {.written = INFINITY};
    for (int e = 0; e < DL_N_EXCHANGES; e++) {
        choice.exchange = (dl_exchange)e;
        const dl_plan_exchange x = dl_plan_exchange_of(task, &choice);
        if (moves_less(&x, &least)) least = x, best = choice.exchange;
    }
    return best;
}

/* ---- a run */

/* How many fragments are sent at step t (from 1): those with t = floor(p * H / P) + k * H, k >= 1.
 */
static uint32_t due(const dl_plan_choice *c, uint64_t t)
{
    uint64_t H = c->sync_every, P = c->fragments, phase = t % H, p = (phase * P + H - 1) / H;
    uint32_t n = 0;
    for (; t >= H && p < P && p * H / P == phase; p++)
        n++;
    return n;
}

typedef struct walked {
    double seconds, exchanges;
} walked;

/* `steps` steps from an idle start to the last adoption. ready: when the contribution of a step
 * is there, for the due steps of the last tau steps. These are at most one for each fragment and,
 * where tau is the whole round, the one that is about to be adopted. */
static walked walk(const dl_plan_task *task, const dl_plan_choice *c, uint64_t steps)
{
    const dl_plan_link *link = &task->link;
    dl_plan_exchange x = dl_plan_exchange_of(task, c);
    double ready[DL_PLAN_MAX_FRAGMENTS + 1], now = 0, up = 0, down = 0, last = 0;
    uint64_t sent = 0, adopted = 0;
    walked w = {.exchanges = 0};
    for (uint64_t t = 1; t <= steps; t++) {
        uint32_t n = due(c, t);
        now += task->step_s;
        if (n) {
            up = fmax(up, now) + 8 * n * x.sent / link->up_bps;
            down = fmax(down, up) + 8 * n * x.received / link->down_bps;
            last = down + x.requests * link->latency_s;
            ready[sent++ % (DL_PLAN_MAX_FRAGMENTS + 1)] = last;
            w.exchanges += n;
        }
        if (t > c->tau && due(c, t - c->tau))
            now = fmax(now, ready[adopted++ % (DL_PLAN_MAX_FRAGMENTS + 1)]);
    }
    w.seconds = fmax(now, last);
    return w;
}

/* Of a long run, the beginning and then as much again, whole intervals both: the addition of the
 * second continues to the end. */
static walked walk_run(const dl_plan_task *task, const dl_plan_choice *c)
{
    double H = c->sync_every, some = H * ceil(fmax(WALK_MIN_STEPS / H, WALK_INTERVALS));
    if (task->steps <= 2 * some) return walk(task, c, (uint64_t)task->steps);
    walked first = walk(task, c, (uint64_t)some), both = walk(task, c, (uint64_t)(2 * some));
    double more = (task->steps - 2 * some) / some;
    return (walked){both.seconds + more * (both.seconds - first.seconds),
                    both.exchanges + more * (both.exchanges - first.exchanges)};
}

/* Snapshots and heartbeats. A snapshot is due when contributions exceed twice its size, and at
 * the latest after run.snapshot_every (P25); it is three objects. */
void dl_plan_add_background(dl_forecast *f, const dl_plan_task *task)
{
    double snapshot = STATE_BYTES * task->parameters;
    double n = fmax(f->bytes_written / (2 * snapshot),
                    task->snapshot_s > 0 ? f->wall_s / task->snapshot_s : 0);
    f->bytes_written += n * snapshot;
    f->n_put += 3 * n;
    if (task->heartbeat_s > 0) f->n_put += task->replicas * f->wall_s / task->heartbeat_s;
}

/* Prices are for decimal gigabytes, thousands of requests and hours, as providers quote them. */
static double cost_of(const dl_forecast *f, const dl_plan_task *task, const dl_prices *p)
{
    return f->bytes_read / 1e9 * p->egress_per_gb + f->bytes_written / 1e9 * p->ingress_per_gb +
           f->n_put / 1000 * p->put_per_1000 + f->n_get / 1000 * p->get_per_1000 +
           task->replicas * f->wall_s / 3600 * p->machine_hour;
}

/* The walk gives the time; bytes and requests are those of one exchange times their number. */
dl_forecast dl_plan_forecast(const dl_plan_task *task, const dl_plan_choice *choice,
                             const dl_prices *prices)
{
    dl_plan_exchange x = dl_plan_exchange_of(task, choice);
    walked w = walk_run(task, choice);
    dl_forecast f = {.wall_s = w.seconds,
                     .utilization = fmin(1, task->steps * task->step_s / w.seconds), /* rounding */
                     .bits_sent = 8 * x.sent * w.exchanges,
                     .bits_received = 8 * x.received * w.exchanges,
                     .peak_bits = 8 * x.sent,
                     .bytes_written = x.written * w.exchanges,
                     .bytes_read = x.read * w.exchanges,
                     .n_put = x.put * w.exchanges,
                     .n_get = x.get * w.exchanges};
    dl_plan_add_background(&f, task);
    if (prices) f.cost = cost_of(&f, task, prices);
    return f;
}
