/* apply.c - an entry is in the log: judge it, and compute its state; advance.c then applies it.
 *
 *     text --unreadable, void--> read again, then apply as void (P7)
 *       |  --abort------------> apply
 *       |  --commit-----------> fetch its members --> compute --> swap --> apply
 *       |                         (nothing of this if the draft computed the same step; an abort
 *       |                         that empties the momentum has no members to fetch)
 *       |           or -----> fetch their combined update --^
 *       |                         (unreadable: fetch the members, combine, compare)
 *       +-- another base than ours --> rejoin once, from before it
 *
 * The committer decided (P5): nothing here depends on whether it was this replica. */
#include "protocol/machine_parts.h"

#include "protocol/control_apply.h"
#include "protocol/logical_clients.h"
#include "protocol/void/voided.h"

#include <stdio.h>
#include <string.h>

enum { MAX_STARTS = 3 };

/* ---- a commit: get its members, and compute ------------------------------------------------ */

static dl_request dispute(dl_machine *m, dl_hash computed)
{
    dl_machine_note(m, (dl_note){.kind = DL_NOTE_DISPUTE,
                                 .entry = &m->applying.entry,
                                 .text = "result",
                                 .claimed = m->applying.entry.result,
                                 .computed = computed});
    return dl_apply_false(m, "its result is not what its members give");
}

static dl_request of_entry(dl_machine *m, dl_request_kind kind, dl_phase next)
{
    dl_request a = dl_machine_request(m, kind, next);
    a.step.draft = &m->applying.entry;
    a.step.slots = m->applying.slots;
    return a;
}

/* Returns whether it is the contribution that the entry names. */
static bool is_named(const dl_candidate *k, const dl_member *member)
{
    const uint64_t held = k->facts.assigned.n ? k->facts.assigned.n - 1 : 0;
    return k->validity == DL_VALID && k->whole && dl_hash_equal(k->facts.body, member->body) &&
           held == member->held;
}

static dl_request apply_compute(dl_machine *m)
{
    return of_entry(m, DL_REQUEST_COMPUTE, DL_APPLY_COMPUTING);
}

/* P27: a replica that reads every contribution checks the verdicts itself. One that uses another
 * replica's combined update trusts that replica; only an audit checks it. */
static bool looks_at_verdicts(const dl_machine *m)
{
    return dl_judge_may_reject(m->a.config) && (dl_machine_topology(m)->all_combine || m->a.audits);
}

static size_t n_named(const dl_machine *m)
{
    return m->applying.entry.n_members +
           (looks_at_verdicts(m) && !m->applying.judged ? m->applying.entry.n_rejected : 0);
}

/* Returns the i-th of n_named: first the members, then the rejected ones. */
static dl_rejected named(const dl_machine *m, size_t i)
{
    const dl_entry *e = &m->applying.entry;
    DL_ASSERT(i < e->n_members + e->n_rejected);
    if (i >= e->n_members) return e->rejected[i - e->n_members];
    return (dl_rejected){.generation = e->members[i].generation, .bytes = e->members[i].bytes};
}

/* Returns whether the contribution, as far as it was read, is what the entry says. */
static bool is_as_named(const dl_machine *m, size_t i, const dl_candidate *k)
{
    if (i < m->applying.entry.n_members) return is_named(k, &m->applying.entry.members[i]);
    const char *reason = m->applying.entry.rejected[i - m->applying.entry.n_members].reason;
    return k->validity == DL_VALID || (k->validity == DL_INVALID && !strcmp(k->refused, reason));
}

/* Judges the members, and the rejected ones that are valid, in the order in which the committer
 * judged them. */
static dl_request apply_judge(dl_machine *m)
{
    const dl_entry *e = &m->applying.entry;
    DL_ASSERT(e->n_members + e->n_rejected <= m->a.max_members);
    m->judge.n = 0;
    for (size_t i = 0, r = 0; i < e->n_members || r < e->n_rejected;) {
        const bool rejected =
            i == e->n_members ||
            (r < e->n_rejected &&
             dl_generation_compare(&e->rejected[r].generation, &e->members[i].generation) < 0);
        const dl_generation *generation =
            rejected ? &e->rejected[r++].generation : &e->members[i++].generation;
        const dl_candidate *k = dl_candidate_find(&m->open.known, generation);
        DL_ASSERT(k); /* apply_gather has fetched each */
        if (k->validity == DL_VALID)
            m->judge.slots[m->judge.n++] = dl_candidate_slot(&m->open.known, k);
    }
    dl_request a = dl_machine_request(m, DL_REQUEST_JUDGE, DL_APPLY_JUDGING);
    a.judge.slots = m->judge.slots;
    a.judge.n_slots = m->judge.n;
    a.judge.whole = dl_judge_has_whole(&m->judge, &m->open.known);
    return a;
}

