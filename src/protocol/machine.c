/* machine.c - see machine.h for the diagram, machine_parts.h for the other parts.
 *
 * Invariants
 *  1. control is advanced in one place (folded, in advance.c), once per entry, in log order (P4).
 *  2. `known` has only contributions to control->entry; it is cleared when that changes.
 *  3. An entry is decided by its create-once name alone: a draft counts only once it is read back
 *     (P5).
 *  4. No time-out leads to a local step: past a deadline there is a draft or more waiting (P12). */
#include "protocol/machine.h"

#include "protocol/machine_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- create and destroy ----------------------------------------------------------------- */

static void layout(dl_machine *m, dl_arena *arena)
{
    m->open.known.at = DL_ARENA_ARRAY(arena, dl_candidate, m->open.known.cap);
    m->open.watch.at = DL_ARENA_ARRAY(arena, dl_watched, DL_WATCH_MAX);
    m->log.digest = DL_ARENA_ARRAY(arena, dl_hash, m->a.pace->schedule.n_fragments);
    m->self.bases = DL_ARENA_ARRAY(arena, dl_hash, m->a.pace->schedule.n_fragments);
    m->log.n_commits = DL_ARENA_ARRAY(arena, uint64_t, m->a.pace->schedule.n_fragments);
    m->rejoining.unreadable = DL_ARENA_ARRAY(arena, dl_unreadable, m->a.pace->schedule.n_fragments);
    m->open.silent = DL_ARENA_ARRAY(arena, bool, m->a.max_members);
    m->open.present = DL_ARENA_ARRAY(arena, bool, m->a.max_members);
    m->applying.slots = DL_ARENA_ARRAY(arena, size_t, m->a.max_members);
    m->applying.norms = DL_ARENA_ARRAY(arena, double, m->a.max_members);
    if (m->a.simulation.config)
        m->open.simulated = DL_ARENA_ARRAY(arena, dl_simulated, m->a.max_members);
    dl_draft_layout(&m->open.draft, arena, m->a.max_members);
    dl_judge_layout(&m->judge, arena, m->a.max_members);
}

diloco_status dl_machine_create(dl_machine **out, const dl_machine_args *args)
{
    DL_ASSERT(args->control && args->pace && args->max_members > 0);
    *out = NULL;
    dl_machine *m = calloc(1, sizeof *m);
    if (!m) return dl_fail(DILOCO_ENOMEM, "out of memory for the protocol's state");
    m->a = *args;
    m->open.known.cap = 2 * args->max_members;
    m->voiding.decisions = args->decisions;

    dl_arena measure = {0};
    layout(m, &measure);
    diloco_status status = dl_arena_init(&m->arena, measure.used);
    if (!status) {
        layout(m, &m->arena);
        status = dl_entry_init(&m->open.draft.entry, args->max_members);
    }
    if (!status) status = dl_entry_init(&m->applying.entry, args->max_members);
    if (!status && args->control->ledger)
        status = dl_ledger_create(&m->open.scratch, args->config, &args->pace->schedule,
                                  args->max_members);
    if (!status && args->control->bans)
        status = dl_bans_create(&m->open.bans, args->config, args->control->bans->cap);
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
    dl_entry_deinit(&m->open.draft.entry);
    dl_entry_deinit(&m->applying.entry);
    dl_ledger_destroy(m->open.scratch);
    dl_bans_destroy(m->open.bans);
    dl_arena_deinit(&m->arena);
    free(m);
}

/* ---- small helpers ----------------------------------------------------------------------- */

bool dl_machine_is_over(const dl_machine *m)
{
    return dl_open_entry(m) >= m->a.pace->entries;
}

uint32_t dl_machine_fragment(const dl_machine *m)
{
    return dl_schedule_fragment(&m->a.pace->schedule, dl_open_entry(m), m->log.n_commits_all);
}

void dl_machine_note(dl_machine *m, dl_note note)
{
    if (m->a.listener.note) m->a.listener.note(m->a.listener.note_user, &note);
}

