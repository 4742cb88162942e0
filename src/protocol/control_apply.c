/* control_apply.c - see control_apply.h. Everything here is a function of its arguments, so every
 * replica and every auditor computes the same. */
#include "protocol/control_apply.h"

#include <string.h>

/* consecutive entries without a replica before the next one does not wait for it */
enum { MISSES_ALLOWED = 1 };

static bool counts_a_replica_twice(const dl_entry *entry)
{
    for (size_t i = 1; i < entry->n_members; i++)
        if (!strcmp(entry->members[i - 1].generation.replica, entry->members[i].generation.replica))
            return true;
    return false;
}

bool dl_control_may_create(const dl_control *control, const dl_generation *generation)
{
    const dl_generation *only = &control->committer;
    if (!only->replica[0]) return true;
    if (strcmp(only->replica, generation->replica) != 0) return false;
    return only->number == DL_GENERATION_ANY || only->number == generation->number;
}

const char *dl_control_void_reason(const dl_control *control, const dl_entry *entry,
                                   const char *run, uint32_t fragment, dl_hash base)
{
    if (strcmp(entry->run, run) != 0) return "it is of another run";
    if (entry->entry != control->entry) return "its number is not that of its name";
    if (entry->fragment != fragment) return "it is of another fragment than the one that is due";
    if (!dl_hash_equal(entry->prev, control->prev))
        return "prev is not the digest of the entry before";
    if (!dl_hash_equal(entry->base, base)) return "base is not the state before it";
    if (counts_a_replica_twice(entry)) return "it counts a replica twice";
    if (entry->commit && entry->n_members == 0) return "it commits no contribution";
    if (!entry->abort.takeover && !dl_control_may_create(control, &entry->committer))
        return "its committer is not the one that the entry before names";
    return NULL;
}

static void advance(dl_control *control, dl_hash digest)
{
    DL_ASSERT(control->entry < UINT64_MAX);
    control->entry++;
    control->prev = digest;
}

/* Moves the terms up by one entry. Returns those of the last of the L, for the caller to fill in.
 */
static dl_terms *move_up(dl_control *c, dl_terms *last)
{
    *last = (dl_terms){c->roster, c->lr, c->mu};
    if (c->n_later == 0) return last;
    c->roster = c->later[0].roster;
    c->lr = c->later[0].lr;
    c->mu = c->later[0].mu;
    memmove(c->later, c->later + 1, (c->n_later - 1) * sizeof *c->later);
    c->later[c->n_later - 1] = *last;
    return &c->later[c->n_later - 1];
}

/* If L = 1, `last` has the terms of the open entry itself. */
static void settle(dl_control *c, const dl_terms *last)
{
    if (c->n_later) return;
    c->roster = last->roster;
    c->lr = last->lr;
    c->mu = last->mu;
}

/* Returns the newest known terms. */
static dl_terms newest(const dl_control *c)
{
    return c->n_later ? c->later[c->n_later - 1] : (dl_terms){c->roster, c->lr, c->mu};
}

static void leave_out(dl_roster *r, const char *replica)
{
    size_t at;
    if (!dl_roster_has(r, replica, &at)) return;
    DL_ASSERT(at < r->n);
    memmove(r->names + at, r->names + at + 1, (r->n - at - 1) * sizeof r->names[0]);
    memmove(r->misses + at, r->misses + at + 1, (r->n - at - 1) * sizeof r->misses[0]);
    r->n--;
}

/* No entry waits for a banned replica (P27). If the log assigns data, the rosters have excluded it
 * already. */
static void ban(dl_control *c, uint64_t e, const dl_entry *entry)
{
    if (!c->bans) return;
    dl_bans_apply(c->bans, e, entry);
    for (size_t i = 0; i < c->bans->n; i++) {
        if (!c->bans->at[i].until) continue;
        leave_out(&c->roster, c->bans->at[i].replica);
        for (size_t k = 0; k < c->n_later; k++)
            leave_out(&c->later[k].roster, c->bans->at[i].replica);
    }
}

void dl_control_apply(dl_control *control, const dl_entry *entry, dl_hash digest)
{
    dl_terms room, *terms = move_up(control, &room);
    advance(control, digest);
    control->n_aborts = entry->commit ? 0 : control->n_aborts + 1;
    if (entry->snapshot > control->snapshot) control->snapshot = entry->snapshot;
    control->last = entry->last;
    if (control->committer.replica[0]) control->committer = entry->committer;
    terms->lr = entry->next.lr;
    terms->mu = entry->next.mu;
    dl_roster_copy(&terms->roster, &entry->roster);
    settle(control, terms);
    if (control->ledger) dl_ledger_apply(control->ledger, entry, &entry->roster);
    ban(control, entry->entry, entry);
}

void dl_control_apply_void(dl_control *control, const dl_entry *entry, dl_hash digest)
{
    const dl_terms before = newest(control);
    dl_terms room, *terms = move_up(control, &room);
    advance(control, digest);
    control->n_aborts++;
    terms->lr = before.lr;
    terms->mu = before.mu;
    if (control->n_later) dl_roster_copy(&terms->roster, &before.roster);
    leave_out(&terms->roster, entry->committer.replica);
    settle(control, terms);
    const dl_terms now = newest(control);
    if (control->ledger) dl_ledger_apply(control->ledger, NULL, &now.roster);
    ban(control, control->entry - 1, NULL);
}

static bool has_member(const dl_entry *entry, const char *replica)
{
    for (size_t i = 0; i < entry->n_members; i++)
        if (!strcmp(entry->members[i].generation.replica, replica)) return true;
    return false;
}

/* silent[] is about the open entry's roster. */
static bool is_silent(const dl_control *control, const char *name, const bool *silent)
{
    size_t at;
    return dl_roster_has(&control->roster, name, &at) && silent[at];
}

void dl_control_next_roster(dl_roster *out, const dl_control *control, const dl_entry *entry,
                            const bool *silent)
{
    const dl_terms before = newest(control);
    out->n = 0;
    for (size_t i = 0; i < before.roster.n; i++) {
        const char *name = before.roster.names[i];
        uint32_t misses = before.roster.misses[i] + (entry->commit ? 1 : 0);
        if (has_member(entry, name)) continue;
        if (is_silent(control, name, silent)) continue;
        if (entry->commit && misses > MISSES_ALLOWED) continue;
        dl_roster_add(out, name, misses);
    }
    for (size_t i = 0; i < entry->n_members; i++)
        dl_roster_add(out, entry->members[i].generation.replica, 0);
}