/* All members were fetched. */
static dl_request apply_members(dl_machine *m)
{
    DL_ASSERT(m->applying.member >= m->applying.entry.n_members);
    dl_candidate_slots(m->applying.slots, &m->open.known, &m->applying.entry);
    if (looks_at_verdicts(m) && !m->applying.judged) return apply_judge(m);
    if (m->applying.entry.combined.there)
        return of_entry(m, DL_REQUEST_COMBINE, DL_APPLY_COMBINING);
    return apply_compute(m);
}

static bool entry_names(const void *context, const dl_candidate *known)
{
    const dl_machine *m = context;
    for (size_t i = 0; i < m->applying.entry.n_members + m->applying.entry.n_rejected; i++) {
        const dl_generation *generation =
            i < m->applying.entry.n_members
                ? &m->applying.entry.members[i].generation
                : &m->applying.entry.rejected[i - m->applying.entry.n_members].generation;
        if (dl_generation_equal(generation, &known->generation)) return true;
    }
    return false;
}

/* It replaces one that the entry does not name, if there is no free place: an entry names at most
 * half of the places. */
static dl_candidate *known_named(dl_machine *m, size_t i)
{
    const dl_rejected it = named(m, i);
    const bool member = i < m->applying.entry.n_members;
    return dl_candidate_replace(&m->open.known, &it.generation,
                                member ? m->applying.entry.members[i].entry
                                       : m->applying.entry.entry,
                                it.bytes, entry_names, m);
}

static dl_request fetch_named(dl_machine *m, const dl_candidate *known)
{
    const bool again = m->applying.n_recomputed > 0;
    dl_request a = dl_machine_fetch(m, known, DL_APPLY_FETCHING, again);
    for (size_t i = m->applying.member + 1; i < n_named(m) && !again; i++) {
        const dl_candidate *k = known_named(m, i);
        if (!k || (!is_as_named(m, i, k) && !dl_machine_look_ahead(m, &a, k))) break;
    }
    return a;
}

/* Fetches each member's contribution unless it is held, then computes. */
static dl_request apply_gather(dl_machine *m)
{
    for (; m->applying.member < n_named(m); m->applying.member++) {
        const dl_candidate *k = known_named(m, m->applying.member);
        if (!k)
            return dl_machine_fail(m, dl_fail(DILOCO_EPROTO,
                                              "entry %llu names more contributions than fit",
                                              (unsigned long long)m->applying.entry.entry));
        if (!is_as_named(m, m->applying.member, k) || m->applying.n_recomputed)
            return fetch_named(m, k);
    }
    return apply_members(m);
}

/* Uses its committer's combined update. An audit uses the members, and so does a replica that
 * cannot read the combined update. */
static dl_request apply_gather_or_fetch(dl_machine *m)
{
    m->applying.member = 0;
    const bool combines = (m->a.audits || m->applying.recombines) && !m->applying.disputed;
    if (m->applying.entry.combined.there && !combines)
        return of_entry(m, DL_REQUEST_FETCH_COMBINED, DL_APPLY_COMBINED);
    return apply_gather(m);
}

static size_t max_byzantine(const dl_machine *m)
{
    return dl_unreadable_max_byzantine(m->a.config, m->a.identity, &m->a.control->roster);
}

/* Returns whether the replica may rejoin because of an entry, the one before `after`. It may not
 * for entries before one that it has reached. A reader never rejoins. */
static bool may_start(dl_machine *m, uint64_t after, unsigned most)
{
    if (m->a.reader || after < m->rejoining.started_for) return false;
    if (after > m->rejoining.started_for) m->rejoining.n_starts = 0;
    DL_ASSERT(!m->a.reader);
    m->rejoining.started_for = after;
    return m->rejoining.n_starts++ < most;
}

