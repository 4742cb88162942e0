/* propose.c - closes the open entry: decides how (close_rule.h), drafts the entry, and creates
 * log/<e>. A draft counts only once it is read back under its name (P5, P26). */
#include "protocol/close_rule.h"
#include "protocol/control_apply.h"
#include "protocol/logical_clients.h"
#include "protocol/machine_parts.h"

#include <math.h>
#include <string.h>

/* ---- closing: P9, P10, P11 --------------------------------------------------------------- */

static dl_draft_source draft_source(const dl_machine *m)
{
    return (dl_draft_source){.args = &m->a,
                             .known = &m->open.known,
                             .silent = m->open.silent,
                             .fragment = dl_machine_fragment(m),
                             .base = m->log.digest[dl_machine_fragment(m)],
                             .n_commits = m->log.n_commits[dl_machine_fragment(m)],
                             .snapshot = m->snapshots.known,
                             .scratch = m->open.scratch,
                             .simulated_s = m->open.simulated ? m->open.simulated_s : 0,
                             .bans = m->open.bans};
}

static dl_request create(dl_machine *m)
{
    DL_ASSERT(m->open.draft.entry.entry == dl_open_entry(m));
    DL_ASSERT(m->open.draft.entry.abort.takeover || !m->a.follows); /* a follower closes nothing */
    dl_request a = dl_machine_request(m, DL_REQUEST_CREATE, DL_CREATING);
    a.step.draft = &m->open.draft.entry;
    return a;
}

dl_request dl_propose_draft_abort(dl_machine *m, const char *reason)
{
    const dl_draft_source from = draft_source(m);
    dl_draft_abort(&m->open.draft, &from, reason);
    return create(m);
}

dl_request dl_propose_of_draft(dl_machine *m, dl_request_kind kind, dl_phase next)
{
    dl_request a = dl_machine_request(m, kind, next);
    a.step.draft = &m->open.draft.entry;
    a.step.slots = m->open.draft.slots;
    a.step.put = true;
    return a;
}

dl_request dl_propose_compute(dl_machine *m)
{
    return dl_propose_of_draft(m, DL_REQUEST_COMPUTE, DL_DRAFTING);
}

/* P26: this generation takes over from an ended one of its own. For any other committer an operator
 * has to run `diloco takeover`. */
static bool inherits(const dl_machine *m)
{
    const dl_generation *only = &m->a.control->committer;
    if (strcmp(only->replica, m->a.self.replica) != 0) return false;
    for (size_t i = 0; i < m->a.formers.n; i++)
        if (m->a.formers.at[i] == only->number) return true;
    return false;
}

static dl_request take_over(dl_machine *m)
{
    const dl_draft_source from = draft_source(m);
    dl_draft_takeover(&m->open.draft, &from);
    return create(m);
}

bool dl_propose_may_create(const dl_machine *m)
{
    return !m->a.follows && dl_control_may_create(m->a.control, &m->a.self);
}

/* P27: judges the contributions that would count, before any is used. */
static dl_request judge(dl_machine *m)
{
    for (size_t i = 0; i < m->open.known.n; i++)
        if (m->open.known.at[i].validity == DL_VALID) m->open.known.at[i].refused = NULL;
    const dl_draft_source from = draft_source(m);
    if (dl_draft_commit(&m->open.draft, &from))
        return dl_propose_draft_abort(m, diloco_error_text());
    m->judge.n = m->open.draft.entry.n_members;
    DL_ASSERT(m->judge.n <= m->a.max_members);
    memcpy(m->judge.slots, m->open.draft.slots, m->judge.n * sizeof m->judge.slots[0]);
    dl_request a = dl_machine_request(m, DL_REQUEST_JUDGE, DL_JUDGING);
    a.judge.slots = m->judge.slots;
    a.judge.n_slots = m->judge.n;
    a.judge.probe = m->a.config->check_probe > 0;
    a.judge.whole = dl_judge_has_whole(&m->judge, &m->open.known);
    return a;
}

dl_request dl_propose_draft_commit(dl_machine *m)
{
    const dl_draft_source from = draft_source(m);
    if (dl_draft_commit(&m->open.draft, &from))
        return dl_propose_draft_abort(m, diloco_error_text());
    return dl_machine_topology(m)->combine(m);
}

/* As in Plato, and only for compatibility with it: after such a round the outer optimizer is as at
 * the beginning. That is another state, so it is computed, and every replica checks it. */
