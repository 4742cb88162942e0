/* machine.c - see machine.h for the diagram, machine_parts.h for the two halves.
 *
 * Invariants
 *  1. control is advanced in one place (folded, in follow.c), once per entry, in log order (P4).
 *  2. `known` tells of the contributions of control->entry only; it is cleared when it moves.
 *  3. An entry is decided by its create-once name alone: a draft is nothing until read back (P5).
 *  4. No time-out leads to a local step: past a deadline there is a draft or more waiting (P12). */
#include "run/machine.h"

#include "run/async.h"
#include "run/clients.h"
#include "run/closing.h"
#include "run/fold.h"
#include "run/machine_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TURNS = 8 }; /* deadlines until everybody looks for contributions */

/* ---- making and unmaking ---------------------------------------------------------------- */

static void layout(dl_machine *m, dl_arena *arena)
{
    m->known.at = DL_ARENA_ARRAY(arena, dl_known, m->known.cap);
    m->watch.at = DL_ARENA_ARRAY(arena, dl_watched, DL_WATCH_MAX);
    m->digest = DL_ARENA_ARRAY(arena, dl_hash, m->a.pace->schedule.n_fragments);
    m->bases = DL_ARENA_ARRAY(arena, dl_hash, m->a.pace->schedule.n_fragments);
    m->n_commits = DL_ARENA_ARRAY(arena, uint64_t, m->a.pace->schedule.n_fragments);
    m->silent = DL_ARENA_ARRAY(arena, bool, m->a.max_members);
    m->slots = DL_ARENA_ARRAY(arena, size_t, m->a.max_members);
    dl_draft_layout(&m->draft, arena, m->a.max_members);
}

diloco_status dl_machine_create(dl_machine **out, const dl_machine_args *args)
{
    *out = NULL;
    dl_machine *m = calloc(1, sizeof *m);
    if (!m) return dl_fail(DILOCO_ENOMEM, "no memory for the protocol's state");
    m->a = *args;
    m->known.cap = 2 * args->max_members;

    dl_arena measure = {0};
    layout(m, &measure);
    diloco_status status = dl_arena_init(&m->arena, measure.used);
    if (!status) {
        layout(m, &m->arena);
        status = dl_entry_init(&m->draft.entry, args->max_members);
    }
    if (!status) status = dl_entry_init(&m->entry, args->max_members);
    if (!status && args->control->ledger)
        status =
            dl_ledger_create(&m->scratch, args->config, &args->pace->schedule, args->max_members);
    if (status) {
        dl_machine_destroy(m);
        return status;
    }
    *out = m;
    return DILOCO_OK;
}

void dl_machine_destroy(dl_machine *m)
{
    if (!m) return;
    dl_entry_deinit(&m->draft.entry);
    dl_entry_deinit(&m->entry);
    dl_ledger_destroy(m->scratch);
    dl_arena_deinit(&m->arena);
    free(m);
}

/* ---- small words ------------------------------------------------------------------------ */

static uint64_t open_entry(const dl_machine *m)
{
    return m->a.control->entry;
}

bool dl_machine_is_over(const dl_machine *m)
{
    return open_entry(m) >= m->a.pace->entries;
}

uint32_t dl_machine_fragment(const dl_machine *m)
{
    return dl_schedule_fragment(&m->a.pace->schedule, open_entry(m), m->n_commits_all);
}

void dl_machine_note(dl_machine *m, dl_note note)
{
    if (m->a.note) m->a.note(m->a.note_user, &note);
}

dl_ask dl_machine_ask(dl_machine *m, dl_ask_kind kind, dl_phase next)
{
    m->phase = next;
    return (dl_ask){.kind = kind, .entry = open_entry(m), .fragment = dl_machine_fragment(m)};
}

dl_ask dl_machine_fail(dl_machine *m, diloco_status status)
{
    dl_ask a = dl_machine_ask(m, DL_ASK_FAIL, DL_OVER);
    a.status = status;
    return a;
}

dl_ask dl_machine_fetch(dl_machine *m, const dl_known *known, dl_phase next, bool fresh)
{
    dl_ask a = dl_machine_ask(m, DL_ASK_FETCH, next);
    a.entry = known->entry;
    a.life = known->life;
    a.slot = dl_known_slot(&m->known, known);
    a.fresh = fresh;
    return a;
}