/* A contribution that the entry names is unreadable, and the error text is set. Perhaps it was
 * collected after a snapshot that we have not seen, or the store has lost it. Then a later snapshot
 * does without it. Perhaps it never was what the entry says. Then the entry is void, as long as no
 * more committers build on it than may be malicious (unreadable.h). */
static dl_request cannot_be_read(dl_machine *m, diloco_status status)
{
    dl_unreadable *u = &m->rejoining.unreadable[dl_machine_fragment(m)];
    dl_unreadable_record(u, &m->applying.entry, max_byzantine(m));
    /* A replay may begin before collected contributions: verify has later snapshots. */
    const bool kept = m->a.config->retain == DL_RETAIN_ALL;
    const bool collected = m->a.reader && status == DILOCO_ENOENT && !kept;
    if (may_start(m, u->after, u->accepted || status == DILOCO_ENOENT ? MAX_STARTS : 1))
        return dl_machine_rejoin(m, UINT64_MAX);
    if (u->accepted && !collected && !max_byzantine(m)) return dl_voided_look(m, status);
    if (u->accepted || collected) return dl_machine_fail(m, status);
    return dl_apply_false(m, DL_UNREADABLE_VOID);
}

/* An audit can continue without it, since its committer has combined it for all. */
static dl_request audit_without(dl_machine *m)
{
    DL_ASSERT(m->applying.entry.combined.there);
    m->applying.disputed = true;
    dl_machine_note(m, (dl_note){.kind = DL_NOTE_DISPUTE,
                                 .entry = &m->applying.entry,
                                 .text = diloco_error_text()});
    return apply_gather_or_fetch(m);
}

static dl_request contribution_lost(dl_machine *m, diloco_status status, const char *how)
{
    status = dl_fail(status, "entry %llu needs the contribution of %s, which is %s in the store",
                     (unsigned long long)m->applying.entry.entry,
                     named(m, m->applying.member).generation.replica, how);
    const bool combined =
        m->applying.entry.combined.there && !m->applying.recombines && status != DILOCO_ENOENT;
    return combined ? audit_without(m) : cannot_be_read(m, status);
}

/* The combined update is unreadable, too, and the members do not give it. */
static dl_request combined_lost(dl_machine *m)
{
    return cannot_be_read(m, dl_fail(DILOCO_EPROTO,
                                     "entry %llu names the update that %s combined, which cannot "
                                     "be read from x/ and does not follow from its members",
                                     (unsigned long long)m->applying.entry.entry,
                                     m->applying.entry.combined.generation.replica));
}

/* This entry builds on one that we treated as void because we could not read it. Have enough
 * committers built on it that we must accept it? */
static bool is_settled_without_us(dl_machine *m)
{
    dl_unreadable *u = &m->rejoining.unreadable[dl_machine_fragment(m)];
    const bool stood = u->accepted;
    const bool ours =
        !strcmp(m->applying.entry.run, m->a.run) && m->applying.entry.entry == dl_open_entry(m);
    if (!ours || !dl_unreadable_is_base_of(u, &m->applying.entry)) return false;
    dl_unreadable_support(u, &m->applying.entry, max_byzantine(m));
    if (u->accepted && !stood) m->rejoining.started_for = 0;
    return u->accepted;
}

/* The run continued without us: rejoin from after that entry, once there is a snapshot. */
dl_request dl_apply_without(dl_machine *m)
{
    m->rejoining.parted = false;
    const dl_unreadable *u = &m->rejoining.unreadable[dl_machine_fragment(m)];
    const unsigned long long damaged = u->after - 1;
    if (may_start(m, dl_open_entry(m), MAX_STARTS)) return dl_machine_rejoin(m, UINT64_MAX);
    if (u->damaged)
        return dl_machine_fail(
            m, dl_fail(DILOCO_EPROTO,
                       "entry %llu cannot be read, and the run has built on it up to entry "
                       "%llu: log/%010llu.json was damaged in the store after others had read "
                       "it. Put a sound copy of that file back. A replica can also be started "
                       "again once there is a newer snapshot",
                       damaged, (unsigned long long)dl_open_entry(m), damaged));
    return dl_machine_fail(
        m, dl_fail(DILOCO_EPROTO,
                   "the run is at entry %llu and builds on an entry whose contributions cannot be "
                   "read from the store, and there is no later snapshot yet",
                   (unsigned long long)dl_open_entry(m)));
}

