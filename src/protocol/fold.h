/* fold.h - what an entry does to the control state, and what makes an entry void.
 *
 * state(e+1) = fold(state(e), entry e, what it names). The tensors' half is outer_step; this is
 * the other half: rosters, misses, aborts in a row, lr and mu of the next entry. Pure. */
#ifndef DL_PROTOCOL_FOLD_H
#define DL_PROTOCOL_FOLD_H

#include "protocol/control.h"

/* May this life create the next entry (P26)? */
bool dl_fold_may_create(const dl_control *control, const dl_life *life);

/* Does the entry fit the state it claims to follow? NULL, or why it is void (P7): another run,
 * number or prev, another fragment than the due one, a wrong base, a replica counted twice, nobody
 * counted, another committer than the single one. `base` is the digest of the fragment now.
 * Immutable bytes prove each of these. */
const char *dl_fold_void_reason(const dl_control *control, const dl_entry *entry, const char *run,
                                uint32_t fragment, dl_hash base);

/* Advance by a valid entry whose text hashes to `digest`. */
void dl_fold(dl_control *control, const dl_entry *entry, dl_hash digest);

/* Advance by a void entry: an abort with the newest roster told, without its committer. */
void dl_fold_void(dl_control *control, const dl_entry *entry, dl_hash digest);

/* The roster an entry should carry for the one L behind it, from the newest told (P9, P10).
 *   commit  its members; and who is missing for the first time in a row
 *   abort   who was there, and who is missing but not silent
 * silent[i] tells of control->roster.names[i]. */
void dl_fold_next_roster(dl_roster *out, const dl_control *control, const dl_entry *entry,
                         const bool *silent);

#endif