void dl_machine_clear_entry(dl_machine *m)
{
    m->known.n = 0;
    m->created = m->computed = false;
    m->enough_at = DL_NEVER;
    m->n_recomputed = 0;
    memset(m->silent, 0, m->a.max_members * sizeof m->silent[0]);
}

/* ---- beginning, and what is to be done next ---------------------------------------------- */

static bool is_async(const dl_machine *m)
{
    return m->a.pace->schedule.async;
}

static dl_ask train(dl_machine *m)
{
    m->train_began = m->now;
    m->train_from = m->a.pace->position;
    if (m->own_since > open_entry(m)) m->own_since = open_entry(m);
    return dl_machine_ask(m, DL_ASK_TRAIN, DL_TRAINING);
}

static dl_ask list(dl_machine *m)
{
    return dl_machine_ask(m, DL_ASK_LIST, DL_LISTING);
}

/* The first entry that was taken and not put: the open one after a look at the log, a later one
 * before anything else is waited for. */
static dl_ask contribute(dl_machine *m)
{
    if (is_async(m)) m->n_put = m->a.pace->takes[0].entry;
    const bool ahead = m->n_put > open_entry(m);
    dl_ask a = dl_machine_ask(m, DL_ASK_CONTRIBUTE, ahead ? DL_PUTTING_AHEAD : DL_CONTRIBUTING);
    a.entry = m->n_put;
    const dl_take *take = dl_pace_take(m->a.pace, m->n_put);
    a.fragment = take && !take->gone
                     ? take->fragment
                     : dl_schedule_fragment(&m->a.pace->schedule, m->n_put, m->n_commits_all);
    return a;
}

/* Passes over what is mute. */
static bool has_to_put(dl_machine *m)
{
    const dl_pace *p = m->a.pace;
    if (is_async(m)) return p->n_taken > p->next_adopt && m->n_put <= p->takes[0].entry;
    if (m->n_put < open_entry(m)) m->n_put = open_entry(m);
    while (m->n_put < dl_pace_may_put(p)) {
        const dl_take *take = dl_pace_take(p, m->n_put);
        if (!take || !take->mute) return true;
        m->n_put++;
    }
    return false;
}

bool dl_machine_has_put_all(const dl_machine *m)
{
    const dl_pace *p = m->a.pace;
    if (is_async(m)) return p->n_taken == p->next_adopt || m->n_put > p->takes[0].entry;
    return m->n_put >= dl_pace_may_put(p) || open_entry(m) >= p->n_taken;
}

static dl_time deadline(const dl_machine *m)
{
    return dl_closing_deadline(m->a.config, m->a.control->n_aborts, m->due_at, m->round_s,
                               dl_seconds(m->put_took));
}

/* ---- one for all: whose turn is it? (P19) ---- */

static bool has_roster(const dl_machine *m)
{
    return open_entry(m) > m->a.control->n_later;
}

/* How many of the roster come before us: it goes round, so that each combines its share. */
static size_t rank_in_roster(const dl_machine *m)
{
    const dl_roster *r = &m->a.control->roster;
    size_t at;
    if (!dl_roster_has(r, m->a.self.replica, &at)) return r->n;
    return (at + r->n - (size_t)(open_entry(m) % r->n)) % r->n;
}

/* From when on we look for contributions ourselves: a deadline behind each that comes before us.
 * This decides nothing but who works: the log's name is anybody's (P5). */
static dl_time turn(const dl_machine *m)
{
    const size_t rank = has_roster(m) ? rank_in_roster(m) : m->rank;
    const dl_time each = deadline(m) - m->due_at;
    if (m->a.way == DL_WAY_ALLGATHER || m->a.control->committer.replica[0]) return 0;
    return dl_time_after(m->due_at, (dl_time)(rank < MAX_TURNS ? rank : MAX_TURNS) * each);
}

static bool is_our_turn(const dl_machine *m)
{
    return m->now >= turn(m);
}

/* Entries before L have no roster: then those who have contributed, which a listing tells. */
static void rank_among(dl_machine *m, const dl_event *event)
{
    m->rank = 0;
    for (size_t i = 0; i < event->n_listed; i++) {
        const char *name = event->listed[i].life.replica;
        const bool again = i && !strcmp(event->listed[i - 1].life.replica, name);
        m->rank += !again && dl_replica_compare(name, m->a.self.replica) < 0;
    }
}