static dl_request draft_emptied(dl_machine *m, const char *reason)
{
    const dl_draft_source from = draft_source(m);
    dl_draft_abort(&m->open.draft, &from, reason);
    m->open.draft.entry.abort.emptied = true;
    return dl_propose_of_draft(m, DL_REQUEST_COMPUTE, DL_DRAFTING);
}

static dl_request commit(dl_machine *m)
{
    return dl_judge_may_reject(m->a.config) ? judge(m) : dl_propose_draft_commit(m);
}

/* The draft still has every contribution that was judged, in the order of the judge's slots. */
static void use_probe(dl_machine *m, const double *probed)
{
    dl_machine_note(
        m, (dl_note){.kind = DL_NOTE_PROBED, .entry = &m->open.draft.entry, .probed = probed});
    dl_judge_probed(&m->judge, m->a.config, &m->open.known, probed);
}

dl_request dl_propose_judged(dl_machine *m, const dl_reply *reply)
{
    if (reply->status) return dl_machine_fail(m, reply->status); /* from the trainer's probe */
    DL_ASSERT(m->judge.n == m->open.draft.entry.n_members);
    dl_judge_all(&m->judge, m->a.config, m->a.control->bans, &m->open.known, reply->judge.gram);
    if (reply->judge.probed) use_probe(m, reply->judge.probed);
    return dl_propose_draft_commit(m);
}

dl_request dl_propose_wait_until(dl_machine *m, dl_time until)
{
    if (dl_gather_may_pipeline(m)) return dl_gather_contribute(m);
    dl_request a = dl_machine_request(m, DL_REQUEST_WAIT, DL_WAITING);
    a.wait.until = until;
    return a;
}

/* It is other replicas' turn. */
static dl_request wait_for_the_log(dl_machine *m)
{
    dl_request a = dl_propose_wait_until(m, dl_gather_turn(m));
    if (a.kind == DL_REQUEST_WAIT) a.wait.log_only = dl_gather_has_roster(m);
    if (a.kind == DL_REQUEST_WAIT) a.wait.for_plan = true;
    return a;
}

static dl_closing closing(const dl_machine *m)
{
    return (dl_closing){.config = m->a.config,
                        .control = m->a.control,
                        .known = &m->open.known,
                        .silent = m->open.silent,
                        .simulated = m->open.simulated,
                        .now = m->now,
                        .began = m->timing.start_at,
                        .deadline = dl_gather_deadline(m),
                        .enough_at = m->open.enough_at,
                        .slack_s = m->open.slack_s};
}

/* Looks for silent replicas among those that have not contributed. The heartbeats of the others
 * would cost a request each, and n replicas that wait for one would send n * n. */
static dl_request watch(dl_machine *m)
{
    const dl_roster *roster = &m->a.control->roster;
    for (size_t i = 0; i < roster->n; i++)
        m->open.present[i] = dl_candidate_is_present(&m->open.known, roster->names[i]);
    dl_request a = dl_machine_request(m, DL_REQUEST_WATCH, DL_WATCHING);
    a.watch = (dl_watch_request){.roster = roster, .present = m->open.present};
    return a;
}

static dl_request obey(dl_machine *m, const dl_verdict *verdict)
{
    DL_ASSERT(verdict->kind != DL_VERDICT_ABORT || verdict->reason[0]);
    if (!dl_propose_may_create(m))
        return dl_propose_wait_until(m, DL_NEVER); /* P26: another replica has to close it */
    switch (verdict->kind) {
    case DL_VERDICT_COMMIT:
        return commit(m);
    case DL_VERDICT_ABORT:
        return verdict->nobody && dl_clients_empty_momentum(m->a.config)
                   ? draft_emptied(m, verdict->reason)
                   : dl_propose_draft_abort(m, verdict->reason);
    case DL_VERDICT_WAIT:
        return dl_propose_wait_until(m, verdict->until);
    case DL_VERDICT_WATCH:
        break;
    }
    return watch(m);
}

/* Returns the time of the overlap's steps that upload and waiting have left. */
static double slack(const dl_machine *m)
{
    const dl_schedule *s = &m->a.pace->schedule;
    const double interval = (double)dl_schedule_interval(s, m->a.pace->applied);
    const double step_s = m->timing.round_s * (double)s->n_fragments / interval;
    return fmax(0, (double)s->delay * step_s -
                       dl_seconds(m->now - m->timing.due_at + m->timing.put_took));
}

