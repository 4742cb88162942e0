/* sim_loss.c - how learners whose chips fail spend their time (sim_goodput.c).
 *
 * Each second of a learner is spent on repair, on waiting or on training. A completed step has a
 * cell for each fragment, since a fragment may count without the others. A cell is OPEN until its
 * cause is known:
 *
 *     OPEN --capture--> IN_FLIGHT to entry e --adoption--> COUNTED, PARTIAL or LATE
 *       |                                    `-- adopts nothing: OPEN again
 *       |-- a failure: UNSAVED, if the step came after the last save
 *       `-- a jump: OVERTAKEN, if the log has moved the fragment on
 *
 * Steps between a due point and the adoption of its entry stay OPEN: they count with the next
 * contribution. The causes add up to the seconds of all learners. */
#include "sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* States of a cell besides the causes; from IN_FLIGHT on 2 * entry + (1: mute). */
enum { OPEN = SIM_N_SPENT, IN_FLIGHT };
_Static_assert(IN_FLIGHT + 2 * ENTRIES <= UINT16_MAX, "a state of a cell has 16 bits");

static bool is_off(const replica *r)
{
    return r->sim->calm.chips <= 0 || r->sim->calm.is_over;
}

static uint16_t *cell(const sim_time *t, size_t step, size_t fragment)
{
    return &t->cells[step * MAX_FRAGMENTS + fragment];
}

void sim_loss_begin(replica *r, sim_spent doing)
{
    sim_time *t = &r->spent;
    if (is_off(r)) return;
    if (t->doing != SIM_SPENT_TRAINING) t->seconds[t->doing] += r->sim->now - t->since;
    t->since = r->sim->now;
    t->doing = doing;
}

void sim_loss_step(replica *r)
{
    sim_time *t = &r->spent;
    if (is_off(r)) return;
    if (t->n_steps == t->max_steps) {
        t->max_steps = t->max_steps ? 2 * t->max_steps : 4096;
        t->cells = realloc(t->cells, t->max_steps * MAX_FRAGMENTS * sizeof *t->cells);
        if (!t->cells) DIE(r->sim, "no memory for %zu steps", t->max_steps);
    }
    for (size_t f = 0; f < r->sim->n_fragments; f++)
        *cell(t, t->n_steps, f) = OPEN;
    t->n_steps++;
    t->since += r->sim->calm.step_s;
}

/* Sets the cells of a fragment that are `old` to `state`, in the steps [from, to). */
static void set(sim_time *t, size_t f, size_t from, size_t to, unsigned old, unsigned state)
{
    for (size_t i = from > t->first[f] ? from : t->first[f]; i < to; i++)
        if (*cell(t, i, f) == old) *cell(t, i, f) = (uint16_t)state;
    while (t->first[f] < t->n_steps && *cell(t, t->first[f], f) < OPEN)
        t->first[f]++;
}

static unsigned in_flight(uint64_t entry, bool mute)
{
    return IN_FLIGHT + 2 * (unsigned)entry + mute;
}

/* The former generation may have captured the entry, too. */
void sim_loss_capture(replica *r, const dl_pace_capture *c)
{
    sim_time *t = &r->spent;
    if (is_off(r)) return;
    for (int mute = 0; mute < 2; mute++) {
        const unsigned former = in_flight(c->entry, mute);
        set(t, c->fragment, t->n_saved, t->n_lost, former, SIM_SPENT_UNSAVED);
        set(t, c->fragment, 0, t->n_steps, former, OPEN);
    }
    set(t, c->fragment, 0, t->n_steps, OPEN, in_flight(c->entry, c->mute));
    if (!c->mute) t->returns = false;
}

void sim_loss_adopt(replica *r, const dl_adopted *adopted)
{
    sim_time *t = &r->spent;
    const dl_pace_capture *c = &adopted->capture;
    if (is_off(r)) return;
    for (int mute = 0; mute < 2; mute++) {
        const unsigned missed = mute ? SIM_SPENT_PARTIAL : SIM_SPENT_LATE;
        const unsigned kept = adopted->how == DL_ADOPT_NOTHING ? OPEN : missed;
        set(t, c->fragment, 0, t->n_steps, in_flight(c->entry, mute),
            c->counted ? SIM_SPENT_COUNTED : kept);
    }
}

