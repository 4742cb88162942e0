/* async.h - asynchronous runs (server.diloco.schedule = "async", PROTOCOL P20): the contributions
 * that an entry may name, and their order. Asynchronous Local-SGD, 2401.09135.
 *
 * Entry e is the e-th close: one contribution, relative to its own base b <= e, applied unchanged.
 * Its name is c/<b>/<replica>.<g>. The roster's `misses` have another meaning here: 1 + the base of
 * the replica's newest contribution that counted, so that each counts once. */
#ifndef DL_PROTOCOL_ASYNC_ASYNC_H
#define DL_PROTOCOL_ASYNC_ASYNC_H

#include "protocol/candidates.h"
#include "protocol/control.h"
#include "protocol/request.h"

/* dl_async_may_count returns whether `entry`, with this roster before it, or a later one may count
 * a contribution of `replica` to `base`. If not, it never will. */
bool dl_async_may_count(const dl_roster *roster, uint64_t entry, const dl_config *config,
                        const char *replica, uint64_t base);
bool dl_async_is_too_old(const dl_config *config, uint64_t entry, uint64_t base);

/* Returns the first listed contribution that the open entry may name, by base, then by generation,
 * or SIZE_MAX. `refused` are known to be invalid. */
size_t dl_async_choose(const dl_control *control, const dl_config *config, const dl_listed *listed,
                       size_t n, const dl_candidate_table *refused);

/* Returns why such an entry is void for reasons of its own, or NULL. */
const char *dl_async_void_reason(const dl_control *control, const dl_config *config,
                                 const dl_entry *entry);

/* Computes the roster that the entry carries, with its member's base. */
void dl_async_next_roster(dl_roster *out, const dl_control *control, const dl_entry *entry);

/* DyLU: returns the steps of a replica of this speed until its next contribution: floor(v / max v *
 * H). */
uint64_t dl_async_interval(uint64_t interval, double speed, double fastest);

#endif