/* Who else is there? Or is it for others to ask? */
static dl_ask look_around(dl_machine *m)
{
    if (has_roster(m) && !is_our_turn(m)) return dl_machine_ask(m, DL_ASK_READ, DL_LOOKING);
    return list(m);
}

/* The open entry is taken: put ours, then see who else is there. What was taken for later entries
 * is put where there would be waiting (wait_until): training may wait for the open one. */
static dl_ask collect(dl_machine *m)
{
    return has_to_put(m) && m->n_put == open_entry(m) ? contribute(m) : look_around(m);
}

/* No entry stands any more, as far as we know. */
static dl_ask caught_up(dl_machine *m)
{
    m->behind = false;
    dl_pace_caught_up(m->a.pace);
    if (open_entry(m) < m->a.pace->folded && m->has_bases)
        return dl_machine_fail(
            m, dl_fail(DILOCO_EDIFFERS,
                       "this replica's saved state is for entry %llu, the log has only %llu: the "
                       "store lost entries; move the state folder away to join as a new replica",
                       (unsigned long long)m->bases_at, (unsigned long long)open_entry(m)));
    if (m->a.reader || !dl_pace_takes_part(m->a.pace, open_entry(m))) return train(m);
    m->due_at = m->now;
    return collect(m);
}

/* async: train, first asking how fast the others are; or see to the entries that name what is
 * there, our own among them, and those of a grace behind it. */
static dl_ask go_on_alone(dl_machine *m)
{
    dl_pace *p = m->a.pace;
    const bool own_stands = p->n_taken > p->next_adopt && p->takes[0].counted;
    if (own_stands && !m->grace_over)
        m->grace_over = dl_time_after(m->now, dl_time_from_seconds(m->a.config->grace_s));
    if (own_stands && m->now >= m->grace_over) dl_pace_settle(p);
    if (dl_pace_takes_part(p, open_entry(m))) return dl_machine_ask(m, DL_ASK_READ, DL_LATE_CHECK);
    m->grace_over = 0;
    if (m->a.config->dylu) return dl_machine_ask(m, DL_ASK_WATCH, DL_TIMING);
    return train(m);
}

static dl_ask timed(dl_machine *m, const dl_event *event)
{
    double own = 0, fastest = 0;
    for (size_t i = 0; i < event->n_seen; i++) {
        const dl_seen *s = &event->seen[i];
        if (!s->ended) fastest = fmax(fastest, s->steps_per_s);
        if (!strcmp(s->life.replica, m->a.self.replica)) own = s->steps_per_s;
    }
    m->a.pace->own_interval = dl_async_interval(m->a.pace->schedule.interval, own, fastest);
    return train(m);
}

dl_ask dl_machine_go_on(dl_machine *m)
{
    if (dl_machine_is_over(m)) {
        dl_pace_caught_up(m->a.pace);
        return dl_machine_ask(m, DL_ASK_DONE, DL_ENDING);
    }
    if (m->behind) return dl_machine_ask(m, DL_ASK_READ, DL_CATCHING_UP);
    if (is_async(m) && !m->a.reader) return go_on_alone(m);
    if (!dl_pace_takes_part(m->a.pace, open_entry(m))) return train(m);
    m->due_at = m->now;
    return dl_machine_ask(m, DL_ASK_READ, DL_LATE_CHECK);
}

static dl_ask read_on(dl_machine *m, const dl_event *event)
{
    return event->text ? dl_follow_text(m, event) : caught_up(m);
}

/* Movement from a state that the log does not have may not be sent as if from the one it has
 * (P3): a former life had judged an entry otherwise. */
void dl_machine_compare_bases(dl_machine *m)
{
    if (!m->has_bases || open_entry(m) != m->bases_at) return;
    for (uint64_t f = 0; f < m->a.pace->schedule.n_fragments; f++)
        if (!dl_hash_equal(m->bases[f], m->digest[f])) m->a.pace->fragments[f].behind = true;
    m->has_bases = false;
}

