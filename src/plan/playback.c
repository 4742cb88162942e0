/* playback.c - moves of replicas, played on a link. On the recorded link this finds the recorded
 * time that the link does not explain; then the moves are played on the link that is asked about.
 *
 *     STEP    clock += its seconds
 *     SEND e  after encoding, the contribution goes up the link, beside the clock
 *     APPLY e when all that entry e counts is up, it comes down; the clock waits for it
 *
 * 1. A replica's moves are in the order of its record, but an APPLY comes tau steps after its SEND.
 * A recorded entry may have been there earlier than it was due.
 * 2. An APPLY is played when every counted SEND of its entry has been. Replicas take turns until
 * none can move; if some are left then, the record lacks a contribution, and they continue without.
 */
#include "plan/playback_parts.h"

#include <math.h>
#include <stdlib.h>

enum { PUT_REQUESTS = 2, APPLY_REQUESTS = 2 /* and one for each member */ };

typedef struct entry {
    uint64_t number, to_come; /* counted contributions that are not up yet */
    double up;                /* the last of those that are */
} entry;

/* ---- in the order of the play */

/* The most steps between a contribution and its entry. */
static uint64_t recorded_tau(const dl_playback *r)
{
    uint64_t tau = 0;
    for (size_t i = 0; i < r->n; i++) {
        dl_played *p = &r->replicas[i];
        for (size_t k = 0; k < p->n; k++) {
            const dl_move *m = &p->moves[k];
            const dl_move *sent =
                m->kind == DL_MOVE_APPLY ? dl_playback_sent(p, k, m->entry) : NULL;
            if (sent && m->done - sent->done > tau) tau = m->done - sent->done;
        }
    }
    return tau;
}

/* Equal turns keep the order of the record, since qsort keeps none. */
static int by_turn(const void *a, const void *b)
{
    const dl_move *x = a, *y = b;
    if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* After step k come the contributions taken there, then the entries due there. */
static void hold_back(dl_played *p, uint64_t tau)
{
    for (size_t k = 0; k < p->n; k++) {
        dl_move *m = &p->moves[k];
        m->index = k;
        m->turn = 4 * m->done + (unsigned)m->kind;
        const dl_move *sent = m->kind == DL_MOVE_APPLY ? dl_playback_sent(p, k, m->entry) : NULL;
        if (sent && sent->done + tau > m->done) m->turn = 4 * (sent->done + tau) + DL_MOVE_APPLY;
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
    if (!*out) return dl_fail(DILOCO_ENOMEM, "out of memory for the record");
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->replicas[i].n; k++)
            if (r->replicas[i].moves[k].kind == DL_MOVE_APPLY)
                (*out)[(*n)++].number = r->replicas[i].moves[k].entry;
    qsort(*out, *n, sizeof **out, by_number);
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (!kept || (*out)[i].number != (*out)[kept - 1].number) (*out)[kept++] = (*out)[i];
    *n = kept;
    return DILOCO_OK;
}

/* The entry exists for every APPLY; a SEND to an entry that was never taken has none. */
static entry *entry_of(entry *entries, size_t n, const dl_move *m)
{
    entry key = {.number = m->entry};
    return bsearch(&key, entries, n, sizeof key, by_number);
}

/* ---- the play */

/* One play of all replicas on one link. */
typedef struct play {
    const dl_plan_link *link;
    entry *entries;
    size_t n_entries;
} play;

static double seconds_on(const dl_plan_link *link, double up, double down)
{
    return 8 * up / link->up_bps + 8 * down / link->down_bps;
}

/* It begins when the snapshot that the last entry brought is done, too: both are in order. */
static void play_send(play *g, dl_played *p, dl_move *m)
{
    entry *e = entry_of(g->entries, g->n_entries, m);
    double begin = fmax(p->up, fmax(p->background, p->clock + m->seconds));
    p->up = begin + seconds_on(g->link, m->bytes, 0);
    m->up_at = p->up + PUT_REQUESTS * g->link->latency_s;
    if (!e || !m->counted) return;
    e->up = fmax(e->up, m->up_at);
    e->to_come--;
}

/* The outer step follows the download; the committer's snapshot runs in the background after it. */
static void play_apply(play *g, dl_played *p, const dl_move *m, const entry *e)
{
    const dl_move *sent = dl_playback_sent(p, p->at, m->entry);
    double begin = fmax(p->down, fmax(e->up, sent ? sent->up_at : 0));
    p->down = begin + seconds_on(g->link, 0, m->bytes);
    double there = p->down + (APPLY_REQUESTS + m->n_members) * g->link->latency_s + m->seconds;
    p->clock = fmax(p->clock, there);
    double n = (double)p->n_committed;
    if (m->committer)
        p->background =
            p->clock + seconds_on(g->link, p->background_up / n, p->background_down / n);
}

/* As far as it can go; `alone`: past one entry without its missing contributions. Did it move? */
static bool play_replica(play *g, dl_played *p, bool alone)
{
    size_t began = p->at;
    for (; p->at < p->n; p->at++) {
        dl_move *m = &p->moves[p->at];
        if (m->kind == DL_MOVE_STEP) p->clock += m->seconds;
        if (m->kind == DL_MOVE_SEND) play_send(g, p, m);
        if (m->kind != DL_MOVE_APPLY) continue;
        const entry *e = entry_of(g->entries, g->n_entries, m);
        if (e->to_come && !alone) break;
        alone = false;
        play_apply(g, p, m, e);
    }
    return p->at > began;
}

/* Put every replica at its beginning, with the traffic of its join, and count the contributions
 * that each entry waits for. */
static void begin_play(play *g, dl_playback *r)
{
    for (size_t i = 0; i < g->n_entries; i++)
        g->entries[i].to_come = 0, g->entries[i].up = 0;
    for (size_t i = 0; i < r->n; i++) {
        dl_played *p = &r->replicas[i];
        p->at = 0;
        p->up = p->background = 0;
        p->clock = p->down = seconds_on(g->link, 0, p->head_down);
        for (size_t k = 0; k < p->n; k++) {
            entry *e = entry_of(g->entries, g->n_entries, &p->moves[k]);
            if (p->moves[k].kind == DL_MOVE_SEND && p->moves[k].counted && e) e->to_come++;
        }
    }
}

/* The clock of each replica at its end. */
static void play_all(play *g, dl_playback *r, const dl_plan_link *link)
{
    g->link = link;
    begin_play(g, r);
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
    for (size_t i = 0; i < r->n; i++)
        r->replicas[i].clock += seconds_on(link, r->replicas[i].tail_up, r->replicas[i].tail_down);
}

/* ---- the record by itself */

/* A replica's traffic beside its entries, by its end line, is the last snapshot. Its first
 * entry has the traffic of the join, which came before its first step. */
static void settle_bytes(dl_played *p)
{
    double up = 0, down = 0, most = 0;
    dl_move *first = NULL;
    size_t n_applied = 0;
    p->n_committed = 0;
    for (size_t k = 0; k < p->n; k++) {
        dl_move *m = &p->moves[k];
        if (m->kind == DL_MOVE_SEND) up += m->bytes;
        if (m->kind != DL_MOVE_APPLY) continue;
        down += m->recorded_bytes;
        n_applied++;
        p->n_committed += m->committer;
        if (first) most = fmax(most, m->recorded_bytes);
        if (!first) first = m;
        m->bytes = m->recorded_bytes;
    }
    if (n_applied > 1) first->bytes = fmin(first->recorded_bytes, most);
    p->head_down = first ? first->recorded_bytes - first->bytes : 0;
    p->tail_up = fmax(0, p->end_up - up);
    p->tail_down = fmax(0, p->end_down - down);
}

/* By its end line; 0: the record has none. */
static double measured_wall(const dl_played *p)
{
    return p->utilization > 0 ? p->step_s / p->utilization : 0;
}

/* All bytes of the contributions in all seconds of their puts. */
static dl_plan_link estimated_link(const dl_playback *r)
{
    double bytes = 0, seconds = 0;
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->replicas[i].n; k++)
            if (r->replicas[i].moves[k].kind == DL_MOVE_SEND) {
                bytes += r->replicas[i].moves[k].bytes;
                seconds += r->replicas[i].moves[k].put_s;
            }
    double bps = bytes > 0 && seconds > 0 ? 8 * bytes / seconds : INFINITY;
    return (dl_plan_link){bps, bps, 0};
}