/* ---- judging the entry's text --------------------------------------------------------------- */

/* Judges only a text that reads the same twice (P7), since the first read may be damaged. Another
 * writer may change junk faster than it is read, so a few readings decide that it is junk. */
enum { UNREADABLE_MAX = 4 };
static bool is_suspect(dl_machine *m, bool unreadable)
{
    if (dl_hash_equal(m->applying.suspect, m->applying.digest)) return false;
    m->applying.suspect = m->applying.digest;
    return !unreadable || ++m->applying.n_unreadable < UNREADABLE_MAX;
}

/* An entry that no replica can read counts as an abort without a committer. */
static dl_request apply_unreadable(dl_machine *m)
{
    dl_unreadable_record_damaged(&m->rejoining.unreadable[dl_machine_fragment(m)],
                                 dl_open_entry(m));
    m->applying.entry.n_members = m->applying.entry.n_rejected = 0;
    m->applying.entry.committer = (dl_generation){.number = 0};
    m->applying.entry.entry = dl_open_entry(m);
    m->applying.entry.commit = false;
    m->applying.digest = dl_entry_unreadable_digest();
    return dl_apply_void(m, diloco_error_text());
}

/* Returns whether it follows our state. */
static bool is_on_ours(const dl_machine *m)
{
    const dl_ledger *ledger = m->a.control->ledger;
    if (!dl_hash_equal(m->applying.entry.base, m->log.digest[dl_machine_fragment(m)])) return false;
    return !ledger || dl_ledger_gives(ledger, m->open.scratch, &m->applying.entry);
}

/* If the base or the ledger is not ours, either the entry or this replica is wrong, and a replay
 * shows which (P7). It happens once an entry, so that it ends. A reader has only the log, so it
 * does not replay. */
static bool replay_may_tell(dl_machine *m)
{
    if (is_on_ours(m)) return false;
    if (m->a.reader || m->rejoining.rejoined_at > dl_open_entry(m)) return false;
    m->rejoining.rejoined_at = dl_open_entry(m) + 1;
    return true;
}

/* P26: with a single committer the log has one writer. A broken chain shows that it had two, and
 * that one overwrote an entry that the other's readers had read. Nothing shows which is right. */
static bool two_have_written(const dl_machine *m)
{
    return m->a.control->committer.replica[0] &&
           !dl_hash_equal(m->applying.entry.prev, m->a.control->prev);
}

static dl_request broken_chain(dl_machine *m)
{
    return dl_machine_fail(
        m, dl_fail(DILOCO_EDIFFERS,
                   "log/%llu, by %s.%04u, does not follow the entry that was read before it: "
                   "two committers have written to a store that lets both win. Stop one of them "
                   "for good, then start this replica again",
                   (unsigned long long)dl_open_entry(m), m->applying.entry.committer.replica,
                   (unsigned)m->applying.entry.committer.number));
}

static dl_request follow_commit(dl_machine *m)
{
    const bool have_it = m->open.computed &&
                         dl_draft_same_step(&m->applying.entry, &m->open.draft.entry) &&
                         dl_hash_equal(m->applying.entry.result, m->open.draft_result);
    return have_it ? dl_apply_swap(m) : apply_gather_or_fetch(m);
}

static const char *members_void_reason(const dl_machine *m)
{
    const uint64_t slices = m->a.slices ? m->a.slices[dl_machine_fragment(m)] : 0;
    const char *why = dl_bans_void_reason(m->a.control->bans, m->open.bans, &m->applying.entry);
    if (why) return why;
    if (m->applying.entry.scalars.wrong)
        return "its scalars are not those of this run's outer optimizer";
    if (m->applying.entry.abort.voids && !dl_unreadable_may_void(m->a.config, m->a.identity))
        return "it voids an entry, and in this run committers decide that by what they build on";
    if (m->applying.entry.n_rejected && !dl_judge_may_reject(m->a.config))
        return "it rejects contributions, and this run uses all that are valid";
    if (m->applying.entry.combined.there && dl_machine_topology(m)->all_combine)
        return "it names a combined update, and in this run every replica combines";
    if (m->applying.entry.abort.emptied && !dl_clients_empty_momentum(m->a.config))
        return "it empties the momentum, and this run keeps it";
    if (m->applying.entry.combined.there && m->applying.entry.combined.slices != slices)
        return "it names an update in other slices than this run's";
    return dl_machine_mode(m)->void_reason(m);
}