dl_request dl_machine_request(dl_machine *m, dl_request_kind kind, dl_phase next)
{
    DL_ASSERT(dl_phase_waits_for(next, kind));
    m->phase = next;
    return (dl_request){
        .kind = kind, .entry = dl_open_entry(m), .fragment = dl_machine_fragment(m)};
}

dl_request dl_machine_fail(dl_machine *m, diloco_status status)
{
    DL_ASSERT(status != DILOCO_OK);
    dl_request a = dl_machine_request(m, DL_REQUEST_FAIL, DL_OVER);
    a.fail.status = status;
    return a;
}

bool dl_machine_reads_whole(const dl_machine *m)
{
    return dl_machine_topology(m)->reads_whole(m);
}

dl_request dl_machine_fetch(dl_machine *m, const dl_candidate *known, dl_phase next, bool fresh)
{
    dl_request a = dl_machine_request(m, DL_REQUEST_FETCH, next);
    a.entry = known->entry;
    a.fetch.generation = known->generation;
    a.fetch.slot = dl_candidate_slot(&m->open.known, known);
    a.fetch.fresh = fresh;
    a.fetch.whole = dl_machine_reads_whole(m);
    return a;
}

bool dl_machine_look_ahead(dl_machine *m, dl_request *fetch, const dl_candidate *known)
{
    if (fetch->fetch.n_ahead == DL_AHEAD_MAX) return false;
    fetch->fetch.ahead = m->ahead;
    m->ahead[fetch->fetch.n_ahead++] = (dl_ahead){.entry = known->entry,
                                                  .generation = known->generation,
                                                  .slot = dl_candidate_slot(&m->open.known, known)};
    return true;
}

void dl_machine_clear_entry(dl_machine *m)
{
    dl_candidate_clear(&m->open.known);
    m->open.created = m->open.computed = m->open.by_all = false;
    m->open.enough_at = DL_NEVER;
    m->applying.n_recomputed = m->applying.n_unreadable = 0;
    memset(m->open.silent, 0, m->a.max_members * sizeof m->open.silent[0]);
    if (m->open.simulated)
        m->open.simulated_s = dl_simulation_round(m->open.simulated, &m->a.simulation,
                                                  dl_open_entry(m), &m->a.control->roster);
}

/* ---- begin, and choose the next request -------------------------------------------------- */

/* A reading of a snapshot that fails leaves the state incomplete until the next one. So the trainer
 * neither captures nor adopts meanwhile. */
dl_request dl_machine_rejoin(dl_machine *m, uint64_t before)
{
    dl_pace_fall_behind(m->a.pace);
    dl_request a = dl_machine_request(m, DL_REQUEST_REJOIN, DL_OVER);
    a.entry = before;
    return a;
}

dl_request dl_machine_train(dl_machine *m)
{
    DL_ASSERT(!m->log.behind); /* the log was read to its end */
    m->timing.train_began = m->now;
    m->timing.train_from = m->a.pace->position;
    const uint64_t open = dl_open_entry(m), first = m->self.n_put > open ? open + 1 : open;
    if (m->self.own_since > first)
        m->self.own_since = first; /* an announcement has given up the open entry */
    return dl_machine_request(m, DL_REQUEST_TRAIN, DL_TRAINING);
}

/* Announces this replica, so that others wait for its training, or trains. */
static dl_request train_or_announce(dl_machine *m)
{
    return dl_joining_has_to_announce(m) ? dl_joining_announce(m) : dl_machine_train(m);
}

dl_request dl_machine_caught_up(dl_machine *m)
{
    DL_ASSERT(m->log.behind);
    m->self.out_of_step = false;
    m->self.align_until = 0;
    m->log.behind = false;
    dl_pace_caught_up(m->a.pace);
    if (dl_open_entry(m) < m->a.pace->applied && m->self.has_bases)
        return dl_machine_fail(
            m, dl_fail(DILOCO_EDIFFERS,
                       "this replica's saved state is for entry %llu, the log has only %llu: the "
                       "store lost entries; move the state folder away to join as a new replica",
                       (unsigned long long)m->self.bases_at, (unsigned long long)dl_open_entry(m)));
    if (dl_machine_mode(m)->go_on && !m->a.reader) return dl_machine_mode(m)->go_on(m);
    if (m->a.reader || !dl_pace_participates(m->a.pace, dl_open_entry(m)))
        return train_or_announce(m);
    m->timing.due_at = m->now;
    return dl_gather_collect(m);
}