/* ---- the result */

/* Add one replica to the sums. Measured values exist only where the record has the replica's
 * end. */
static void count(dl_playback_result *out, const dl_played *p)
{
    out->replicas++;
    for (size_t k = 0; k < p->n; k++) {
        out->steps += p->moves[k].kind == DL_MOVE_STEP;
        if (p->moves[k].kind == DL_MOVE_SEND) out->bytes_sent += p->moves[k].bytes;
        if (p->moves[k].kind == DL_MOVE_APPLY) out->bytes_received += p->moves[k].bytes;
    }
    if (!(p->utilization > 0)) return;
    out->ended++;
    out->measured_s = fmax(out->measured_s, measured_wall(p));
    out->measured_utilization += p->utilization;
}

/* The recorded time beyond the play on the recorded link is the replica's own,
 * and comes again. Less than nothing it can only be where that link was a guess. */
static void predict(dl_playback_result *out, dl_playback *r, play *g, const dl_playback_args *args)
{
    dl_plan_link guess = estimated_link(r);
    const dl_plan_link *own_link = args->recorded  ? args->recorded
                                   : r->names_link ? &r->link
                                                   : NULL;
    play_all(g, r, own_link ? own_link : &guess);
    for (size_t i = 0; i < r->n; i++) {
        dl_played *p = &r->replicas[i];
        double own = p->utilization > 0 ? measured_wall(p) - p->clock : 0;
        p->own_s = own_link ? own : fmax(0, own);
    }
    play_all(g, r, &args->link);
    for (size_t i = 0; i < r->n; i++) {
        dl_played *p = &r->replicas[i];
        if (!p->n) out->absent++;
        if (!(p->step_s > 0)) continue;
        double wall = fmax(p->clock + p->own_s, p->step_s);
        count(out, p);
        out->predicted_s = fmax(out->predicted_s, wall);
        out->predicted_utilization += p->step_s / wall;
    }
    if (out->replicas) out->predicted_utilization /= (double)out->replicas;
    if (out->ended) out->measured_utilization /= (double)out->ended;
}

/* The record is put in order first, then played twice: on its own link and on the link asked
 * about. */
diloco_status dl_playback_predict(dl_playback_result *out, dl_playback *r,
                                  const dl_playback_args *args)
{
    play g = {.n_entries = 0};
    *out = (dl_playback_result){.tau = args->tau < 0 ? recorded_tau(r) : (uint64_t)args->tau};
    for (size_t i = 0; i < r->n; i++) {
        hold_back(&r->replicas[i], out->tau);
        settle_bytes(&r->replicas[i]);
    }
    DL_TRY(number_entries(&g.entries, &g.n_entries, r));
    out->entries = g.n_entries;
    if (g.n_entries) predict(out, r, &g, args);
    free(g.entries);
    if (out->entries && out->steps) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "the record has no %s, so there is nothing to replay",
                   out->entries ? "steps" : "entries");
}
