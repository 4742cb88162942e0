/* pace.c - see pace.h.
 *
 * Invariants
 *  1. next_adopt <= n_captured, and n_captured - next_adopt <= n_captures: the schedule adopts an
 * entry before it captures the one that is L after it.
 *  2. position never falls, and a due point that was passed is captured or jumped, once.
 *  3. folded > n_captured only between two steps: the trainer then adopts what is in flight, and
 *     jumps. */
#include "base/run_kind.h"
#include "protocol/pace_parts.h"

static const dl_pace_rules in_rounds;

static const dl_pace_rules *rules_of(const dl_pace *p)
{
    return p->schedule.async ? &dl_pace_async : &in_rounds;
}

void dl_pace_layout(dl_pace *p, dl_arena *arena, const dl_schedule *schedule)
{
    p->schedule = *schedule;
    p->n_captures = dl_schedule_ahead(schedule);
    p->captures = DL_ARENA_ARRAY(arena, dl_pace_capture, p->n_captures);
    p->fragments = DL_ARENA_ARRAY(arena, dl_pace_fragment, schedule->n_fragments);
}

static void all_behind(dl_pace *p)
{
    for (uint64_t f = 0; f < p->schedule.n_fragments; f++)
        p->fragments[f].behind = true;
}

void dl_pace_begin(dl_pace *p, const dl_config *config, uint64_t entries, uint64_t applied)
{
    DL_ASSERT(applied <= entries && p->n_captures > 0);
    p->entries = entries;
    p->adopts_uncounted = config->on_uncounted == DL_UNCOUNTED_ADOPT;
    p->one_by_one = p->schedule.overlap != DL_OVERLAP_STEPS;
    p->captures_nothing = !dl_run_kind_of(config)->processes;
    p->reading = true;
    p->position = p->base = p->skip_to = 0;
    p->own_interval = p->schedule.interval;
    p->settled = p->finished = false;
    p->applied = p->n_captured = p->next_adopt = applied;
    all_behind(p);
}

bool dl_pace_save(const dl_pace *p, dl_pace_saved *out)
{
    const bool own_count = rules_of(p)->counts_own || p->applied <= p->next_adopt;
    const uint64_t decided = own_count ? p->next_adopt : p->applied;
    const bool again = p->schedule.delay == 0 && decided < p->n_captured;
    out->position = p->position;
    out->applied = p->applied;
    out->next_adopt = p->next_adopt;
    out->n_captured = again ? decided : p->n_captured;
    out->base = p->base;
    for (uint64_t e = out->next_adopt; e < out->n_captured; e++)
        out->captures[e - p->next_adopt] = p->captures[e % p->n_captures];
    for (uint64_t f = 0; f < p->schedule.n_fragments; f++)
        out->fragments[f] = p->fragments[f];
    return again;
}

/* They are adopted at their time. That keeps invariant 1, and a later adoption gets theta. */
static void all_gone(dl_pace *p)
{
    for (uint64_t e = p->next_adopt; e < p->n_captured; e++)
        p->captures[e % p->n_captures].gone = true;
}

void dl_pace_resume(dl_pace *p, const dl_pace_saved *saved)
{
    p->position = saved->position;
    p->applied = saved->applied;
    p->next_adopt = saved->next_adopt;
    p->n_captured = saved->n_captured;
    for (uint64_t f = 0; f < p->schedule.n_fragments; f++)
        p->fragments[f] = saved->fragments[f];
    p->base = saved->base;
    if (rules_of(p)->resumed) rules_of(p)->resumed(p);
    for (uint64_t e = p->next_adopt; e < p->n_captured; e++)
        p->captures[e % p->n_captures] = saved->captures[e - p->next_adopt];
    all_gone(p);
}

void dl_pace_restart(dl_pace *p)
{
    p->reading = true;
    p->skip_to = 0;
    if (rules_of(p)->restarted) rules_of(p)->restarted(p);
    all_gone(p);
    all_behind(p);
}

dl_pace_capture *dl_pace_in_flight(const dl_pace *p, uint64_t entry)
{
    return rules_of(p)->capture(p, entry);
}

static dl_pace_capture *capture_of(const dl_pace *p, uint64_t entry)
{
    if (entry < p->next_adopt || entry >= p->n_captured) return NULL;
    return &p->captures[entry % p->n_captures];
}

static bool some_behind(const dl_pace *p)
{
    for (uint64_t f = 0; f < p->schedule.n_fragments; f++)
        if (p->fragments[f].behind) return true;
    return false;
}

/* Returns whether the next due point is reached. */
static bool capture_due(const dl_pace *p)
{
    return p->n_captured < p->entries &&
           p->position >= dl_schedule_capture(&p->schedule, p->n_captured);
}

/* After the last due point there is no more training: entries in flight are adopted at once. */
static uint64_t adopt_at(const dl_pace *p)
{
    if (p->n_captured == p->entries) return p->position;
    return dl_schedule_adopt(&p->schedule, p->next_adopt);
}

