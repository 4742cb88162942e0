/* gather.c - contributing to the open entry, and collecting the other replicas' contributions.
 *
 * If one replica combines for all (P19), the replica whose turn it is lists c/<e>/ and reads the
 * contributions. The others read only the log until it is their turn. */
#include "protocol/close_rule.h"
#include "protocol/machine_parts.h"

#include <string.h>

enum { MAX_TURNS = 8 }; /* deadlines until every replica looks for contributions */

/* ---- contributing ------------------------------------------------------------------------ */

dl_request dl_gather_request(dl_machine *m, uint64_t entry, dl_phase next)
{
    dl_request a = dl_machine_request(m, DL_REQUEST_CONTRIBUTE, next);
    const dl_pace_capture *capture = dl_pace_in_flight(m->a.pace, entry);
    a.entry = entry;
    a.fragment = capture && !capture->gone
                     ? capture->fragment
                     : dl_schedule_fragment(&m->a.pace->schedule, entry, m->log.n_commits_all);
    return a;
}

dl_request dl_gather_contribute(dl_machine *m)
{
    dl_machine_mode(m)->begin_put(m);
    const bool ahead = m->self.n_put > dl_open_entry(m);
    dl_request a = dl_gather_request(m, m->self.n_put, ahead ? DL_PIPELINING : DL_CONTRIBUTING);
    a.contribute.pipelined = ahead;
    return a;
}

/* A contribution of a banned replica would not count (P27). */
static bool is_banned(const dl_machine *m, const char *replica)
{
    return dl_bans_has(m->a.control->bans, replica);
}

bool dl_gather_has_to_put(dl_machine *m)
{
    return dl_machine_mode(m)->has_to_put(m);
}

bool dl_gather_has_due(dl_machine *m)
{
    const dl_pace *p = m->a.pace;
    if (m->self.n_put < dl_open_entry(m)) m->self.n_put = dl_open_entry(m);
    while (m->self.n_put < dl_pace_may_put(p)) {
        const dl_pace_capture *capture = dl_pace_in_flight(p, m->self.n_put);
        const bool banned = m->self.n_put < dl_bans_until(m->a.control->bans, m->a.self.replica);
        const bool taken = dl_joining_has_announced(m, m->self.n_put);
        if (!banned && !taken && (!capture || !capture->mute)) return true;
        m->self.n_put++;
    }
    return false;
}

bool dl_gather_may_pipeline(dl_machine *m)
{
    return dl_gather_has_to_put(m) && !m->self.sending;
}

bool dl_machine_has_put_all(const dl_machine *m)
{
    return dl_machine_mode(m)->has_put_all(m);
}

dl_time dl_gather_deadline(const dl_machine *m)
{
    return dl_closing_deadline(m->a.config, m->a.control->n_aborts, m->timing.due_at,
                               m->timing.round_s, dl_seconds(m->timing.put_took));
}

bool dl_gather_has_roster(const dl_machine *m)
{
    return dl_open_entry(m) > m->a.control->n_later;
}

static bool may_count(const dl_machine *m, const char *replica)
{
    const dl_mode *mode = dl_machine_mode(m);
    return !is_banned(m, replica) && (!mode->may_count || mode->may_count(m, replica));
}

const dl_generation *dl_gather_newer(const dl_machine *m, const dl_reply *reply)
{
    for (size_t i = 0; i < reply->list.n_listed; i++) {
        const dl_generation *generation = &reply->list.listed[i].generation;
        if (strcmp(generation->replica, m->a.self.replica) != 0 ||
            !may_count(m, generation->replica))
            continue;
        if (generation->number > m->a.self.number) /* P6 */
            return generation;
    }
    return NULL;
}

dl_request dl_gather_fenced(dl_machine *m, const dl_generation *by)
{
    return dl_machine_fail(m, dl_fail(DILOCO_EFENCED,
                                      "replica %s has a newer generation (%u after %u): this "
                                      "process stops",
                                      by->replica, by->number, m->a.self.number));
}

/* ---- one replica combines for all: whose turn is it? (P19) ---- */