static void take_start(dl_machine *m, const dl_machine_start *start)
{
    m->n_commits_all = 0;
    for (uint64_t f = 0; f < m->a.pace->schedule.n_fragments; f++) {
        m->digest[f] = start->fragments[f].digest;
        m->n_commits[f] = start->fragments[f].n_commits;
        m->n_commits_all += m->n_commits[f];
        if (start->bases) m->bases[f] = start->bases[f];
    }
    m->now = m->start_at = m->snapshot_at = start->now;
    m->grace_over = 0;
    m->snapshot_known = m->a.control->snapshot;
    m->has_bases = start->bases != NULL && !is_async(m); /* pace.c: dl_pace_caught_up */
    m->bases_at = m->a.pace->folded;
    m->own_since = start->bases ? m->a.pace->folded : UINT64_MAX;
}

/* No entry tells the terms of the first L. */
static void begin_first_entry(dl_machine *m)
{
    dl_control *c = m->a.control;
    if (dl_config_federated(m->a.config)) dl_clients_sample(&c->roster, m->a.config, 0);
    if (!m->a.lr) return;
    c->lr = (float)m->a.lr(m->a.lr_user, 0);
    for (size_t i = 0; i < c->n_later; i++)
        c->later[i].lr = (float)m->a.lr(m->a.lr_user, i + 1);
}

dl_ask dl_machine_begin(dl_machine *m, const dl_machine_start *start)
{
    take_start(m, start);
    if (m->has_bases && open_entry(m) > m->bases_at) { /* what was decided between is not told */
        m->has_bases = false;
        dl_pace_restart(m->a.pace);
    }
    if (m->a.pace->folded < open_entry(m)) m->a.pace->folded = open_entry(m);
    dl_machine_compare_bases(m);
    if (open_entry(m) == 0) begin_first_entry(m);
    dl_machine_clear_entry(m);
    m->behind = true;
    return dl_machine_go_on(m);
}

/* ---- contributing ------------------------------------------------------------------------ */

/* How long it takes from one due point to the next, from the steps since nothing was under way:
 * with overlap a part of them. Skipped ones take no time. */
static void measure_round(dl_machine *m)
{
    const dl_pace *p = m->a.pace;
    const dl_schedule *s = &p->schedule;
    const bool jumps = p->folded && !s->async;
    const uint64_t last = jumps ? dl_schedule_take(s, p->folded - 1) : 0;
    const uint64_t from = m->train_from > last ? m->train_from : last;
    if (p->position <= from) return;
    m->round_s = dl_seconds(m->now - m->train_began) / (double)(p->position - from) *
                 (double)s->interval / (double)s->n_fragments;
}

static dl_ask trained(dl_machine *m)
{
    measure_round(m);
    return dl_machine_go_on(m);
}

static dl_ask late_checked(dl_machine *m, const dl_event *event)
{
    if (!event->text) return collect(m);
    m->behind = true; /* it stands without us: P13 */
    dl_pace_fall_behind(m->a.pace);
    return dl_follow_text(m, event);
}

static dl_ask contributed(dl_machine *m)
{
    m->n_put++;
    m->put_took = m->now - m->due_at;
    m->due_at = m->now; /* P11: the deadline runs from our own upload */
    dl_machine_note(
        m, (dl_note){.kind = DL_NOTE_DEADLINE, .seconds = dl_seconds(deadline(m) - m->now)});
    return collect(m);
}

static dl_ask put_ahead(dl_machine *m)
{
    m->n_put++;
    return collect(m);
}

/* ---- collecting what others contributed -------------------------------------------------- */

static dl_ask fetch_next(dl_machine *m)
{
    for (; m->fetching < m->known.n; m->fetching++) {
        const dl_known *k = &m->known.at[m->fetching];
        if (k->worth == DL_UNREAD) return dl_machine_fetch(m, k, DL_FETCHING, false);
    }
    return dl_machine_ask(m, DL_ASK_READ, DL_LOOKING);
}

/* async: the one that the entry would name. */
static dl_ask listed_alone(dl_machine *m, const dl_event *event)
{
    const size_t i =
        dl_async_choose(m->a.control, m->a.config, event->listed, event->n_listed, &m->known);
    m->fetching = m->known.n;
    if (i == SIZE_MAX) return dl_machine_ask(m, DL_ASK_READ, DL_LOOKING);
    const dl_listed *l = &event->listed[i];
    dl_known *k = dl_known_add(&m->known, &l->life, l->entry, l->len);
    if (!k) return dl_machine_ask(m, DL_ASK_READ, DL_LOOKING); /* no room: all were refused */
    m->fetching = dl_known_slot(&m->known, k);
    return fetch_next(m);
}