/* A store that does not create exactly once may show half of an object that it still writes (P26).
 */
static dl_request wait_for_the_rest(dl_machine *m)
{
    dl_request a = dl_machine_request(m, DL_REQUEST_WAIT, DL_HALF_READ);
    a.wait.until = dl_time_after(m->now, DL_SECOND);
    a.wait.log_only = true;
    return a;
}

/* If a copy of another entry counted as an entry, anyone could take its committer off the roster
 * with it. */
static diloco_status read_text(dl_machine *m, const dl_reply *reply)
{
    const dl_entry_place place = dl_machine_place(m, dl_open_entry(m));
    return dl_entry_read_at(&m->applying.entry, reply->read.text, reply->read.text_len, &place);
}

/* log/<e> exists: its committer has decided. */
dl_request dl_apply_text(dl_machine *m, const dl_reply *reply)
{
    DL_ASSERT(reply->read.text);
    m->applying.digest = dl_hash_bytes(reply->read.text, reply->read.text_len);
    m->applying.n_recomputed = m->n_refused_reads = 0;
    m->applying.recombines = m->applying.disputed = m->applying.judged = false;
    const diloco_status unreadable = read_text(m, reply);
    /* whole, but of another version */
    if (unreadable == DILOCO_EDIFFERS) return dl_machine_fail(m, unreadable);
    const uint32_t f = dl_machine_fragment(m);
    const char *why = unreadable ? NULL
                                 : dl_control_void_reason(m->a.control, &m->applying.entry,
                                                          m->a.run, f, m->log.digest[f]);
    if (!unreadable && !why) why = members_void_reason(m);
    const bool half = unreadable && m->a.control->committer.replica[0]; /* perhaps */
    if ((unreadable || why) && is_suspect(m, unreadable && !half))
        return half ? wait_for_the_rest(m)
                    : dl_machine_request(m, DL_REQUEST_READ, DL_READING_BACK);
    if (unreadable) return apply_unreadable(m);
    if (dl_voided_is(m)) return dl_apply_void(m, DL_VOIDED);
    if (dl_voided_sets_back(m)) return dl_voided_go_back(m);
    if (why && two_have_written(m)) return broken_chain(m);
    if (why && replay_may_tell(m))
        return dl_machine_rejoin(m, dl_open_entry(m) ? dl_open_entry(m) - 1 : 0);
    if (why && is_settled_without_us(m)) return dl_apply_without(m);
    if (why) return dl_apply_void(m, why);
    return m->applying.entry.commit || m->applying.entry.abort.emptied ? follow_commit(m)
                                                                       : dl_apply_abort(m);
}

/* The members do not give the combined update that the entry names. That update still defines the
 * entry (P19). The replica that combined it is malicious, and an audit reports it. A replica that
 * cannot read it has to wait. */
static dl_request members_do_not_give_it(dl_machine *m, dl_hash computed)
{
    DL_ASSERT(m->applying.entry.combined.there);
    if (m->applying.recombines) return combined_lost(m);
    m->applying.disputed = true;
    dl_machine_note(m, (dl_note){.kind = DL_NOTE_DISPUTE,
                                 .entry = &m->applying.entry,
                                 .text = "combined",
                                 .claimed = m->applying.entry.combined.body,
                                 .computed = computed});
    return apply_gather_or_fetch(m);
}

/* A member will never be valid, or is not what the entry says. */
static dl_request member_is_bad(dl_machine *m)
{
    if (m->applying.entry.combined.there) return members_do_not_give_it(m, (dl_hash){{0}});
    return dl_apply_false(m, "a contribution that it counts is not valid");
}

/* If every replica reads all contributions, the entry is void for all. Otherwise only an audit has
 * checked the verdicts, and it continues as the other replicas did. */
static dl_request verdicts_are_wrong(dl_machine *m)
{
    if (dl_machine_topology(m)->all_combine)
        return dl_apply_false(m, "its verdicts are not what its contributions give");
    dl_machine_note(
        m, (dl_note){.kind = DL_NOTE_DISPUTE, .entry = &m->applying.entry, .text = "verdicts"});
    m->applying.judged = true;
    return apply_members(m);
}

