/* advance.c - the log advances by an entry (P4). The computed state of a commit is taken, an abort
 * or void entry is skipped, and then the machine makes its next request.
 *
 * Nothing here depends on whether this replica created the entry (P5), except the snapshot, which
 * one replica has to write. */
#include "protocol/machine_parts.h"

#include "log/claims.h"
#include "protocol/control_apply.h"

#include <math.h>
#include <string.h>

/* ---- advancing --------------------------------------------------------------------------- */

/* Returns the entry's member that is this replica, in any generation, or NULL. */
static const dl_member *own_member(const dl_machine *m, const dl_entry *entry)
{
    for (size_t i = 0; i < entry->n_members; i++)
        if (!strcmp(entry->members[i].generation.replica, m->a.self.replica))
            return &entry->members[i];
    return NULL;
}

/* Async: only the contribution in flight counts, not an older one. */
static bool counts_what_we_did(const dl_machine *m, const dl_entry *entry)
{
    const dl_member *self = own_member(m, entry);
    return self && dl_machine_mode(m)->counts_in_flight(m, self);
}

static bool snapshot_is_due(const dl_machine *m)
{
    if (dl_machine_is_over(m)) return true;
    const dl_time every = dl_time_from_seconds(m->a.config->snapshot_s);
    if (m->now - m->snapshots.at >= every) return true;
    /* Not more often than sixty a period, however small the model (P25). */
    return m->snapshots.bytes_since > 2 * m->a.snapshot_bytes &&
           m->now - m->snapshots.at >= every / 60;
}

static dl_request snapshot(dl_machine *m)
{
    m->snapshots.known = dl_open_entry(m);
    m->snapshots.bytes_since = 0;
    m->snapshots.at = m->now;
    dl_request a = dl_machine_request(m, DL_REQUEST_SNAPSHOT, DL_SNAPSHOTTING);
    a.snapshot.final = dl_machine_is_over(m);
    return a;
}

/* Counts an entry towards the next snapshot. A snapshot that it names is as good as our own. */
static void count_towards_snapshot(dl_machine *m)
{
    for (size_t i = 0; i < m->applying.entry.n_members; i++)
        m->snapshots.bytes_since += m->applying.entry.members[i].bytes;
    if (m->applying.entry.snapshot <= m->snapshots.known) return;
    m->snapshots.known = m->applying.entry.snapshot;
    m->snapshots.bytes_since = 0;
    m->snapshots.at = m->now;
}

/* Notes the members whose claims are cut, the rejected contributions, and new bans (P27). */
static void note_rejected(dl_machine *m)
{
    const dl_bans *bans = m->a.control->bans;
    if (bans) dl_bans_copy(m->open.bans, bans);
    if (bans) dl_bans_apply(m->open.bans, m->applying.entry.entry, &m->applying.entry);
    const dl_claims_medians medians = dl_claims_medians_of(&m->applying.entry, m->a.weighting);
    for (size_t i = 0; i < m->applying.entry.n_members && dl_machine_mode(m)->cuts_claims; i++) {
        const char *what = dl_claims_what_is_cut(&m->applying.entry, i, &medians);
        if (what)
            dl_machine_note(m, (dl_note){.kind = DL_NOTE_CUT,
                                         .entry = &m->applying.entry,
                                         .generation = m->applying.entry.members[i].generation,
                                         .text = what});
    }
    for (size_t i = 0; i < m->applying.entry.n_rejected; i++) {
        const dl_rejected *r = &m->applying.entry.rejected[i];
        const uint64_t until = dl_bans_until(m->open.bans, r->generation.replica);
        dl_machine_note(m, (dl_note){.kind = DL_NOTE_JUDGED,
                                     .entry = &m->applying.entry,
                                     .generation = r->generation,
                                     .text = r->reason});
        if (until && !dl_bans_has(bans, r->generation.replica))
            dl_machine_note(m, (dl_note){.kind = DL_NOTE_BANNED,
                                         .entry = &m->applying.entry,
                                         .generation = r->generation,
                                         .until = until});
    }
}