static void see_whether_enough(dl_machine *m)
{
    const dl_closing c = closing(m);
    if (m->open.enough_at != DL_NEVER || !dl_closing_has_enough(&c)) return;
    m->open.enough_at = m->now;
    m->open.slack_s = slack(m);
    DL_ASSERT(m->open.slack_s >= 0);
}

dl_request dl_propose_look_to_close(dl_machine *m)
{
    if (!dl_gather_is_our_turn(m)) return wait_for_the_log(m);
    see_whether_enough(m);
    const dl_closing c = closing(m);
    const dl_verdict verdict = dl_closing_look(&c);
    return obey(m, &verdict);
}

bool dl_propose_is_complete(const dl_machine *m)
{
    if (!dl_gather_is_first(m) || dl_machine_mode(m)->looked) return false;
    if (!dl_propose_may_create(m) || inherits(m)) return false;
    const dl_closing c = closing(m);
    return dl_closing_is_complete(&c);
}

dl_request dl_propose_close(dl_machine *m)
{
    return commit(m);
}

static void find_silent(dl_machine *m)
{
    const dl_roster *roster = &m->a.control->roster;
    const dl_time patience = dl_time_from_seconds(m->a.config->patience_s);
    for (size_t i = 0; i < roster->n; i++) {
        const char *name = roster->names[i];
        dl_generation whose;
        bool quiet = false;
        if (m->open.present[i])
            dl_watch_present(&m->open.watch, name, m->now);
        else
            quiet = dl_watch_is_silent(&m->open.watch, name, m->now, patience, &whose);
        if (quiet && !m->open.silent[i])
            dl_machine_note(m, (dl_note){.kind = DL_NOTE_SILENT, .generation = whose});
        m->open.silent[i] = quiet || dl_candidate_is_hopeless(&m->open.known, name);
    }
}

dl_request dl_propose_watched(dl_machine *m, const dl_reply *reply)
{
    dl_watch_see(&m->open.watch, reply->watch.seen, reply->watch.n_seen, m->now);
    find_silent(m);
    const dl_closing c = closing(m);
    const dl_verdict verdict = dl_closing_watched(&c);
    return obey(m, &verdict);
}

dl_request dl_propose_looked(dl_machine *m, const dl_reply *reply)
{
    if (reply->read.text) return dl_apply_text(m, reply);
    if (inherits(m)) return take_over(m);
    if (dl_machine_mode(m)->looked) return dl_machine_mode(m)->looked(m);
    if (m->a.follows) return dl_propose_wait_until(m, DL_NEVER);
    return dl_machine_topology(m)->look(m);
}

dl_request dl_propose_served(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    return dl_propose_look_to_close(m);
}

/* ---- creating the entry ------------------------------------------------------------------ */

dl_request dl_propose_combined(dl_machine *m, const dl_reply *reply)
{
    return dl_machine_topology(m)->combined(m, reply);
}

dl_request dl_propose_read_own(dl_machine *m, const dl_reply *reply)
{
    return dl_machine_topology(m)->read_own(m, reply);
}

dl_request dl_propose_drafted(dl_machine *m, const dl_reply *reply)
{
    if (reply->status == DILOCO_ENUMERIC)
        return dl_propose_draft_abort(m, diloco_error_text()); /* B2 */
    /* from the caller's own optimizer */
    if (reply->status) return dl_machine_fail(m, reply->status);
    DL_ASSERT(!m->open.created && m->open.draft.entry.entry == dl_open_entry(m));
    m->open.draft.entry.result = m->open.draft_result = reply->compute.result;
    m->open.computed = true;
    return create(m);
}

dl_request dl_propose_created(dl_machine *m, const dl_reply *reply)
{
    DL_ASSERT(!m->open.created); /* P5: an entry is created once */
    m->open.created = !reply->create.taken;
    /* P26, and P5: losing is normal */
    return dl_machine_request(m, DL_REQUEST_READ, DL_READING_BACK);
}

dl_request dl_propose_read_back(dl_machine *m, const dl_reply *reply)
{
    if (reply->read.text) return dl_apply_text(m, reply);
    return dl_machine_fail(
        m, dl_fail(DILOCO_EREFUSED,
                   "the store accepted log/%llu and does not return it: it cannot hold a run",
                   (unsigned long long)dl_open_entry(m)));
}
