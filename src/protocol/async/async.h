/* async.h - where a run is asynchronous (server.diloco.schedule = "async", PROTOCOL P20): what an
 * entry may name, and which contribution is next. Asynchronous Local-SGD, 2401.09135.
 *
 * Entry e is the e-th close: one contribution, relative to its own base b <= e, applied unchanged.
 * It lies at c/<b>/<life>. The roster's `misses` mean something else here: 1 + the base of the
 * replica's newest contribution that counted, so that each counts once. */
#ifndef DL_PROTOCOL_ASYNC_ASYNC_H
#define DL_PROTOCOL_ASYNC_ASYNC_H

#include "protocol/candidates.h"
#include "protocol/machine.h"

/* May `entry`, before which the roster is this, or a later one count a contribution of `replica`
 * to `base`? One that may not now never will. */
bool dl_async_may_count(const dl_roster *roster, uint64_t entry, const dl_config *config,
                        const char *replica, uint64_t base);
bool dl_async_is_too_old(const dl_config *config, uint64_t entry, uint64_t base);

/* The first of the listed that may be named by the open entry, by base, then by life; SIZE_MAX:
 * none. `refused` are known to be invalid. */
size_t dl_async_choose(const dl_control *control, const dl_config *config, const dl_listed *listed,
                       size_t n, const dl_known_table *refused);

/* Why such an entry is void, beside what makes any entry void; NULL. */
const char *dl_async_void_reason(const dl_control *control, const dl_config *config,
                                 const dl_entry *entry);

/* The roster that the entry carries: its member's base is taken down. */
void dl_async_next_roster(dl_roster *out, const dl_control *control, const dl_entry *entry);

/* DyLU: steps of a replica of this speed until its next contribution: floor(v / max v * H). */
uint64_t dl_async_interval(uint64_t interval, double speed, double fastest);

#endif
