/* async_phases.c - the phases of an asynchronous run that differ (P20). A replica trains at its own
 * pace, and lists every base that an entry may still name. It closes the open entry with any
 * contribution that is present. It waits until its own is committed, and for the grace after that.
 * async.h has what an entry may name. */
#include "protocol/async/async.h"
#include "protocol/control_apply.h"
#include "protocol/machine_parts.h"

#include <math.h>
#include <string.h>

/* The contribution in flight will never count. Its residual stays for the next one (P17). */
static bool is_in_vain(const dl_machine *m)
{
    const dl_pace *p = m->a.pace;
    if (p->n_captured == p->next_adopt || p->captures[0].counted) return false;
    return m->self.own_damaged ||
           dl_async_is_too_old(m->a.config, dl_open_entry(m), p->captures[0].entry);
}

static void let_go(dl_machine *m)
{
    dl_pace_let_go(m->a.pace);
    dl_machine_note(m, (dl_note){.kind = DL_NOTE_LATE, .entry = &m->applying.entry});
}

/* Trains, after a look at the other replicas' speeds if those matter. Or handles the entries that
 * name present contributions, this replica's own among them, and those of the grace after it. */
static dl_request go_on(dl_machine *m)
{
    dl_pace *p = m->a.pace;
    if (is_in_vain(m)) let_go(m);
    m->self.own_damaged = false;
    const bool own_stands = p->n_captured > p->next_adopt && p->captures[0].counted;
    if (own_stands && !m->self.grace_over)
        m->self.grace_over = dl_time_after(m->now, dl_time_from_seconds(m->a.config->grace_s));
    if (own_stands && m->now >= m->self.grace_over) dl_pace_settle(p);
    if (dl_pace_participates(p, dl_open_entry(m)))
        return dl_machine_request(m, DL_REQUEST_READ, DL_LATE_CHECK);
    m->self.grace_over = 0;
    if (m->a.config->dylu) return dl_machine_request(m, DL_REQUEST_WATCH, DL_TIMING);
    return dl_machine_train(m);
}

/* Returns true if the last heartbeat of a replica does not say how fast it is now. */
static bool is_gone(dl_machine *m, const dl_seen *s)
{
    dl_generation whose;
    const dl_time patience = dl_time_from_seconds(m->a.config->patience_s);
    return s->ended ||
           dl_watch_is_silent(&m->open.watch, s->generation.replica, m->now, patience, &whose);
}

dl_request dl_async_timed(dl_machine *m, const dl_reply *reply)
{
    double own = 0, fastest = 0;
    dl_watch_see(&m->open.watch, reply->watch.seen, reply->watch.n_seen, m->now);
    for (size_t i = 0; i < reply->watch.n_seen; i++) {
        const dl_seen *s = &reply->watch.seen[i];
        if (!is_gone(m, s)) fastest = fmax(fastest, s->steps_per_s);
        if (!strcmp(s->generation.replica, m->a.self.replica)) own = s->steps_per_s;
    }
    m->a.pace->own_interval = dl_async_interval(m->a.pace->schedule.interval, own, fastest);
    return dl_machine_train(m);
}

/* Fetches the one contribution that the entry would name. */
static dl_request listed(dl_machine *m, const dl_reply *reply)
{
    const size_t i = dl_async_choose(m->a.control, m->a.config, reply->list.listed,
                                     reply->list.n_listed, &m->open.known);
    m->open.fetching = m->open.known.n;
    if (i == SIZE_MAX) return dl_machine_request(m, DL_REQUEST_READ, DL_LOOKING);
    const dl_listed *l = &reply->list.listed[i];
    dl_candidate *k = dl_candidate_add(&m->open.known, &l->generation, l->entry, l->len);
    if (!k)
        return dl_machine_request(m, DL_REQUEST_READ, DL_LOOKING); /* no room: all were refused */
    if (k->entry != l->entry) /* its older one will never count */
        dl_candidate_restart(k, l->entry, l->len);
    m->open.fetching = dl_candidate_slot(&m->open.known, k);
    return dl_gather_fetch_next(m);
}

static bool own_is_damaged(const dl_machine *m)
{
    const dl_candidate *own = dl_candidate_find(&m->open.known, &m->a.self);
    return own && own->validity == DL_INVALID && dl_pace_in_flight(m->a.pace, own->entry);
}

/* Any contribution that is present closes the entry, except in the grace after our own. If the
 * store damaged our contribution, waiting for it is useless, and its name cannot be created again.
 * The next one needs another base, so the entry is closed with an abort. */
static dl_request looked(dl_machine *m)
{
    m->self.own_damaged = own_is_damaged(m);
    if (dl_candidate_n_counting(&m->open.known) > 0 && dl_propose_may_create(m))
        return dl_propose_draft_commit(m);
    if (m->self.own_damaged && dl_propose_may_create(m))
        return dl_propose_draft_abort(m, "the store damaged the contribution");
    if (m->self.grace_over && m->now >= m->self.grace_over) return dl_machine_go_on(m);
    return dl_propose_wait_until(m, m->self.grace_over ? m->self.grace_over : DL_NEVER);
}

/* ---- the table ---------------------------------------------------------------------------- */

static bool is_in_flight(const dl_machine *m)
{
    return m->a.pace->n_captured > m->a.pace->next_adopt;
}

static void next_roster(dl_entry *draft, const dl_draft_source *from)
{
    const dl_candidate *k =
        draft->n_members ? dl_candidate_find(from->known, &draft->members[0].generation) : NULL;
    if (k) draft->position = k->facts.stats.position;
    dl_async_next_roster(&draft->roster, from->args->control, draft);
}

static bool counts_in_flight(const dl_machine *m, const dl_member *own)
{
    return dl_pace_in_flight(m->a.pace, own->entry) != NULL;
}

static const char *void_reason(const dl_machine *m)
{
    return dl_async_void_reason(m->a.control, m->a.config, &m->applying.entry);
}

static void apply_void(dl_machine *m)
{
    m->applying.entry.committer = (dl_generation){.number = 0};
    dl_control_apply_void(m->a.control, &m->applying.entry, m->applying.digest);
}

static bool has_to_put(dl_machine *m)
{
    return is_in_flight(m) && m->self.n_put <= m->a.pace->captures[0].entry;
}

static bool has_put_all(const dl_machine *m)
{
    return !is_in_flight(m) || m->self.n_put > m->a.pace->captures[0].entry;
}

static void begin_put(dl_machine *m)
{
    m->self.n_put = m->a.pace->captures[0].entry;
}

static uint64_t list_from(const dl_machine *m)
{
    return is_in_flight(m) ? m->a.pace->captures[0].entry : dl_open_entry(m);
}

const dl_mode dl_mode_async = {
    .cuts_claims = true,
    .chooses_one = true,
    .next_roster = next_roster,
    .counts_in_flight = counts_in_flight,
    .void_reason = void_reason,
    .apply_void = apply_void,
    .has_to_put = has_to_put,
    .has_put_all = has_put_all,
    .begin_put = begin_put,
    .list_from = list_from,
    .go_on = go_on,
    .listed = listed,
    .looked = looked,
};