/* Returns how many of the roster come before us. The order rotates, so that each replica combines
 * its share. */
static size_t rank_in_roster(const dl_machine *m)
{
    const dl_roster *r = &m->a.control->roster;
    size_t at;
    if (!dl_roster_has(r, m->a.self.replica, &at)) return r->n;
    return (at + r->n - (size_t)(dl_open_entry(m) % r->n)) % r->n;
}

dl_time dl_gather_turn(const dl_machine *m)
{
    const size_t rank = dl_gather_has_roster(m) ? rank_in_roster(m) : m->open.rank;
    const dl_time each = dl_gather_deadline(m) - m->timing.due_at;
    if (dl_machine_topology(m)->all_combine || m->a.control->committer.replica[0]) return 0;
    return dl_time_after(m->timing.due_at, (dl_time)(rank < MAX_TURNS ? rank : MAX_TURNS) * each);
}

bool dl_gather_is_our_turn(const dl_machine *m)
{
    return m->now >= dl_gather_turn(m);
}

bool dl_gather_is_first(const dl_machine *m)
{
    return dl_gather_turn(m) <= m->timing.due_at;
}

/* Entries before L have no roster. Their order is that of the contributors in a listing. */
static void rank_among(dl_machine *m, const dl_reply *reply)
{
    m->open.rank = 0;
    for (size_t i = 0; i < reply->list.n_listed; i++) {
        const char *name = reply->list.listed[i].generation.replica;
        const bool again = i && !strcmp(reply->list.listed[i - 1].generation.replica, name);
        m->open.rank += !again && dl_replica_compare(name, m->a.self.replica) < 0;
    }
}

/* ---- collecting the other replicas' contributions ------------------------------------------- */

dl_request dl_gather_list(dl_machine *m)
{
    dl_request a = dl_machine_request(m, DL_REQUEST_LIST, DL_LISTING);
    a.list.own = dl_machine_mode(m)->list_from(m);
    return a;
}

/* Lists contributions, or looks at the log if it is other replicas' turn. */
static dl_request look_around(dl_machine *m)
{
    if (dl_gather_has_roster(m) && !dl_gather_is_our_turn(m))
        return dl_machine_request(m, DL_REQUEST_READ, DL_LOOKING);
    return dl_gather_list(m);
}

/* A later contribution is uploaded while the others' are read. A contribution for which no replica
 * waits yet is uploaded when there is nothing else to do (wait_until of propose.c). */
dl_request dl_gather_collect(dl_machine *m)
{
    const uint64_t open = dl_open_entry(m);
    if (dl_gather_has_to_put(m) && m->self.n_put == open) return dl_gather_contribute(m);
    if (m->self.sending == 1 + open) return dl_gather_request(m, open, DL_CONFIRMING);
    const bool ahead =
        m->a.sends_beside && dl_machine_mode(m)->pipelines && dl_gather_may_pipeline(m);
    return ahead ? dl_gather_contribute(m) : look_around(m);
}

dl_request dl_gather_contributed(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    m->self.n_put++;
    m->timing.put_took = m->now - m->timing.due_at;
    m->timing.due_at = m->now; /* P11: the deadline counts from our own upload */
    dl_machine_note(m, (dl_note){.kind = DL_NOTE_DEADLINE,
                                 .seconds = dl_seconds(dl_gather_deadline(m) - m->now)});
    return dl_gather_collect(m);
}

dl_request dl_gather_waited(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    return dl_gather_collect(m);
}

/* The pipelined upload has ended. Only now may we close its entry, since without it we are no
 * member. */
dl_request dl_gather_confirmed(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    m->timing.due_at = m->now;
    return dl_gather_collect(m);
}

dl_request dl_gather_pipeline(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    m->self.n_put++;
    return dl_gather_collect(m);
}

static dl_request fetch_these(dl_machine *m)
{
    DL_ASSERT(m->open.known.at[m->open.fetching].validity == DL_UNREAD);
    dl_request a = dl_machine_fetch(m, &m->open.known.at[m->open.fetching], DL_FETCHING, false);
    for (size_t i = m->open.fetching + 1; i < m->open.known.n; i++) {
        const dl_candidate *k = &m->open.known.at[i];
        if (k->validity == DL_UNREAD && !dl_machine_look_ahead(m, &a, k)) break;
    }
    return a;
}