/* A client that the entry does not ask may not count: its state would not be found again. */
static bool is_unasked(const dl_machine *m, const dl_life *life)
{
    return dl_config_federated(m->a.config) &&
           !dl_roster_has(&m->a.control->roster, life->replica, NULL);
}

static dl_ask listed(dl_machine *m, const dl_event *event)
{
    for (size_t i = 0; i < event->n_listed; i++) {
        const dl_life *life = &event->listed[i].life;
        if (is_unasked(m, life)) continue;
        if (!is_async(m)) dl_known_add(&m->known, life, open_entry(m), event->listed[i].len);
        if (strcmp(life->replica, m->a.self.replica) != 0) continue;
        if (life->generation > m->a.self.generation) /* P6 */
            return dl_machine_fail(
                m,
                dl_fail(DILOCO_EFENCED, "replica %s has a later life (%u after %u): this one stops",
                        life->replica, life->generation, m->a.self.generation));
    }
    if (is_async(m)) return listed_alone(m, event);
    rank_among(m, event);
    const bool asks = !m->a.follows && is_our_turn(m);
    m->fetching = asks ? 0 : m->known.n; /* an entry will say what is needed */
    return fetch_next(m);
}

bool dl_machine_judge(dl_machine *m, dl_known *known, const dl_event *event)
{
    if (!event->status) {
        dl_known_accept(known, event->facts, event->norm2);
        return false;
    }
    if (dl_known_doubt(known)) return true;
    dl_machine_note(m,
                    (dl_note){.kind = DL_NOTE_REJECT, .life = known->life, .text = event->reason});
    return false;
}

static dl_ask fetched(dl_machine *m, const dl_event *event)
{
    dl_known *k = &m->known.at[m->fetching];
    if (dl_machine_judge(m, k, event)) return dl_machine_fetch(m, k, DL_FETCHING, true);
    if (is_async(m) && k->worth == DL_INVALID) return list(m); /* another one */
    return fetch_next(m);
}

/* ---- closing: P9, P10, P11 --------------------------------------------------------------- */

static dl_draft_source draft_source(const dl_machine *m)
{
    return (dl_draft_source){.args = &m->a,
                             .known = &m->known,
                             .silent = m->silent,
                             .fragment = dl_machine_fragment(m),
                             .base = m->digest[dl_machine_fragment(m)],
                             .n_commits = m->n_commits[dl_machine_fragment(m)],
                             .snapshot = m->snapshot_known,
                             .scratch = m->scratch};
}

static dl_ask create(dl_machine *m)
{
    dl_ask a = dl_machine_ask(m, DL_ASK_CREATE, DL_CREATING);
    a.draft = &m->draft.entry;
    return a;
}

static dl_ask draft_abort(dl_machine *m, const char *reason)
{
    const dl_draft_source from = draft_source(m);
    dl_draft_abort(&m->draft, &from, reason);
    return create(m);
}

static dl_ask of_draft(dl_machine *m, dl_ask_kind kind, dl_phase next)
{
    dl_ask a = dl_machine_ask(m, kind, next);
    a.draft = &m->draft.entry;
    a.slots = m->draft.slots;
    a.put = true;
    return a;
}

/* P26: what our former life was, we are; anybody else is only by `diloco takeover`. */
static bool inherits(const dl_machine *m)
{
    const dl_life *only = &m->a.control->committer;
    return only->replica[0] && dl_life_equal(only, &m->a.former);
}

static dl_ask take_over(dl_machine *m)
{
    const dl_draft_source from = draft_source(m);
    dl_draft_takeover(&m->draft, &from);
    return create(m);
}

static bool may_create(const dl_machine *m)
{
    return dl_fold_may_create(m->a.control, &m->a.self);
}

static dl_ask draft_commit(dl_machine *m)
{
    const dl_draft_source from = draft_source(m);
    if (dl_draft_commit(&m->draft, &from)) return draft_abort(m, diloco_error_text());
    if (m->a.way == DL_WAY_LEADER) return of_draft(m, DL_ASK_COMBINE, DL_COMBINING);
    return of_draft(m, DL_ASK_COMPUTE, DL_DRAFTING);
}

