/* playback.c - moves of replicas, played on a link.
 *
 *     STEP    clock += its seconds
 *     SEND e  after encoding, the contribution goes up the link, beside the clock
 *     TAKE e  when all that entry e counts is up, it comes down; the clock waits for it
 *
 * 1. A replica's moves are in the order of its record, but a TAKE comes tau steps after its SEND: a
 *    recorded entry may have been there earlier than it was due.
 * 2. A TAKE is played when every counted SEND of its entry has been. Replicas take turns until none
 *    can move; if some are left then, the record lacks a contribution, and they go on without. */
#include "plan/playback_parts.h"

#include <math.h>
#include <stdlib.h>

enum { PUT_REQUESTS = 2, TAKE_REQUESTS = 3 /* and one for each member */ };

typedef struct entry {
    uint64_t number, to_come; /* counted contributions that are not up yet */
    double up;                /* the last of those that are */
} entry;

/* ---- in the order of the play */

/* The most steps between a contribution and its entry. */
static uint64_t recorded_tau(const dl_playback *r)
{
    uint64_t tau = 0, steps;
    for (size_t i = 0; i < r->n; i++) {
        dl_played *p = &r->replicas[i];
        for (size_t k = 0; k < p->n; k++)
            if (p->moves[k].kind == DL_MOVE_TAKE &&
                dl_playback_sent(p, k, p->moves[k].entry, &steps) && steps > tau)
                tau = steps;
    }
    return tau;
}

static int by_turn(const void *a, const void *b)
{
    const dl_move *x = a, *y = b;
    if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Behind step k come the contributions taken there, then the entries due there. */
static void hold_back(dl_played *p, uint64_t tau)
{
    uint64_t done = 0, since;
    for (size_t k = 0; k < p->n; k++) {
        dl_move *m = &p->moves[k];
        m->index = k;
        if (m->kind == DL_MOVE_STEP) m->turn = 4 * ++done;
        if (m->kind == DL_MOVE_SEND) m->turn = 4 * done + 1;
        if (m->kind != DL_MOVE_TAKE) continue;
        bool early = dl_playback_sent(p, k, m->entry, &since) && since < tau;
        m->turn = 4 * (early ? done + tau - since : done) + 2;
    }
    if (p->n) qsort(p->moves, p->n, sizeof *p->moves, by_turn);
}

/* ---- entries */

static int by_number(const void *a, const void *b)
{
    uint64_t x = ((const entry *)a)->number, y = ((const entry *)b)->number;
    return x < y ? -1 : x > y;
}

/* All entries that are taken, in order, each once. */
static diloco_status number_entries(entry **out, size_t *n, dl_playback *r)
{
    size_t all = 0;
    *n = 0;
    for (size_t i = 0; i < r->n; i++)
        all += r->replicas[i].n;
    *out = calloc(all + 1, sizeof **out);
    if (!*out) return dl_fail(DILOCO_ENOMEM, "no memory for the record");
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->replicas[i].n; k++)
            if (r->replicas[i].moves[k].kind == DL_MOVE_TAKE)
                (*out)[(*n)++].number = r->replicas[i].moves[k].entry;
    qsort(*out, *n, sizeof **out, by_number);
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (!kept || (*out)[i].number != (*out)[kept - 1].number) (*out)[kept++] = (*out)[i];
    *n = kept;
    return DILOCO_OK;
}

static entry *entry_of(entry *entries, size_t n, const dl_move *m)
{
    entry key = {.number = m->entry};
    return bsearch(&key, entries, n, sizeof key, by_number);
}

/* ---- the play */

typedef struct play {
    const dl_playback_args *args;
    entry *entries;
    size_t n_entries;
} play;

/* What of a recorded exchange was not its link: at least the work that was measured by itself. */
static double local_work(const play *g, const dl_move *take, const dl_move *sent)
{
    const dl_plan_link *l = g->args->recorded;
    double up = sent ? sent->bytes : 0, on_link = 0;
    if (l)
        on_link = 8 * up / l->up_bps + 8 * take->bytes / l->down_bps +
                  (PUT_REQUESTS + TAKE_REQUESTS + take->n_members) * l->latency_s;
    else if (up > 0)
        on_link = sent->put_s * (1 + take->bytes / up);
    return fmax(take->seconds - on_link, take->outer_s + (sent ? sent->seconds : 0));
}

static void play_send(play *g, dl_played *p, dl_move *m)
{
    const dl_plan_link *link = &g->args->link;
    entry *e = entry_of(g->entries, g->n_entries, m);
    p->up = fmax(p->up, p->clock + m->seconds) + 8 * m->bytes / link->up_bps;
    m->up_at = p->up + PUT_REQUESTS * link->latency_s;
    if (!e || !m->counted) return;
    e->up = fmax(e->up, m->up_at);
    e->to_come--;
}