static bool adopt_due(const dl_pace *p)
{
    return p->next_adopt < p->n_captured && p->position >= adopt_at(p);
}

dl_stop dl_pace_next(const dl_pace *p)
{
    return p->reading ? (dl_stop){DL_STOP_WAIT, 0} : rules_of(p)->next(p);
}

static dl_stop next(const dl_pace *p)
{
    const bool passed_over = p->applied > p->n_captured || p->skip_to > p->position;
    if (passed_over && p->next_adopt < p->n_captured)
        return (dl_stop){DL_STOP_ADOPT, p->next_adopt};
    if (passed_over || some_behind(p)) return (dl_stop){DL_STOP_JUMP, p->applied};
    if (capture_due(p)) return (dl_stop){DL_STOP_CAPTURE, p->n_captured};
    if (adopt_due(p)) return (dl_stop){DL_STOP_ADOPT, p->next_adopt};
    return (dl_stop){DL_STOP_NONE, 0};
}

/* Where the overlap is one round, a fragment is due when its last entry is to be adopted. The
 * residual of that entry is part of the next contribution, so the entry has to be decided; the
 * trainer waits for it here in any case. It is also adopted before the next upload. A round begins
 * from the state after that entry, not from the newest one, so that the same run gives the same
 * bits. */
static bool may_capture(const dl_pace *p, uint64_t entry)
{
    const uint64_t P = p->schedule.n_fragments;
    return !p->one_by_one || entry < P || p->applied > entry - P;
}

uint64_t dl_pace_may_put(const dl_pace *p)
{
    const uint64_t ready = p->next_adopt + p->schedule.n_fragments;
    return p->one_by_one && ready < p->n_captured ? ready : p->n_captured;
}

bool dl_pace_ready(const dl_pace *p, dl_stop stop)
{
    if (p->reading) return false;
    if (stop.kind == DL_STOP_CAPTURE) return may_capture(p, stop.entry);
    if (stop.kind != DL_STOP_ADOPT) return true;
    return rules_of(p)->may_adopt(p, stop.entry);
}

static bool may_adopt(const dl_pace *p, uint64_t entry)
{
    return p->applied > entry;
}

bool dl_pace_participates(const dl_pace *p, uint64_t entry)
{
    return rules_of(p)->participates(p, entry);
}

static bool participates(const dl_pace *p, uint64_t entry)
{
    return entry < dl_pace_may_put(p);
}

uint64_t dl_pace_train_until(const dl_pace *p)
{
    return dl_pace_next(p).kind == DL_STOP_NONE ? rules_of(p)->train_until(p) : p->position;
}

static uint64_t train_until(const dl_pace *p)
{
    uint64_t until = UINT64_MAX;
    if (p->n_captured < p->entries) until = dl_schedule_capture(&p->schedule, p->n_captured);
    if (p->next_adopt < p->n_captured && adopt_at(p) < until) until = adopt_at(p);
    return until;
}

uint64_t dl_pace_needed_from(const dl_pace *p, uint64_t open)
{
    const dl_pace_rules *rules = rules_of(p);
    return rules->needed_from ? rules->needed_from(p, open) : open;
}

bool dl_pace_done(const dl_pace *p)
{
    return rules_of(p)->done(p);
}

static bool done(const dl_pace *p)
{
    return p->applied >= p->entries && p->next_adopt >= p->entries && !some_behind(p) &&
           !p->reading;
}

/* Returns the steps of a whole contribution to this entry. */
static uint64_t whole(const dl_schedule *s, uint64_t entry)
{
    const uint64_t interval = dl_schedule_interval(s, entry);
    return s->overlap == DL_OVERLAP_STEPS ? interval - s->delay : interval;
}

bool dl_pace_will_be_whole(const dl_pace *p, uint64_t entry, uint32_t fragment)
{
    DL_ASSERT(fragment < p->schedule.n_fragments);
    const dl_pace_fragment *f = &p->fragments[fragment];
    const uint64_t last = p->applied ? dl_schedule_capture(&p->schedule, p->applied - 1) : 0;
    const uint64_t since = f->behind && last > f->since ? last : f->since; /* it will be */
    return dl_schedule_capture(&p->schedule, entry) >= since + whole(&p->schedule, entry);
}

dl_pace_capture dl_pace_due_capture(const dl_pace *p, uint32_t fragment, bool awaited)
{
    DL_ASSERT(fragment < p->schedule.n_fragments);
    dl_pace_capture capture = {.entry = rules_of(p)->entry_of(p, p->n_captured),
                               .position = p->position,
                               .fragment = fragment};
    capture.mute = rules_of(p)->is_mute(p, &capture, awaited);
    return capture;
}

void dl_pace_captured(dl_pace *p, const dl_pace_capture *capture)
{
    p->n_captured++;
    DL_ASSERT(p->n_captured - p->next_adopt <= p->n_captures); /* invariant 1 */
    p->captures[capture->entry % p->n_captures] = *capture;
}

