/* unreadable.h - an entry that names what cannot be read, and who stands by it (PROTOCOL P7).
 *
 * A committer names only what it knows the store to have (P8), and what was created there
 * stays as it is. So if what an entry names is not there, or is damaged, whoever is asked and
 * however often, either its committer lies, and the entry is void; or the store has lost what it
 * had, and the entry stands for those who read it in time. The bytes do not tell which. The log
 * does: entries that follow name the state they began from. As many committers as the run takes for
 * liars at most may build on it in vain; when one more does, it stands, and who cannot read it
 * waits for a snapshot behind it. */
#ifndef DL_PROTOCOL_UNREADABLE_H
#define DL_PROTOCOL_UNREADABLE_H

#include "log/entry.h"
#include "log/identity.h"

#define DL_UNREAD_VOID "what it counts is not in the store, or is damaged there"

enum { DL_UNREAD_BY = 64 };

/* The last of such entries of a fragment; zeroed: there was none. */
typedef struct dl_unread {
    uint64_t after; /* the entry behind it */
    dl_hash state;  /* that it, and what was built on it since, comes to */
    bool damaged;   /* its text could not be read, so that state is known once one builds on it */
    bool unknown;   /* … and none has yet */
    bool stands;
    size_t n_by;
    char by[DL_UNREAD_BY][DL_REPLICA_MAX + 1]; /* committers of it and of those */
} dl_unread;

/* How many may lie: as many as the run's combiner bears, one in any case, and no more than a
 * minority of those who may close entries. With 0 what is unreadable is the store's fault. */
size_t dl_unread_liars(const dl_config *config, const dl_identity *identity,
                       const dl_roster *roster);

/* Is an entry that nobody can read an operator's to void (voided.h)? Where no committer may lie. */
bool dl_unread_is_operators(const dl_config *config, const dl_identity *identity);

/* That entry is one; known already: nothing changes. */
void dl_unread_meet(dl_unread *unread, const dl_entry *entry, size_t n_liars);
/* That entry's text cannot be read. It is void, until more committers than may lie build on it. */
void dl_unread_meet_damaged(dl_unread *unread, uint64_t entry);
/* Is this one built on it? It is not built on the state that this replica has. */
bool dl_unread_carries(const dl_unread *unread, const dl_entry *entry);
/* It is: its committer stands by both. */
void dl_unread_follow(dl_unread *unread, const dl_entry *entry, size_t n_liars);

#endif