dl_request dl_gather_fetch_next(dl_machine *m)
{
    for (; m->open.fetching < m->open.known.n; m->open.fetching++)
        if (m->open.known.at[m->open.fetching].validity == DL_UNREAD) return fetch_these(m);
    if (dl_propose_is_complete(m)) return dl_propose_close(m);
    return dl_machine_request(m, DL_REQUEST_READ, DL_LOOKING);
}

static bool is_on_roster(const dl_machine *m, const char *replica)
{
    return !strcmp(replica, m->a.self.replica) ||
           dl_roster_has(&m->a.control->roster, replica, NULL);
}

/* A replica on the roster may take the place of one that no entry waits for. */
static bool keep_for_roster(const void *context, const dl_candidate *known)
{
    return is_on_roster(context, known->generation.replica);
}

/* Any replica may take the place of junk. */
static bool keep_for_others(const void *context, const dl_candidate *known)
{
    const bool is_junk = known->validity == DL_INVALID && dl_contribution_is_junk(known->refused);
    return !is_junk || is_on_roster(context, known->generation.replica);
}

static void note_listed(dl_machine *m, const dl_listed *l)
{
    dl_candidate_table *known = &m->open.known;
    if (dl_candidate_add(known, &l->generation, dl_open_entry(m), l->len)) return;
    const bool awaited = is_on_roster(m, l->generation.replica);
    dl_candidate_replace(known, &l->generation, dl_open_entry(m), l->len,
                         awaited ? keep_for_roster : keep_for_others, m);
}

dl_request dl_gather_listed(dl_machine *m, const dl_reply *reply)
{
    const dl_generation *newer = dl_gather_newer(m, reply);
    for (size_t i = 0; i < reply->list.n_listed; i++) {
        const dl_generation *generation = &reply->list.listed[i].generation;
        if (!may_count(m, generation->replica)) continue;
        if (!dl_machine_mode(m)->chooses_one) note_listed(m, &reply->list.listed[i]);
    }
    if (newer) return dl_gather_fenced(m, newer);
    return dl_machine_mode(m)->listed(m, reply);
}

dl_request dl_gather_listed_all(dl_machine *m, const dl_reply *reply)
{
    rank_among(m, reply);
    const bool asks = !m->a.follows && dl_gather_is_our_turn(m);
    m->open.fetching = asks ? 0 : m->open.known.n; /* the entry will name what is needed */
    return dl_gather_fetch_next(m);
}

bool dl_gather_judge(dl_machine *m, dl_candidate *known, const dl_reply *reply)
{
    DL_ASSERT(reply->status || reply->fetch.facts);
    if (!reply->status) {
        dl_candidate_accept(known, reply->fetch.facts, reply->fetch.norm2);
        known->whole = dl_machine_reads_whole(m);
        return false;
    }
    if (dl_candidate_doubt(known, reply->fetch.reason)) return true;
    known->forged = reply->fetch.forged;
    dl_machine_note(
        m,
        (dl_note){.kind = DL_NOTE_REJECT, .generation = known->generation, .text = known->refused});
    return false;
}

dl_request dl_gather_fetched(dl_machine *m, const dl_reply *reply)
{
    DL_ASSERT(m->open.fetching < m->open.known.n);
    dl_candidate *k = &m->open.known.at[m->open.fetching];
    /* It was collected after it was listed (P25), so the log has advanced. */
    if (reply->status == DILOCO_ENOENT) return dl_machine_request(m, DL_REQUEST_READ, DL_LOOKING);
    if (dl_gather_judge(m, k, reply)) return dl_machine_fetch(m, k, DL_FETCHING, true);
    if (dl_machine_mode(m)->chooses_one && !dl_candidate_counts(&m->open.known, k))
        return dl_gather_list(m); /* choose another one */
    return dl_gather_fetch_next(m);
}