dl_request dl_machine_go_on(dl_machine *m)
{
    if (dl_machine_is_over(m)) {
        dl_pace_caught_up(m->a.pace);
        return dl_machine_request(m, DL_REQUEST_DONE, DL_ENDING);
    }
    if (m->log.behind && dl_joining_falls_back(m)) return dl_joining_measure(m);
    if (m->log.behind) return dl_machine_request(m, DL_REQUEST_READ, DL_CATCHING_UP);
    if (dl_machine_mode(m)->go_on && !m->a.reader) return dl_machine_mode(m)->go_on(m);
    if (!dl_pace_participates(m->a.pace, dl_open_entry(m))) return train_or_announce(m);
    m->timing.due_at = m->now;
    return dl_machine_request(m, DL_REQUEST_READ, DL_LATE_CHECK);
}

dl_request dl_machine_read_on(dl_machine *m, const dl_reply *reply)
{
    if (reply->read.text) {
        dl_joining_passes_entry(m);
        return dl_apply_text(m, reply);
    }
    return dl_joining_has_to_align(m) ? dl_joining_align(m) : dl_machine_caught_up(m);
}

/* A movement from a state that the log does not have may not be sent as if from the log's (P3): an
 * earlier generation had judged an entry differently. */
void dl_machine_compare_bases(dl_machine *m)
{
    if (!m->self.has_bases || dl_open_entry(m) != m->self.bases_at) return;
    for (uint64_t f = 0; f < m->a.pace->schedule.n_fragments; f++) {
        if (dl_hash_equal(m->self.bases[f], m->log.digest[f])) continue;
        m->a.pace->fragments[f].behind = true;
        /* that generation read an entry that this one could not */
        if (!m->rejoining.unreadable[f].after) continue;
        m->rejoining.unreadable[f].accepted = m->rejoining.parted = true;
        m->rejoining.started_for = 0;
    }
    m->self.has_bases = false;
}

static void take_start(dl_machine *m, const dl_machine_start *start)
{
    DL_ASSERT(start->fragments);
    m->log.n_commits_all = 0;
    for (uint64_t f = 0; f < m->a.pace->schedule.n_fragments; f++) {
        m->log.digest[f] = start->fragments[f].digest;
        m->log.n_commits[f] = start->fragments[f].n_commits;
        m->log.n_commits_all += m->log.n_commits[f];
        if (start->bases) m->self.bases[f] = start->bases[f];
    }
    m->now = m->timing.start_at = m->snapshots.at = start->now;
    m->self.grace_over = 0;
    m->snapshots.known = m->a.control->snapshot;
    m->self.has_bases =
        start->bases != NULL && dl_machine_mode(m)->has_due_points; /* pace.c: dl_pace_caught_up */
    m->self.bases_at = start->bases ? m->a.pace->applied : 0;
    m->self.n_late = 0;
    m->self.own_since = start->bases ? m->a.pace->applied : UINT64_MAX;
}

/* No entry contains the terms of the first L entries. */
static void begin_first_entry(dl_machine *m)
{
    dl_control *c = m->a.control;
    if (dl_machine_mode(m)->first_roster) dl_machine_mode(m)->first_roster(m);
    if (!m->a.lr) return;
    c->lr = (float)m->a.lr(m->a.lr_user, 0);
    for (size_t i = 0; i < c->n_later; i++)
        c->later[i].lr = (float)m->a.lr(m->a.lr_user, i + 1);
}

/* ---- at the due point -------------------------------------------------------------------- */

/* Measures the time from one due point to the next, from the steps since nothing was in flight.
 * With overlap those are a part of all steps. Skipped ones take no time. */
static void measure_round(dl_machine *m)
{
    const dl_pace *p = m->a.pace;
    const dl_schedule *s = &p->schedule;
    const bool jumps = p->applied && dl_machine_mode(m)->has_due_points;
    const uint64_t last = jumps ? dl_schedule_capture(s, p->applied - 1) : 0;
    const uint64_t from = m->timing.train_from > last ? m->timing.train_from : last;
    if (p->position <= from) return;
    m->timing.round_s = dl_seconds(m->now - m->timing.train_began) / (double)(p->position - from) *
                        (double)dl_schedule_interval(s, p->applied) / (double)s->n_fragments;
}

