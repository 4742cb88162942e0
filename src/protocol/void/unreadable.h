/* unreadable.h - an entry that names unreadable bytes, and the committers that build on it
 * (PROTOCOL P7).
 *
 * A committer names only what it knows the store to have (P8), and an object never changes. So if a
 * named object is missing or damaged at every read, there are two cases. Its committer is
 * malicious, and the entry is void. Or the store has lost the object, and the entry counts for the
 * replicas that read it in time. The bytes do not show which. The log does, since later entries
 * name the state from which they began. An entry may be built on by at most as many committers as
 * may be malicious without being accepted. With one more it is accepted, and a replica that cannot
 * read it waits for a snapshot after it. */
#ifndef DL_PROTOCOL_UNREADABLE_H
#define DL_PROTOCOL_UNREADABLE_H

#include "log/entry.h"
#include "log/identity.h"

#define DL_UNREADABLE_VOID "a contribution that it counts is missing from the store or damaged"

enum { DL_UNREADABLE_MAX_SUPPORTERS = 64 };

/* The last such entry of a fragment; zeroed: there was no such entry. */
typedef struct dl_unreadable {
    uint64_t after; /* the entry after it */
    dl_hash state;  /* the state after it, and after the entries built on it */
    bool damaged;   /* its text was unreadable, so its state is known once an entry builds on it */
    bool unknown;   /* no entry has built on it yet */
    bool accepted;
    size_t n_supporters;
    char supporters[DL_UNREADABLE_MAX_SUPPORTERS]
                   [DL_REPLICA_MAX + 1]; /* the committers of it and of those entries */
} dl_unreadable;

/* Returns how many committers may be malicious. That is as many as the run's combiner tolerates, at
 * least one, and at most a minority of the replicas that may close entries. With 0 an unreadable
 * object is the store's fault. */
size_t dl_unreadable_max_byzantine(const dl_config *config, const dl_identity *identity,
                                   const dl_roster *roster);

/* Returns whether an operator may void an unreadable entry (voided.h): only if no committer may be
 * malicious. */
bool dl_unreadable_may_void(const dl_config *config, const dl_identity *identity);

/* Records such an entry. If it is known, nothing changes. */
void dl_unreadable_record(dl_unreadable *unreadable, const dl_entry *entry, size_t max_byzantine);
/* Records an entry whose text is unreadable. It is void until more committers build on it than may
 * be malicious. */
void dl_unreadable_record_damaged(dl_unreadable *unreadable, uint64_t entry);
/* Returns whether this entry builds on it, and not on this replica's state. */
bool dl_unreadable_is_base_of(const dl_unreadable *unreadable, const dl_entry *entry);
/* This entry does: its committer supports both. */
void dl_unreadable_support(dl_unreadable *unreadable, const dl_entry *entry, size_t max_byzantine);

#endif
