/* candidates.c - see candidates.h. The table has a few dozen rows, so every lookup is a walk over
 * it. */
#include "protocol/candidates.h"

#include <string.h>

enum { DOUBTS_ALLOWED = 2 }; /* refused reads before one counts */

dl_candidate *dl_candidate_find(const dl_candidate_table *table, const dl_generation *generation)
{
    for (size_t i = 0; i < table->n; i++)
        if (dl_generation_equal(&table->at[i].generation, generation)) return &table->at[i];
    return NULL;
}

static bool is_of(const dl_candidate *known, const char *replica)
{
    return strcmp(known->generation.replica, replica) == 0;
}

void dl_candidate_restart(dl_candidate *known, uint64_t entry, size_t len)
{
    *known = (dl_candidate){.generation = known->generation,
                            .entry = entry,
                            .len = len,
                            .among_several = known->among_several};
}

/* Puts an object into a row. Most replicas have one generation in the table, and for these
 * is_superseded need not search. */
static void begin(const dl_candidate_table *table, dl_candidate *row,
                  const dl_generation *generation, uint64_t entry, size_t len)
{
    bool several = false;
    for (size_t i = 0; i < table->n; i++) {
        dl_candidate *other = &table->at[i];
        if (other == row || !is_of(other, generation->replica)) continue;
        other->among_several = several = true;
    }
    *row = (dl_candidate){
        .generation = *generation, .entry = entry, .len = len, .among_several = several};
}

dl_candidate *dl_candidate_add(dl_candidate_table *table, const dl_generation *generation,
                               uint64_t entry, size_t len)
{
    DL_ASSERT(table->n <= table->cap);
    dl_candidate *k = dl_candidate_find(table, generation);
    if (k || table->n == table->cap) return k;
    k = &table->at[table->n++];
    begin(table, k, generation, entry, len);
    return k;
}

dl_candidate *dl_candidate_replace(dl_candidate_table *table, const dl_generation *generation,
                                   uint64_t entry, size_t len, dl_candidate_keep_fn keep,
                                   const void *context)
{
    dl_candidate *k = dl_candidate_add(table, generation, entry, len);
    for (size_t i = 0; i < table->n && !k; i++)
        if (!keep(context, &table->at[i])) begin(table, k = &table->at[i], generation, entry, len);
    return k;
}

size_t dl_candidate_slot(const dl_candidate_table *table, const dl_candidate *known)
{
    DL_ASSERT(known >= table->at && known < table->at + table->n);
    return (size_t)(known - table->at);
}

void dl_candidate_slots(size_t *slots, const dl_candidate_table *table, const dl_entry *entry)
{
    for (size_t i = 0; i < entry->n_members; i++)
        slots[i] =
            dl_candidate_slot(table, dl_candidate_find(table, &entry->members[i].generation));
}

void dl_candidate_accept(dl_candidate *known, const dl_contribution *facts, double norm2)
{
    DL_ASSERT(facts);
    known->validity = DL_VALID;
    known->facts = *facts;
    known->norm2 = norm2;
    known->refused = NULL;
}

bool dl_candidate_doubt(dl_candidate *known, const char *reason)
{
    if (!dl_contribution_is_damage(reason)) known->doubt = reason;
    if (known->n_doubts++ < DOUBTS_ALLOWED) return true;
    known->validity = DL_INVALID;
    known->refused = known->doubt ? known->doubt : reason;
    DL_ASSERT(known->refused); /* an invalid one has a reason */
    return false;
}

void dl_candidate_read_whole(dl_candidate_table *table)
{
    for (size_t i = 0; i < table->n; i++)
        if (table->at[i].validity == DL_VALID && !table->at[i].whole)
            table->at[i].validity = DL_UNREAD;
}

static bool is_superseded(const dl_candidate_table *table, const dl_candidate *known)
{
    for (size_t i = 0; i < table->n && known->among_several; i++) {
        const dl_candidate *other = &table->at[i];
        if (other->generation.number > known->generation.number && other->validity == DL_VALID &&
            is_of(other, known->generation.replica))
            return true;
    }
    return false;
}

bool dl_candidate_counts(const dl_candidate_table *table, const dl_candidate *known)
{
    return known->validity == DL_VALID && known->facts.stats.samples > 0 && !known->refused &&
           !is_superseded(table, known);
}

bool dl_candidate_is_refused(const dl_candidate_table *table, const dl_candidate *known)
{
    return known->refused && !is_superseded(table, known);
}

size_t dl_candidate_n_counting(const dl_candidate_table *table)
{
    size_t n = 0;
    for (size_t i = 0; i < table->n; i++)
        n += dl_candidate_counts(table, &table->at[i]);
    return n;
}

bool dl_candidate_is_present(const dl_candidate_table *table, const char *replica)
{
    for (size_t i = 0; i < table->n; i++)
        if (is_of(&table->at[i], replica) && dl_candidate_counts(table, &table->at[i])) return true;
    return false;
}

bool dl_candidate_skips(const dl_candidate_table *table, const char *replica)
{
    for (size_t i = 0; i < table->n; i++) {
        const dl_candidate *k = &table->at[i];
        if (k->validity == DL_VALID && k->facts.stats.samples == 0 && is_of(k, replica) &&
            !is_superseded(table, k))
            return true;
    }
    return false;
}

/* Whether it counts or skips. At most one of a replica does: its newest valid one. */
static bool answers(const dl_candidate_table *table, const dl_candidate *known)
{
    return known->validity == DL_VALID && (known->facts.stats.samples == 0 || !known->refused) &&
           !is_superseded(table, known);
}

/* It looks up each candidate in the sorted roster. Looking up each name in the table would take
 * about as many comparisons of names as the square of the roster. */
size_t dl_candidate_n_missing(const dl_candidate_table *table, const dl_roster *roster)
{
    size_t n = 0;
    for (size_t i = 0; i < table->n; i++) {
        const dl_candidate *k = &table->at[i];
        n += answers(table, k) && dl_roster_has(roster, k->generation.replica, NULL);
    }
    DL_ASSERT(n <= roster->n);
    return roster->n - n;
}

bool dl_candidate_is_hopeless(const dl_candidate_table *table, const char *replica)
{
    for (size_t i = 0; i < table->n; i++)
        if (table->at[i].validity == DL_INVALID && !table->at[i].forged &&
            is_of(&table->at[i], replica))
            return true;
    return false;
}

static bool is_first_of_its_replica(const dl_candidate_table *table, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (is_of(&table->at[k], table->at[i].generation.replica)) return false;
    return true;
}

static bool has_put_junk_alone(const dl_candidate_table *table, const char *replica)
{
    for (size_t i = 0; i < table->n; i++)
        if (is_of(&table->at[i], replica) && table->at[i].validity == DL_INVALID &&
            !table->at[i].forged && !dl_contribution_is_junk(table->at[i].refused))
            return false;
    return true;
}

size_t dl_candidate_n_answered(const dl_candidate_table *table, bool junk_too)
{
    size_t n = 0;
    for (size_t i = 0; i < table->n; i++) {
        const char *replica = table->at[i].generation.replica;
        if (!is_first_of_its_replica(table, i)) continue;
        n += dl_candidate_is_present(table, replica) || dl_candidate_skips(table, replica) ||
             (dl_candidate_is_hopeless(table, replica) &&
              (junk_too || !has_put_junk_alone(table, replica)));
    }
    return n;
}