static dl_ask wait_until(dl_machine *m, dl_time until)
{
    if (has_to_put(m)) return contribute(m);
    dl_ask a = dl_machine_ask(m, DL_ASK_WAIT, DL_WAITING);
    a.until = until;
    return a;
}

/* It is others' turn. */
static dl_ask wait_for_the_log(dl_machine *m)
{
    dl_ask a = wait_until(m, turn(m));
    a.log_only = a.kind == DL_ASK_WAIT && has_roster(m);
    return a;
}

static dl_closing closing(const dl_machine *m)
{
    return (dl_closing){.config = m->a.config,
                        .control = m->a.control,
                        .known = &m->known,
                        .silent = m->silent,
                        .now = m->now,
                        .began = m->start_at,
                        .deadline = deadline(m),
                        .enough_at = m->enough_at,
                        .slack_s = m->slack_s};
}

static dl_ask obey(dl_machine *m, const dl_verdict *verdict)
{
    if (!may_create(m)) return wait_until(m, DL_NEVER); /* P26: it is not ours to close */
    switch (verdict->kind) {
    case DL_VERDICT_COMMIT:
        return draft_commit(m);
    case DL_VERDICT_ABORT:
        return draft_abort(m, verdict->reason);
    case DL_VERDICT_WAIT:
        return wait_until(m, verdict->until);
    case DL_VERDICT_WATCH:
        break;
    }
    return dl_machine_ask(m, DL_ASK_WATCH, DL_WATCHING);
}

/* What the steps of the overlap take, less what upload and waiting took of it. */
static double slack(const dl_machine *m)
{
    const dl_schedule *s = &m->a.pace->schedule;
    const double step_s = m->round_s * (double)s->n_fragments / (double)s->interval;
    return fmax(0, (double)s->delay * step_s - dl_seconds(m->now - m->due_at + m->put_took));
}

static void see_whether_enough(dl_machine *m)
{
    const dl_closing c = closing(m);
    if (m->enough_at != DL_NEVER || !dl_closing_has_enough(&c)) return;
    m->enough_at = m->now;
    m->slack_s = slack(m);
}

/* async: whatever is there closes the entry. Nothing is, in the grace behind our own. */
static dl_ask looked_alone(dl_machine *m)
{
    if (dl_known_n_counting(&m->known) > 0 && may_create(m)) return draft_commit(m);
    if (m->grace_over && m->now >= m->grace_over) return dl_machine_go_on(m);
    return wait_until(m, m->grace_over ? m->grace_over : DL_NEVER);
}

static dl_ask looked(dl_machine *m, const dl_event *event)
{
    if (event->text) return dl_follow_text(m, event);
    if (inherits(m)) return take_over(m);
    if (is_async(m)) return looked_alone(m);
    if (m->a.follows) return wait_until(m, DL_NEVER);
    if (!is_our_turn(m)) return wait_for_the_log(m);
    see_whether_enough(m);
    const dl_closing c = closing(m);
    const dl_verdict verdict = dl_closing_look(&c);
    return obey(m, &verdict);
}

static void find_silent(dl_machine *m)
{
    const dl_roster *roster = &m->a.control->roster;
    const dl_time patience = dl_time_from_seconds(m->a.config->patience_s);
    for (size_t i = 0; i < roster->n; i++) {
        const char *name = roster->names[i];
        dl_life whose;
        const bool quiet = dl_watch_is_silent(&m->watch, name, m->now, patience, &whose);
        if (quiet && !m->silent[i] && !dl_known_is_there(&m->known, name))
            dl_machine_note(m, (dl_note){.kind = DL_NOTE_SILENT, .life = whose});
        m->silent[i] = quiet || dl_known_is_hopeless(&m->known, name);
    }
}

static dl_ask watched(dl_machine *m, const dl_event *event)
{
    dl_watch_see(&m->watch, event->seen, event->n_seen, m->now);
    find_silent(m);
    const dl_closing c = closing(m);
    const dl_verdict verdict = dl_closing_watched(&c);
    return obey(m, &verdict);
}

/* ---- creating the entry ------------------------------------------------------------------ */

