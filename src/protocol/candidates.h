/* candidates.h - the contributions to the open entry that this replica knows.
 *
 * A contribution's index in the table is its slot, in which its decoded bytes are stored. The table
 * alone determines which of them count: the newest valid one of each replica (P15) that has
 * samples. */
#ifndef DL_PROTOCOL_CANDIDATES_H
#define DL_PROTOCOL_CANDIDATES_H

#include "log/contribution.h"
#include "log/entry.h"

typedef enum dl_validity { DL_UNREAD, DL_VALID, DL_INVALID } dl_validity;

typedef struct dl_candidate {
    dl_generation generation;
    uint64_t entry; /* the entry in its name; its base if the run is asynchronous */
    size_t len;
    dl_validity validity;
    uint32_t next;     /* 1 + the next row of its bucket; 0: it is the last */
    bool whole;        /* of a valid one: all of it was read (slices.h) */
    bool forged;       /* of an invalid one: its replica's key has not signed it */
    unsigned n_doubts; /* refused reads */
    /* the reason of the last one that read the whole object; NULL: no read did */
    const char *doubt;
    dl_contribution facts; /* of a valid one */
    double norm2;
    /* of an invalid one, the reason of its read; of a valid one, judge.h's verdict, or NULL */
    const char *refused;
} dl_candidate;

enum { DL_CANDIDATE_BUCKETS = 1024 };

/* An empty table is {.at = rows, .cap = n}. */
typedef struct dl_candidate_table {
    dl_candidate *at; /* [cap], owned by the table's owner */
    size_t n, cap;
    /* By a hash of the replica's name: 1 + the first row of a bucket; 0: the bucket is empty. A
     * table of a thousand replicas is searched once for each object of each listing. If an
     * adversary chooses names of one bucket, a search takes as long as without buckets. */
    uint32_t first[DL_CANDIDATE_BUCKETS];
} dl_candidate_table;

void dl_candidate_clear(dl_candidate_table *table);
/* Returns the replica's next row after `row`, its first after NULL, or NULL. */
dl_candidate *dl_candidate_next(const dl_candidate_table *table, const char *replica,
                                const dl_candidate *row);
dl_candidate *dl_candidate_find(const dl_candidate_table *table, const dl_generation *generation);
/* Returns the one of that generation, after adding it if need be, or NULL if there is no space. */
dl_candidate *dl_candidate_add(dl_candidate_table *table, const dl_generation *generation,
                               uint64_t entry, size_t len);
/* Does the same; if there is no space, it replaces one that `keep` does not keep. Returns NULL if
 * it keeps all. */
typedef bool (*dl_candidate_keep_fn)(const void *context, const dl_candidate *known);
dl_candidate *dl_candidate_replace(dl_candidate_table *table, const dl_generation *generation,
                                   uint64_t entry, size_t len, dl_candidate_keep_fn keep,
                                   const void *context);
/* Replaces it with another object of the same generation, which is unread. */
void dl_candidate_restart(dl_candidate *known, uint64_t entry, size_t len);
size_t dl_candidate_slot(const dl_candidate_table *table, const dl_candidate *known);
/* Sets slots[i] to the slot of entry's member i; each is in the table. */
void dl_candidate_slots(size_t *slots, const dl_candidate_table *table, const dl_entry *entry);

/* Record the result of a read. A transfer may cause a refusal, so a contribution is invalid only
 * after three (P7): dl_candidate_doubt returns true as long as it has to be read again. It counts
 * as damaged only if every read was. */
void dl_candidate_accept(dl_candidate *known, const dl_contribution *facts, double norm2);
bool dl_candidate_doubt(dl_candidate *known, const char *reason);
/* Marks those that were not read whole for another read. */
void dl_candidate_read_whole(dl_candidate_table *table);

bool dl_candidate_counts(const dl_candidate_table *table, const dl_candidate *known);
size_t dl_candidate_n_counting(const dl_candidate_table *table);
bool dl_candidate_is_present(const dl_candidate_table *table, const char *replica);
/* Returns whether it has uploaded a valid contribution without samples: it skips this entry. */
bool dl_candidate_skips(const dl_candidate_table *table, const char *replica);
/* Returns the number of replicas that are present, skip the entry, or are hopeless: they upload
 * nothing more. An object whose header does not name the run and the replica may be anyone's, and
 * counts only with `junk_too`. */
size_t dl_candidate_n_answered(const dl_candidate_table *table, bool junk_too);
/* Returns how many of the roster are neither present nor skip the entry. */
size_t dl_candidate_n_missing(const dl_candidate_table *table, const dl_roster *roster);
/* Returns whether it is refused, although it would be its replica's one to count; its reason is
 * `refused`. */
bool dl_candidate_is_refused(const dl_candidate_table *table, const dl_candidate *known);
/* Returns whether it has uploaded a contribution that will never be valid, so that waiting is
 * useless. A forged one is not its own. */
bool dl_candidate_is_hopeless(const dl_candidate_table *table, const char *replica);

#endif