static uint64_t entry_of(const dl_pace *p, uint64_t n)
{
    (void)p;
    return n;
}

static bool is_mute(const dl_pace *p, const dl_pace_capture *capture, bool awaited)
{
    return p->captures_nothing || (!awaited && p->position - p->fragments[capture->fragment].since <
                                                   whole(&p->schedule, capture->entry));
}

dl_adoption dl_pace_adoption(const dl_pace *p, const dl_pace_capture *capture)
{
    if (!capture->commit) return DL_ADOPT_NOTHING;
    if (capture->counted) return DL_ADOPT_MIX;
    return p->adopts_uncounted ? DL_ADOPT_THETA : DL_ADOPT_NOTHING;
}

void dl_pace_adopted(dl_pace *p, const dl_pace_capture *capture, dl_adoption how)
{
    rules_of(p)->adopted(p, capture, how);
}

static void adopted(dl_pace *p, const dl_pace_capture *capture, dl_adoption how)
{
    DL_ASSERT(capture->entry == p->next_adopt && p->applied > capture->entry);
    if (how != DL_ADOPT_NOTHING) p->fragments[capture->fragment].since = p->position;
    p->next_adopt++;
    DL_ASSERT(p->next_adopt <= p->n_captured); /* invariant 1 */
}

void dl_pace_jumped(dl_pace *p)
{
    rules_of(p)->jumped(p);
}

static void jumped(dl_pace *p)
{
    const uint64_t before = p->position;
    const uint64_t last = p->applied ? dl_schedule_capture(&p->schedule, p->applied - 1) : 0;
    if (p->applied > p->n_captured) p->n_captured = p->next_adopt = p->applied;
    if (last > p->position) p->position = last;
    if (p->skip_to > p->position) p->position = p->skip_to;
    for (uint64_t f = 0; f < p->schedule.n_fragments; f++) {
        if (p->fragments[f].behind) p->fragments[f].since = p->position;
        p->fragments[f].behind = false;
    }
    DL_ASSERT(p->position >= before);       /* invariant 2 */
    DL_ASSERT(p->applied <= p->n_captured); /* invariant 3 */
    DL_ASSERT(p->next_adopt <= p->n_captured);
}

void dl_pace_fall_behind(dl_pace *p)
{
    p->reading = true;
}

void dl_pace_align(dl_pace *p, uint64_t entry)
{
    DL_ASSERT(entry == p->applied);
    if (p->n_captured <= entry) p->skip_to = dl_schedule_capture(&p->schedule, entry);
}

void dl_pace_caught_up(dl_pace *p)
{
    if (rules_of(p)->caught_up) rules_of(p)->caught_up(p);
    p->reading = false;
}

void dl_pace_aborted(dl_pace *p, uint64_t entry, bool held)
{
    if (entry < p->applied) return;
    if (!held || p->position < dl_schedule_capture(&p->schedule, entry)) all_behind(p);
}

void dl_pace_apply(dl_pace *p, uint64_t entry, uint32_t fragment, bool commit, bool counted)
{
    if (entry < p->applied) return;
    DL_ASSERT(entry == p->applied); /* P4: no entry is left out */
    p->applied = entry + 1;
    rules_of(p)->apply(p, entry, fragment, commit, counted);
}

/* Returns whether an earlier generation has captured the entry at this position, after the save
 * that this resume began from. With overlap the save precedes the capture. The steps after it are
 * trained again from the same tensors, and then adopt the entry where the earlier generation did.
 * With several fragments no equal bits are promised, and the replica could contribute with fewer
 * steps than P14 asks. */
static bool was_captured(const dl_pace *p, uint64_t entry, bool counted)
{
    return p->reading && counted && p->schedule.n_fragments == 1 && p->schedule.delay > 0 &&
           !p->one_by_one && !some_behind(p) && entry == p->n_captured &&
           p->n_captured - p->next_adopt < p->n_captures &&
           p->position == dl_schedule_capture(&p->schedule, entry);
}

static void apply(dl_pace *p, uint64_t entry, uint32_t fragment, bool commit, bool counted)
{
    if (was_captured(p, entry, counted)) {
        const dl_pace_capture gone = {.entry = entry, .position = p->position, .gone = true};
        p->captures[p->n_captured++ % p->n_captures] = gone;
    }
    dl_pace_capture *capture = capture_of(p, entry);
    if (capture) {
        capture->fragment = fragment;
        capture->commit = commit;
        capture->counted = counted;
    } else if (entry >= p->n_captured && commit && (counted || p->adopts_uncounted)) {
        p->fragments[fragment].behind = true;
    }
}

static const dl_pace_rules in_rounds = {
    .capture = capture_of,
    .next = next,
    .may_adopt = may_adopt,
    .participates = participates,
    .train_until = train_until,
    .done = done,
    .entry_of = entry_of,
    .is_mute = is_mute,
    .adopted = adopted,
    .jumped = jumped,
    .apply = apply,
};