static void play_take(play *g, dl_played *p, const dl_move *m, const entry *e)
{
    const dl_plan_link *link = &g->args->link;
    const dl_move *sent = dl_playback_sent(p, p->at, m->entry, NULL);
    double work = local_work(g, m, sent) - (sent ? sent->seconds : 0);
    p->down = fmax(p->down, fmax(e->up, sent ? sent->up_at : 0)) + 8 * m->bytes / link->down_bps;
    double there = p->down + (TAKE_REQUESTS + m->n_members) * link->latency_s + work;
    p->clock = fmax(p->clock, there);
}

/* As far as it can go; `alone`: past one entry without its missing contributions. Did it move? */
static bool play_replica(play *g, dl_played *p, bool alone)
{
    size_t began = p->at;
    for (; p->at < p->n; p->at++) {
        dl_move *m = &p->moves[p->at];
        if (m->kind == DL_MOVE_STEP) p->clock += m->seconds;
        if (m->kind == DL_MOVE_SEND) play_send(g, p, m);
        if (m->kind != DL_MOVE_TAKE) continue;
        const entry *e = entry_of(g->entries, g->n_entries, m);
        if (e->to_come && !alone) break;
        alone = false;
        play_take(g, p, m, e);
    }
    return p->at > began;
}

static void play_all(play *g, dl_playback *r)
{
    for (bool left = true, stuck = false; left;) {
        bool moved = false;
        left = false;
        for (size_t i = 0; i < r->n; i++) {
            bool went = play_replica(g, &r->replicas[i], stuck);
            if (went) stuck = false;
            moved |= went;
            left |= r->replicas[i].at < r->replicas[i].n;
        }
        stuck = !moved;
    }
}

static void count_contributions(play *g, dl_playback *r)
{
    for (size_t i = 0; i < r->n; i++) {
        dl_played *p = &r->replicas[i];
        p->at = 0;
        p->clock = p->up = p->down = 0;
        for (size_t k = 0; k < p->n; k++) {
            entry *e = entry_of(g->entries, g->n_entries, &p->moves[k]);
            if (p->moves[k].kind == DL_MOVE_SEND && p->moves[k].counted && e) e->to_come++;
        }
    }
}

/* ---- the result */

/* Seconds of the recorded life that are neither steps nor exchanges: evaluation, the start. Beside
 * overlapped exchanges they cannot be told. */
static double besides(const dl_played *p, uint64_t tau)
{
    double known = p->step_s + p->waited_s;
    if (tau || !(p->utilization > 0)) return 0;
    for (size_t k = 0; k < p->n; k++)
        if (p->moves[k].kind == DL_MOVE_TAKE) known += p->moves[k].seconds;
    return fmax(0, p->step_s / p->utilization - known);
}

static void add_replica(dl_playback_result *out, const dl_played *p)
{
    double wall = p->clock + besides(p, out->tau);
    if (!p->n) out->absent++;
    if (!(p->step_s > 0)) return;
    out->replicas++;
    for (size_t k = 0; k < p->n; k++) {
        out->steps += p->moves[k].kind == DL_MOVE_STEP;
        if (p->moves[k].kind == DL_MOVE_SEND) out->bytes_sent += p->moves[k].bytes;
        if (p->moves[k].kind == DL_MOVE_TAKE) out->bytes_received += p->moves[k].bytes;
    }
    out->predicted_s = fmax(out->predicted_s, wall);
    out->predicted_utilization += p->step_s / wall;
    if (!(p->utilization > 0)) return;
    out->ended++;
    out->measured_s = fmax(out->measured_s, p->step_s / p->utilization);
    out->measured_utilization += p->utilization;
}

diloco_status dl_playback_predict(dl_playback_result *out, dl_playback *r,
                                  const dl_playback_args *args)
{
    play g = {.args = args};
    *out = (dl_playback_result){.tau = args->tau < 0 ? recorded_tau(r) : (uint64_t)args->tau};
    for (size_t i = 0; i < r->n; i++)
        hold_back(&r->replicas[i], out->tau);
    diloco_status status = number_entries(&g.entries, &g.n_entries, r);
    if (!status && g.n_entries) {
        count_contributions(&g, r);
        play_all(&g, r);
        for (size_t i = 0; i < r->n; i++)
            add_replica(out, &r->replicas[i]);
        out->entries = g.n_entries;
    }
    free(g.entries);
    if (status) return status;
    if (!out->entries || !out->steps)
        return dl_fail(DILOCO_EINVAL, "the record has no %s, so there is nothing to replay",
                       out->entries ? "steps" : "entries");
    out->predicted_utilization /= (double)out->replicas;
    if (out->ended) out->measured_utilization /= (double)out->ended;
    return DILOCO_OK;
}
