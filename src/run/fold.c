/* fold.c - see fold.h. Everything here is a function of its arguments, so every replica and
 * every auditor folds alike. */
#include "run/fold.h"

#include <string.h>

enum { MISSES_ALLOWED = 1 }; /* one entry may pass a replica over before it is not waited for */

static bool counts_a_replica_twice(const dl_entry *entry)
{
    for (size_t i = 1; i < entry->n_members; i++)
        if (!strcmp(entry->members[i - 1].life.replica, entry->members[i].life.replica))
            return true;
    return false;
}

const char *dl_fold_void_reason(const dl_control *control, const dl_entry *entry, const char *run,
                                dl_hash base)
{
    if (strcmp(entry->run, run) != 0) return "it is of another run";
    if (entry->entry != control->entry) return "its number is not that of its name";
    if (!dl_hash_equal(entry->prev, control->prev))
        return "prev is not the digest of the entry before";
    if (!dl_hash_equal(entry->base, base)) return "base is not the state before it";
    if (counts_a_replica_twice(entry)) return "it counts a replica twice";
    if (entry->commit && entry->n_members == 0) return "it commits nobody's contribution";
    return NULL;
}

static void advance(dl_control *control, dl_hash digest)
{
    control->entry++;
    control->prev = digest;
}

void dl_fold(dl_control *control, const dl_entry *entry, dl_hash digest)
{
    advance(control, digest);
    control->n_aborts = entry->commit ? 0 : control->n_aborts + 1;
    if (entry->snapshot > control->snapshot) control->snapshot = entry->snapshot;
    control->lr = entry->next_lr;
    control->mu = entry->next_mu;
    control->last = entry->last;
    dl_roster_copy(&control->roster, &entry->roster);
}

void dl_fold_void(dl_control *control, const dl_entry *entry, dl_hash digest)
{
    advance(control, digest);
    control->n_aborts++;

    size_t at;
    if (!dl_roster_has(&control->roster, entry->committer.replica, &at)) return;
    dl_roster *r = &control->roster;
    memmove(r->names + at, r->names + at + 1, (r->n - at - 1) * sizeof r->names[0]);
    memmove(r->misses + at, r->misses + at + 1, (r->n - at - 1) * sizeof r->misses[0]);
    r->n--;
}

static bool has_member(const dl_entry *entry, const char *replica)
{
    for (size_t i = 0; i < entry->n_members; i++)
        if (!strcmp(entry->members[i].life.replica, replica)) return true;
    return false;
}

void dl_fold_next_roster(dl_roster *out, const dl_control *control, const dl_entry *entry,
                         const bool *silent)
{
    out->n = 0;
    for (size_t i = 0; i < control->roster.n; i++) {
        const char *name = control->roster.names[i];
        uint32_t misses = control->roster.misses[i] + (entry->commit ? 1 : 0);
        if (has_member(entry, name)) continue;
        if (silent[i] || (entry->commit && misses > MISSES_ALLOWED)) continue;
        dl_roster_add(out, name, misses);
    }
    for (size_t i = 0; i < entry->n_members; i++)
        dl_roster_add(out, entry->members[i].life.replica, 0);
}