/* What is combined is named once it was read back (P8). */
static dl_ask combined(dl_machine *m, const dl_event *event)
{
    if (event->status == DILOCO_ENUMERIC) return draft_abort(m, diloco_error_text()); /* B2 */
    m->draft.entry.combined = (dl_combined_at){
        .there = true, .life = m->a.self, .body = event->result, .bytes = event->len};
    m->n_unread = 0;
    return of_draft(m, DL_ASK_FETCH_COMBINED, DL_READING_OWN);
}

/* What the store does not give back is not named: then everybody reads the members. */
static dl_ask read_own(dl_machine *m, const dl_event *event)
{
    if (event->status && m->n_unread++ < MAX_UNREAD)
        return of_draft(m, DL_ASK_FETCH_COMBINED, DL_READING_OWN);
    if (event->status) m->draft.entry.combined.there = false;
    return of_draft(m, DL_ASK_COMPUTE, DL_DRAFTING);
}

static dl_ask drafted(dl_machine *m, const dl_event *event)
{
    if (event->status == DILOCO_ENUMERIC) return draft_abort(m, diloco_error_text()); /* B2 */
    m->draft.entry.result = m->draft_result = event->result;
    m->computed = true;
    return create(m);
}

static dl_ask created(dl_machine *m, const dl_event *event)
{
    m->created = !event->taken;
    return dl_machine_ask(m, DL_ASK_READ, DL_READING_BACK); /* P26, and P5: losing is normal */
}

static dl_ask read_back(dl_machine *m, const dl_event *event)
{
    if (event->text) return dl_follow_text(m, event);
    return dl_machine_fail(
        m, dl_fail(DILOCO_EREFUSED,
                   "the store took log/%llu and does not give it back: it cannot carry a run",
                   (unsigned long long)open_entry(m)));
}

/* ---- the table of phases ----------------------------------------------------------------- */

/* Which failures of an ask are answers that its phase deals with. */
static bool phase_handles(dl_phase p, diloco_status s)
{
    const bool refused = s == DILOCO_EPROTO || s == DILOCO_ENUMERIC;
    switch (p) {
    case DL_FETCHING:
        return refused;
    case DL_FOLD_FETCHING:
    case DL_FOLD_COMBINED:
    case DL_READING_OWN:
        return refused || s == DILOCO_ENOENT;
    case DL_COMBINING:
    case DL_DRAFTING:
    case DL_FOLD_COMBINING:
    case DL_FOLD_COMPUTING:
        return s == DILOCO_ENUMERIC;
    case DL_SNAPSHOTTING:
        return true; /* there will be another */
    default:
        return false;
    }
}

dl_ask dl_machine_next(dl_machine *m, const dl_event *event)
{
    m->now = event->now;
    if (event->status && !phase_handles(m->phase, event->status))
        return dl_machine_fail(m, event->status);

    switch (m->phase) {
    case DL_CATCHING_UP:
        return read_on(m, event);
    case DL_TRAINING:
        return trained(m);
    case DL_TIMING:
        return timed(m, event);
    case DL_LATE_CHECK:
        return late_checked(m, event);
    case DL_CONTRIBUTING:
        return contributed(m);
    case DL_PUTTING_AHEAD:
        return put_ahead(m);
    case DL_LISTING:
        return listed(m, event);
    case DL_FETCHING:
        return fetched(m, event);
    case DL_LOOKING:
        return looked(m, event);
    case DL_WATCHING:
        return watched(m, event);
    case DL_WAITING:
        return collect(m);
    case DL_COMBINING:
        return combined(m, event);
    case DL_READING_OWN:
        return read_own(m, event);
    case DL_DRAFTING:
        return drafted(m, event);
    case DL_CREATING:
        return created(m, event);
    case DL_READING_BACK:
        return read_back(m, event);
    case DL_FOLD_FETCHING:
        return dl_follow_fetched(m, event);
    case DL_FOLD_COMBINED:
        return dl_follow_fetched_combined(m, event);
    case DL_FOLD_COMBINING:
        return dl_follow_combined(m, event);
    case DL_FOLD_COMPUTING:
        return dl_follow_computed(m, event);
    case DL_SWAPPING:
        return dl_follow_swapped(m);
    case DL_SNAPSHOTTING:
        return dl_follow_snapshotted(m);
    case DL_ENDING:
    case DL_OVER:
        break;
    }
    DL_ASSERT(!"an event without an open ask");
}
