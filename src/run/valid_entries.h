/* valid_entries.h - which past entries are valid (P7), for a process that may not have applied them
 * itself.
 *
 * An entry's text does not say that: replicas may have found its result wrong. But the newest state
 * is known, and each valid entry names the states before and after it. So a walk back from the
 * newest state finds the valid ones. An entry is valid if its result is the state that the walk has
 * reached, and the walk continues from its base. An unreadable or void entry leaves the state as it
 * is. The run has one fragment, as every federated run has.
 *
 * A void entry may name the state that it found as its result, and another base. Then an earlier
 * entry has the same result, and that one is valid. So a verdict waits for an earlier entry that
 * confirms or revokes it.
 *
 * The store may damage a valid entry after replicas have read it (P7.10). The `prev` of the next
 * valid entry shows that, or the first state at the log's beginning. */
#ifndef DL_RUN_VALID_ENTRIES_H
#define DL_RUN_VALID_ENTRIES_H

#include "log/entry.h"
#include "log/runfile.h"
#include "store/store.h"

/* A place before an entry that a walk has reached. */
typedef struct dl_walk_place {
    dl_hash state;
    dl_hash prev;  /* of the entry before this place, */
    bool has_prev; /* if it is known */
    /* 1 + the last entry that was found valid, until it is confirmed; 0: none */
    uint64_t pending;
    dl_hash after;   /* the state after that entry */
    uint64_t broken; /* 1 + the entry before it, if its digest is not the `prev` there; else 0 */
} dl_walk_place;

/* The result of the walks so far, so that each entry is read once. Zeroed is empty. */
typedef struct dl_valid_entries {
    uint64_t first, end; /* entries from first to end - 1 are known */
    dl_walk_place before_first;
    dl_hash at_end; /* the state after them */
    bool *valid;    /* [cap] of each entry; owned */
    size_t cap;
} dl_valid_entries;

/* The run, and its newest state: after `open` entries, with that digest. prev is the control
 * state's. */
typedef struct dl_valid_entries_source {
    dl_store *store;
    const dl_runfile *run;
    uint64_t open;
    dl_hash state, prev;
} dl_valid_entries_source;

/* Reads log/<number>. An unreadable entry (P7.9), or a copy of another one, sets *readable to
 * false. *digest is the `prev` of the next entry. Returns store errors, and DILOCO_EDIFFERS for an
 * entry of another format version. */
DL_MUST_CHECK diloco_status dl_past_entry_read(dl_entry *out, bool *readable, dl_hash *digest,
                                               const dl_valid_entries_source *from,
                                               uint64_t number);
/* Sets *valid for an entry before from->open. `scratch` has the run's room. Returns the errors of
 * dl_past_entry_read, and DILOCO_ENOMEM; the next call then continues. Returns DILOCO_EPROTO if an
 * entry was damaged after replicas had read it. */
DL_MUST_CHECK diloco_status dl_valid_entries_find(bool *valid, dl_valid_entries *v,
                                                  dl_entry *scratch,
                                                  const dl_valid_entries_source *from,
                                                  uint64_t number);
void dl_valid_entries_deinit(dl_valid_entries *v);

#endif