/* Invariant 1: the log advances only here. */
static void applied(dl_machine *m, bool valid, bool counted)
{
    const uint64_t e = dl_open_entry(m);
    const uint32_t f = dl_machine_fragment(m);
    const bool commit = valid && m->applying.entry.commit;
    const dl_ledger *ledger = m->a.control->ledger;
    DL_ASSERT(!valid || m->applying.entry.entry == e); /* P4: the log is applied in order, */
    DL_ASSERT(!valid ||
              dl_hash_equal(m->applying.entry.prev, m->a.control->prev)); /* as one chain */
    if (commit) note_rejected(m);
    if (valid) {
        dl_control_apply(m->a.control, &m->applying.entry, m->applying.digest);
        count_towards_snapshot(m);
    } else {
        dl_machine_mode(m)->apply_void(m);
    }
    if (commit || (valid && m->applying.entry.abort.emptied))
        m->log.digest[f] = m->applying.entry.result;
    if (commit) {
        m->log.n_commits[f]++;
        m->log.n_commits_all++;
    } else if (ledger && dl_ledger_is_exact(ledger)) {
        dl_pace_aborted(m->a.pace, e, dl_ledger_holds(ledger));
    }
    if (counted) m->self.n_announcements = 0, m->self.announce_at = m->self.announced = 0;
    dl_pace_apply(m->a.pace, e, f, commit, counted);
    dl_machine_compare_bases(m);
    dl_machine_clear_entry(m);
    DL_ASSERT(dl_open_entry(m) == e + 1);
    DL_ASSERT(m->a.pace->applied > e);
    DL_ASSERT(m->open.known.n == 0); /* invariant 2 of machine.c */
}

static dl_request apply_abort(dl_machine *m, bool valid)
{
    DL_ASSERT(!valid || !m->applying.entry.commit);
    if (valid) dl_machine_note(m, (dl_note){.kind = DL_NOTE_ABORT, .entry = &m->applying.entry});
    applied(m, valid, false);
    return m->rejoining.parted ? dl_apply_without(m) : dl_machine_go_on(m);
}

dl_request dl_apply_abort(dl_machine *m)
{
    return apply_abort(m, true);
}

/* Its name says which entry it is. Its text may say another number, and that may be the reason. */
static dl_request apply_void(dl_machine *m, const char *why, bool false_claim)
{
    m->applying.entry.entry = dl_open_entry(m);
    dl_machine_note(m, (dl_note){.kind = DL_NOTE_VOID,
                                 .entry = &m->applying.entry,
                                 .text = why,
                                 .false_claim = false_claim});
    return apply_abort(m, false);
}

dl_request dl_apply_void(dl_machine *m, const char *why)
{
    return apply_void(m, why, false);
}

dl_request dl_apply_false(dl_machine *m, const char *why)
{
    return apply_void(m, why, true);
}

/* ---- a commit: make sure, compute, take ---------------------------------------------------- */

/* Returns the measured norms; of a contribution that was not read whole, its header's. */
static const double *norms_of_members(dl_machine *m)
{
    for (size_t i = 0; i < m->applying.entry.n_members; i++) {
        const dl_candidate *k =
            dl_candidate_find(&m->open.known, &m->applying.entry.members[i].generation);
        m->applying.norms[i] = !k || k->validity != DL_VALID ? NAN
                               : k->whole                    ? sqrt(k->norm2)
                                                             : k->facts.norm;
    }
    return m->applying.norms;
}

/* The computed state is the entry's: take it. */
dl_request dl_apply_swap(dl_machine *m)
{
    DL_ASSERT(m->applying.entry.commit ||
              m->applying.entry.abort.emptied); /* no other entry moves the state */
    const dl_member *self = own_member(m, &m->applying.entry);
    const bool counted = counts_what_we_did(m, &m->applying.entry);
    dl_request a = dl_machine_request(m, DL_REQUEST_SWAP, DL_SWAPPING);
    a.swap.counted = self && dl_open_entry(m) >= m->self.bases_at;
    if (self) a.swap.own = self->entry;
    if (self) a.swap.body = self->body;
    if (!counted && dl_open_entry(m) >= m->self.own_since && dl_machine_mode(m)->reports_late)
        dl_machine_note(m, (dl_note){.kind = DL_NOTE_LATE, .entry = &m->applying.entry});
    dl_machine_note(m, (dl_note){.kind = m->applying.entry.commit ? DL_NOTE_COMMIT : DL_NOTE_ABORT,
                                 .entry = &m->applying.entry,
                                 .counted = counted,
                                 .norms = norms_of_members(m)});
    return a;
}

dl_request dl_apply_swapped(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    const bool ours = m->open.created;
    DL_ASSERT(m->applying.entry.entry == dl_open_entry(m));
    applied(m, true, counts_what_we_did(m, &m->applying.entry));
    if (m->rejoining.parted) return dl_apply_without(m);
    return ours && snapshot_is_due(m) ? snapshot(m) : dl_machine_go_on(m);
}

dl_request dl_apply_snapshotted(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    return dl_machine_go_on(m);
}