/* Returns whether the log counts a contribution of this replica to the entry. */
static bool is_counted(replica *r, uint64_t entry)
{
    sim *s = r->sim;
    dl_entry *e = &s->truth.entry;
    dl_buf text;
    bool found = false;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    if (dl_entry_get(&text, s->store, entry, DL_NEVER) ||
        dl_entry_read(e, text.data, text.len, dl_outer_find("nesterov")))
        DIE(s, "%s", diloco_error_text());
    for (size_t i = 0; e->commit && i < e->n_members; i++)
        found |= !strcmp(e->members[i].generation.replica, r->name);
    dl_buf_deinit(&text);
    return found;
}

/* Decides the cells of a capture that a failure ended, by the log. */
static void settle_former(replica *r, size_t f, unsigned otherwise)
{
    sim_time *t = &r->spent;
    for (size_t i = t->first[f]; i < t->n_steps; i++) {
        const unsigned state = *cell(t, i, f);
        if (state < IN_FLIGHT) continue;
        const uint64_t entry = (state - IN_FLIGHT) / 2;
        if (r->now.alive && (entry >= r->pace.applied || dl_pace_in_flight(&r->pace, entry)))
            continue;
        const bool counted = is_counted(r, entry);
        set(t, f, t->n_saved, t->n_lost, state, counted ? SIM_SPENT_COUNTED : SIM_SPENT_UNSAVED);
        set(t, f, 0, t->n_steps, state, counted ? SIM_SPENT_COUNTED : otherwise);
    }
}

void sim_loss_jump(replica *r)
{
    sim_time *t = &r->spent;
    if (is_off(r)) return;
    for (size_t f = 0; f < r->sim->n_fragments; f++) {
        const unsigned lost = t->returns ? SIM_SPENT_OVERTAKEN : SIM_SPENT_LATE;
        settle_former(r, f, r->pace.fragments[f].behind ? lost : OPEN);
        if (r->pace.fragments[f].behind) set(t, f, 0, t->n_steps, OPEN, lost);
    }
}

void sim_loss_save(replica *r)
{
    r->spent.n_saved = r->spent.n_steps;
}

/* The steps since the last save do not exist any more, nor does a part of a step. */
void sim_loss_fail(replica *r)
{
    sim_time *t = &r->spent;
    if (is_off(r)) return;
    if (t->doing == SIM_SPENT_TRAINING) t->seconds[SIM_SPENT_UNSAVED] += r->sim->now - t->since;
    for (size_t f = 0; f < r->sim->n_fragments; f++)
        set(t, f, t->n_saved, t->n_steps, OPEN, SIM_SPENT_UNSAVED);
    t->n_lost = t->n_steps;
    t->returns = true;
    sim_loss_begin(r, SIM_SPENT_REPAIR);
}

/* The log has its last entry. */
void sim_loss_end(sim *s)
{
    for (size_t i = 0; i < s->n && s->calm.chips > 0; i++) {
        sim_time *t = &s->replicas[i].spent;
        if (t->doing == SIM_SPENT_TRAINING) t->seconds[SIM_SPENT_ENDED] += s->now - t->since;
        sim_loss_begin(&s->replicas[i], SIM_SPENT_ENDED);
    }
    s->calm.is_over = true;
}

/* Fills seconds[] with the time of all learners by cause, and frees the cells. */
void sim_loss_sum(sim *s, double *seconds)
{
    const double of_cell = s->calm.step_s / (double)s->n_fragments;
    memset(seconds, 0, SIM_N_SPENT * sizeof *seconds);
    for (size_t i = 0; i < s->n; i++) {
        replica *r = &s->replicas[i];
        sim_time *t = &r->spent;
        for (size_t f = 0; f < s->n_fragments; f++) {
            settle_former(r, f, SIM_SPENT_ENDED);
            for (size_t step = 0; step < t->n_steps; step++) {
                const unsigned state = *cell(t, step, f);
                seconds[state < OPEN ? state : SIM_SPENT_ENDED] += of_cell;
            }
        }
        for (size_t cause = 0; cause < SIM_N_SPENT; cause++)
            seconds[cause] += t->seconds[cause];
        free(t->cells);
        *t = (sim_time){0};
    }
}
