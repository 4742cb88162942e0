/* candidates.c - see candidates.h. */
#include "protocol/candidates.h"

#include <string.h>

enum { DOUBTS_ALLOWED = 2 }; /* refused reads before one counts */

/* ---- rows by replica */

static size_t bucket_of(const char *replica)
{
    return dl_hash_seeded(replica, strlen(replica), 0) % DL_CANDIDATE_BUCKETS;
}

static bool is_of(const dl_candidate *known, const char *replica)
{
    return strcmp(known->generation.replica, replica) == 0;
}

dl_candidate *dl_candidate_next(const dl_candidate_table *table, const char *replica,
                                const dl_candidate *row)
{
    uint32_t next = row ? row->next : table->first[bucket_of(replica)];
    while (next && !is_of(&table->at[next - 1], replica))
        next = table->at[next - 1].next;
    return next ? &table->at[next - 1] : NULL;
}

/* Puts an object into a row, which is in no bucket. */
static void begin(dl_candidate_table *table, dl_candidate *row, const dl_generation *generation,
                  uint64_t entry, size_t len)
{
    uint32_t *first = &table->first[bucket_of(generation->replica)];
    *row = (dl_candidate){.generation = *generation, .entry = entry, .len = len, .next = *first};
    *first = 1 + (uint32_t)(row - table->at);
}

static void leave_bucket(dl_candidate_table *table, const dl_candidate *row)
{
    uint32_t *at = &table->first[bucket_of(row->generation.replica)];
    while (*at && &table->at[*at - 1] != row)
        at = &table->at[*at - 1].next;
    DL_ASSERT(*at);
    *at = row->next;
}

void dl_candidate_clear(dl_candidate_table *table)
{
    table->n = 0;
    memset(table->first, 0, sizeof table->first);
}

dl_candidate *dl_candidate_find(const dl_candidate_table *table, const dl_generation *generation)
{
    dl_candidate *row = NULL;
    while ((row = dl_candidate_next(table, generation->replica, row)))
        if (row->generation.number == generation->number) return row;
    return NULL;
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
    for (size_t i = 0; i < table->n && !k; i++) {
        if (keep(context, &table->at[i])) continue;
        k = &table->at[i];
        leave_bucket(table, k);
        begin(table, k, generation, entry, len);
    }
    return k;
}

void dl_candidate_restart(dl_candidate *known, uint64_t entry, size_t len)
{
    *known = (dl_candidate){
        .generation = known->generation, .entry = entry, .len = len, .next = known->next};
}

/* ---- */

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
    const dl_candidate *other = NULL;
    while ((other = dl_candidate_next(table, known->generation.replica, other)))
        if (other->generation.number > known->generation.number && other->validity == DL_VALID)
            return true;
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
    const dl_candidate *k = NULL;
    while ((k = dl_candidate_next(table, replica, k)))
        if (dl_candidate_counts(table, k)) return true;
    return false;
}

bool dl_candidate_skips(const dl_candidate_table *table, const char *replica)
{
    const dl_candidate *k = NULL;
    while ((k = dl_candidate_next(table, replica, k)))
        if (k->validity == DL_VALID && k->facts.stats.samples == 0 && !is_superseded(table, k))
            return true;
    return false;
}

size_t dl_candidate_n_missing(const dl_candidate_table *table, const dl_roster *roster)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->n; i++)
        n += !dl_candidate_is_present(table, roster->names[i]) &&
             !dl_candidate_skips(table, roster->names[i]);
    return n;
}

bool dl_candidate_is_hopeless(const dl_candidate_table *table, const char *replica)
{
    const dl_candidate *k = NULL;
    while ((k = dl_candidate_next(table, replica, k)))
        if (k->validity == DL_INVALID && !k->forged) return true;
    return false;
}

/* The first that next_of returns, so that each replica has one. */
static bool is_first_of_its_replica(const dl_candidate_table *table, size_t i)
{
    return dl_candidate_next(table, table->at[i].generation.replica, NULL) == &table->at[i];
}

static bool has_put_junk_alone(const dl_candidate_table *table, const char *replica)
{
    const dl_candidate *k = NULL;
    while ((k = dl_candidate_next(table, replica, k)))
        if (k->validity == DL_INVALID && !k->forged && !dl_contribution_is_junk(k->refused))
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