/* A rejected contribution moves nothing: an audit reports that it cannot check it, and continues.
 */
static dl_request verdict_unseen(dl_machine *m)
{
    char text[DL_REPLICA_MAX + 128];
    snprintf(text, sizeof text,
             "entry %llu rejects the contribution of %s, which is damaged in the store",
             (unsigned long long)m->applying.entry.entry,
             named(m, m->applying.member).generation.replica);
    dl_machine_note(m,
                    (dl_note){.kind = DL_NOTE_DISPUTE, .entry = &m->applying.entry, .text = text});
    m->applying.judged = true;
    return apply_members(m);
}

static bool verdicts_agree(const dl_machine *m)
{
    const dl_entry *e = &m->applying.entry;
    for (size_t i = 0; i < n_named(m); i++) {
        const dl_rejected it = named(m, i);
        const dl_candidate *k = dl_candidate_find(&m->open.known, &it.generation);
        const bool refused = i >= e->n_members;
        if (!refused && k->refused) return false;
        if (refused && !dl_judge_agrees(m->a.config, k->refused, it.reason)) return false;
    }
    return true;
}

dl_request dl_apply_judged(dl_machine *m, const dl_reply *reply)
{
    dl_judge_all(&m->judge, m->a.config, m->a.control->bans, &m->open.known, reply->judge.gram);
    const bool agree = verdicts_agree(m);
    if (!agree && !m->applying.n_recomputed++)
        return apply_gather_or_fetch(m); /* from freshly read bytes */
    if (!agree) return verdicts_are_wrong(m);
    m->applying.judged = true;
    return apply_members(m);
}

dl_request dl_apply_fetched(dl_machine *m, const dl_reply *reply)
{
    const size_t i = m->applying.member;
    const dl_rejected it = named(m, i);
    dl_candidate *k = dl_candidate_find(&m->open.known, &it.generation);
    DL_ASSERT(i < n_named(m) && k);
    if (reply->status == DILOCO_ENOENT) return contribution_lost(m, DILOCO_ENOENT, "gone");
    if (dl_gather_judge(m, k, reply)) return dl_machine_fetch(m, k, DL_APPLY_FETCHING, true);
    /* The body fits the header, and the header its hash: its replica wrote it this way. */
    if (k->validity == DL_INVALID && dl_contribution_is_damage(k->refused))
        return i < m->applying.entry.n_members || dl_machine_topology(m)->all_combine
                   ? contribution_lost(m, DILOCO_EPROTO, "damaged")
                   : verdict_unseen(m);
    if (!is_as_named(m, i, k))
        return i < m->applying.entry.n_members ? member_is_bad(m) : verdicts_are_wrong(m);
    m->applying.member++;
    return apply_gather(m);
}

/* The combined update was read, or its members are needed. */
dl_request dl_apply_fetched_combined(dl_machine *m, const dl_reply *reply)
{
    if (!reply->status) return apply_compute(m);
    if (m->n_refused_reads++ < MAX_REFUSED_READS)
        return of_entry(m, DL_REQUEST_FETCH_COMBINED, DL_APPLY_COMBINED);
    if (m->applying.disputed) return combined_lost(m);
    m->applying.recombines = true;
    return apply_gather_or_fetch(m);
}

dl_request dl_apply_combined(dl_machine *m, const dl_reply *reply)
{
    const bool agrees =
        !reply->status && dl_hash_equal(reply->combined.result, m->applying.entry.combined.body);
    if (agrees) return apply_compute(m);
    if (!m->applying.n_recomputed++) return apply_gather_or_fetch(m); /* from freshly read bytes */
    return members_do_not_give_it(m, reply->combined.result);
}

dl_request dl_apply_computed(dl_machine *m, const dl_reply *reply)
{
    if (reply->status == DILOCO_ENUMERIC) return dispute(m, (dl_hash){{0}});
    /* from the caller's own optimizer */
    if (reply->status) return dl_machine_fail(m, reply->status);
    if (dl_hash_equal(reply->compute.result, m->applying.entry.result)) return dl_apply_swap(m);
    if (m->applying.n_recomputed++) return dispute(m, reply->compute.result);
    return apply_gather_or_fetch(m); /* P7: judge from freshly read bytes */
}