dl_request dl_machine_trained(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    measure_round(m);
    return dl_machine_go_on(m);
}

dl_request dl_machine_late_checked(dl_machine *m, const dl_reply *reply)
{
    if (!reply->read.text) {
        m->self.n_late = 0;
        return dl_gather_collect(m);
    }
    m->log.behind = true; /* it was committed without us: P13 */
    m->self.n_late++;
    dl_joining_fall_out_of_step(m);
    dl_pace_fall_behind(m->a.pace);
    return dl_apply_text(m, reply);
}

/* ---- one move ---------------------------------------------------------------------------- */

dl_request dl_machine_announced(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    if (!m->log.behind) return dl_machine_train(m);
    if (dl_joining_falls_back(m)) return dl_joining_measure(m); /* was it too late? */
    return dl_machine_request(m, DL_REQUEST_READ, DL_CATCHING_UP);
}

dl_request dl_machine_waited_for_rest(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    return dl_machine_request(m, DL_REQUEST_READ, DL_READING_BACK);
}

/* Opens the next request; the machine then waits for its reply. */
static dl_request open_request(dl_machine *m, dl_request next, dl_transition move)
{
    DL_ASSERT(dl_phase_waits_for(m->phase, next.kind));
    m->requested = next.kind;
    move.to = dl_phase_name(m->phase);
    move.requested = next.kind;
    if (m->a.listener.trace) m->a.listener.trace(m->a.listener.trace_user, &move);
    return next;
}

static void take_facts(dl_machine *m, const dl_reply *reply)
{
    m->now = reply->now;
    m->self.sending = reply->sending;
    /* Only a run with keys renews, and it has no single committer, so P26 need not take over. */
    DL_ASSERT(!reply->renewed || !m->a.control->committer.replica[0]);
    if (reply->renewed) m->a.self.number = reply->generation;
    if (reply->unsent && m->self.n_put >= reply->unsent) m->self.n_put = reply->unsent - 1;
}

dl_request dl_machine_next(dl_machine *m, const dl_reply *reply)
{
    DL_ASSERT(reply->kind == m->requested);
    const dl_phase from = m->phase;
    const dl_transition move = {.entry = dl_open_entry(m),
                                .from = dl_phase_name(from),
                                .replied = m->requested,
                                .reply = dl_reply_text(reply)};
    take_facts(m, reply);
    const dl_request next = dl_phase_handle(m, reply);
    DL_ASSERT(dl_phase_leads_to(from, m->phase));
    DL_ASSERT(dl_open_entry(m) - move.entry <= 1); /* invariant 1: one reply, one entry at most */
    return open_request(m, next, move);
}

dl_request dl_machine_begin(dl_machine *m, const dl_machine_start *start)
{
    take_start(m, start);
    m->voiding.began_at = dl_open_entry(m);
    m->rejoining.stays |= m->rejoining.left_at > dl_open_entry(m);
    m->rejoining.left_at = 0;
    /* the outcome of the entries in between is not known */
    if (m->self.has_bases && dl_open_entry(m) > m->self.bases_at) {
        m->self.has_bases = false;
        dl_pace_restart(m->a.pace);
    }
    if (m->a.pace->applied < dl_open_entry(m)) m->a.pace->applied = dl_open_entry(m);
    dl_machine_compare_bases(m);
    if (dl_open_entry(m) == 0) begin_first_entry(m);
    dl_machine_clear_entry(m);
    m->log.behind = true;
    dl_joining_fall_out_of_step(m);
    DL_ASSERT(m->a.pace->applied >= dl_open_entry(m));
    DL_ASSERT(m->open.known.n == 0); /* invariant 2 */
    const dl_transition move = {
        .entry = dl_open_entry(m), .from = "start", .replied = DL_REQUEST_REJOIN, .reply = "done"};
    return open_request(m, dl_machine_go_on(m), move);
}
