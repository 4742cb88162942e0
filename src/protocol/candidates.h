/* candidates.h - the contributions of the open entry that this replica knows of.
 *
 * A contribution's index in the table is its slot: where its decoded bytes are kept. Which of
 * them count is a function of the table alone: the newest valid one of each replica (P15) that
 * has trained on anything. */
#ifndef DL_PROTOCOL_CANDIDATES_H
#define DL_PROTOCOL_CANDIDATES_H

#include "log/contribution.h"
#include "log/entry.h"

typedef enum dl_worth { DL_UNREAD, DL_VALID, DL_INVALID } dl_worth;

typedef struct dl_known {
    dl_life life;
    uint64_t entry; /* under which it lies; its base where the run is asynchronous */
    size_t len;
    dl_worth worth;
    bool whole;            /* of a valid one: all of it was read (slices.h) */
    bool forged;           /* of an invalid one: its replica's key has not signed it */
    unsigned n_doubts;     /* readings that were refused, */
    const char *doubt;     /* … and why the last of them that was whole; NULL: none was */
    dl_contribution facts; /* of a valid one */
    double norm2;
    const char *refused; /* of an invalid one, what its reading ended with; of a valid one judge.h's
                          * verdict; NULL: none */
} dl_known;

typedef struct dl_known_table {
    dl_known *at; /* [cap], the owner's */
    size_t n, cap;
} dl_known_table;

dl_known *dl_known_find(const dl_known_table *table, const dl_life *life);
/* The one of that life, put in if need be; NULL: no room. */
dl_known *dl_known_add(dl_known_table *table, const dl_life *life, uint64_t entry, size_t len);
/* Likewise; where there is no room it takes the place of one that `keep` does not want kept. NULL:
 * all are. */
typedef bool (*dl_known_keep_fn)(const void *context, const dl_known *known);
dl_known *dl_known_replace(dl_known_table *table, const dl_life *life, uint64_t entry, size_t len,
                           dl_known_keep_fn keep, const void *context);
size_t dl_known_slot(const dl_known_table *table, const dl_known *known);
/* slots[i] is the slot of entry's member i; each is in the table. */
void dl_known_slots(size_t *slots, const dl_known_table *table, const dl_entry *entry);

/* What a reading of it gave. A refusal may be the way's fault, so it takes three to call a
 * contribution invalid (P7): dl_known_doubt is true as long as it has to be read again. Damage is
 * what becomes of it only where it was damaged every time. */
void dl_known_accept(dl_known *known, const dl_contribution *facts, double norm2);
bool dl_known_doubt(dl_known *known, const char *reason);
/* Those that were not read as a whole have to be. */
void dl_known_read_whole(dl_known_table *table);

bool dl_known_counts(const dl_known_table *table, const dl_known *known);
size_t dl_known_n_counting(const dl_known_table *table);
bool dl_known_is_there(const dl_known_table *table, const char *replica);
/* It has put a valid contribution of no samples: it has nothing to give to this entry. */
bool dl_known_passes(const dl_known_table *table, const char *replica);
/* Return the number of replicas that are there, have passed, or are hopeless: nothing more comes
 * from them. An object whose header does not name the run and the replica may be anyone's, and
 * counts only with `junk_too`. */
size_t dl_known_n_answered(const dl_known_table *table, bool junk_too);
/* Who of the roster is neither there nor has passed. */
size_t dl_known_n_missing(const dl_known_table *table, const dl_roster *roster);
/* Not to be used, though it would be the one of its replica to count; its reason is `refused`. */
bool dl_known_is_refused(const dl_known_table *table, const dl_known *known);
/* It has put a contribution that will never be valid: no use in waiting for it. A forged one is not
 * its own. */
bool dl_known_is_hopeless(const dl_known_table *table, const char *replica);

#endif
