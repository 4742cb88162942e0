/* due_points.c - see due_points.h. */
#include "run/due_points.h"

/* Returns whether that stop is still the next one, and may be done. */
static bool is_here(const dl_stops *s, dl_stop_kind kind, uint64_t entry)
{
    const dl_stop stop = dl_pace_next(s->pace);
    return stop.kind == kind && (kind == DL_STOP_JUMP || stop.entry == entry) &&
           dl_pace_ready(s->pace, stop);
}

static const dl_control *control(const dl_stops *s)
{
    return &dl_exec_state(s->exec)->control;
}

/* Returns whether the log waits for this replica by name at that entry. The log says it L entries
 * before (P9). */
static bool is_awaited(const dl_stops *s, uint64_t entry)
{
    const dl_control *c = control(s);
    if (entry <= c->n_later || entry < c->entry) return true;
    if (entry - c->entry > c->n_later) return true; /* not known yet */
    const dl_roster *roster =
        entry == c->entry ? &c->roster : &c->later[entry - c->entry - 1].roster;
    return dl_roster_has(roster, s->replica, NULL);
}

/* Returns the weight that this replica expects in an entry: that of the last one that counted it,
 * or an even share. */
static float own_weight(const dl_stops *s)
{
    const size_t n = control(s)->roster.n ? control(s)->roster.n : (size_t)s->config->replicas;
    return s->weight > 0 ? s->weight : 1.0f / (float)n;
}

/* Begins the next round now, if the overlap is one round and no earlier entry is in flight.
 * Otherwise it begins when that one is adopted. */
static void begin_first_round(dl_stops *s, uint64_t entry, uint32_t fragment)
{
    const dl_schedule *schedule = &s->pace->schedule;
    if (schedule->overlap == DL_OVERLAP_STEPS) return;
    if (entry >= schedule->n_fragments && dl_pace_in_flight(s->pace, entry - schedule->n_fragments))
        return;
    dl_exec_begin_round(s->exec, fragment, entry, own_weight(s));
    s->pace->fragments[fragment].since = s->pace->position;
    s->fresh(s->user, fragment);
}

/* The fragment follows from the schedule, not from the caller. A mute capture takes nothing: the
 * replica has less than a whole interval of steps on the fragment (P14.1). The pace records it
 * last, since the exchange sends an empty contribution for a capture in flight that is not there.
 */
diloco_status dl_stop_capture(dl_stops *s, uint64_t entry)
{
    if (!is_here(s, DL_STOP_CAPTURE, entry)) return DILOCO_OK;
    const uint64_t n_commits = dl_state_commits(dl_exec_state(s->exec));
    const uint32_t f = dl_schedule_fragment(&s->pace->schedule, entry, n_commits);
    const dl_pace_capture capture = dl_pace_due_capture(s->pace, f, is_awaited(s, entry));
    if (!capture.mute) DL_TRY(dl_exec_capture(s->exec, entry, f, &s->work[f]));
    dl_pace_captured(s->pace, &capture);
    begin_first_round(s, entry, f);
    return DILOCO_OK;
}

/* Begins the next round where the overlap is one round, whatever the outcome of the entry: its own
 * movement is in flight. If the next capture is already in flight, the round begins from theta
 * after this replica's own share of it. */
static dl_adoption begin_next_round(dl_stops *s, const dl_pace_capture *captured)
{
    const uint32_t f = captured->fragment;
    const uint64_t next = captured->entry + s->pace->schedule.n_fragments;
    const bool in_flight = dl_pace_in_flight(s->pace, next) != NULL;
    dl_exec_decided(s->exec, captured->entry, f, captured->commit, captured->counted);
    dl_exec_begin_round(s->exec, f, in_flight ? next : DL_NO_ENTRY, own_weight(s));
    return DL_ADOPT_THETA;
}

/* Mixes or copies theta. An entry that did not count this replica is copied whole (P13.1). */
static dl_adoption adopt(dl_stops *s, const dl_pace_capture *captured)
{
    const dl_adoption how = dl_pace_adoption(s->pace, captured);
    const float mix = how == DL_ADOPT_MIX ? (float)s->config->local_mix : 0;
    if (how != DL_ADOPT_NOTHING) dl_exec_adopt(s->exec, captured->fragment, mix);
    return how;
}

/* *out has a copy of the record, because dl_pace_adopted frees its slot. */
bool dl_stop_adopt(dl_stops *s, uint64_t entry, dl_adopted *out)
{
    if (!is_here(s, DL_STOP_ADOPT, entry)) return false;
    const bool rounds = s->pace->schedule.overlap != DL_OVERLAP_STEPS;
    out->capture = *dl_pace_in_flight(s->pace, entry);
    out->how = rounds ? begin_next_round(s, &out->capture) : adopt(s, &out->capture);
    dl_pace_adopted(s->pace, &out->capture, out->how);
    if (out->how != DL_ADOPT_NOTHING) s->fresh(s->user, out->capture.fragment);
    return true;
}

/* Copies theta whole, since a fragment that moved without this replica has nothing of it
 * (P13.1). */
void dl_stop_jump(dl_stops *s)
{
    if (!is_here(s, DL_STOP_JUMP, 0)) return;
    for (uint32_t f = 0; f < s->pace->schedule.n_fragments; f++) {
        if (!s->pace->fragments[f].behind) continue;
        dl_exec_adopt(s->exec, f, 0);
        s->fresh(s->user, f);
    }
    dl_pace_jumped(s->pace);
}
