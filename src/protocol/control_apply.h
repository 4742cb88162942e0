/* control_apply.h - the effect of an entry on the control state, and the reasons that make an entry
 * void.
 *
 * state(e+1) = fold(state(e), entry e, the contributions it names). The tensors' half is
 * outer_step. This is the other half: rosters, misses, consecutive aborts, lr and mu of the next
 * entry. Pure. */
#ifndef DL_PROTOCOL_CONTROL_APPLY_H
#define DL_PROTOCOL_CONTROL_APPLY_H

#include "protocol/control.h"

/* Returns whether this generation may create the next entry (P26). */
bool dl_control_may_create(const dl_control *control, const dl_generation *generation);

/* Returns why the entry does not fit the state that it claims to follow, so that it is void (P7),
 * or NULL. Reasons are another run, number or prev, another fragment than the due one, and a wrong
 * base. Others are a replica counted twice, no member, and another committer than the single one.
 * `base` is the fragment's current digest. Immutable bytes prove each of these. */
const char *dl_control_void_reason(const dl_control *control, const dl_entry *entry,
                                   const char *run, uint32_t fragment, dl_hash base);

/* Advances by a valid entry whose text hashes to `digest`. */
void dl_control_apply(dl_control *control, const dl_entry *entry, dl_hash digest);

/* Advances by a void entry: an abort with the newest known roster, without its committer. */
void dl_control_apply_void(dl_control *control, const dl_entry *entry, dl_hash digest);

/* Computes the roster that an entry should carry for the entry L after it, from the newest known
 * one (P9, P10).
 *
 *    commit  its members; and replicas that are missing for the first time in a row
 *    abort   replicas that were present, and missing ones that are not silent
 *
 * silent[i] is about control->roster.names[i]. */
void dl_control_next_roster(dl_roster *out, const dl_control *control, const dl_entry *entry,
                            const bool *silent);

#endif
