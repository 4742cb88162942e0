/* logical_clients.h - federated runs: the members of an entry are logical clients, which are no
 * processes (docs/federated.md). Which of them an entry asks is a function of the run's seed and
 * the entry's number alone, so whoever writes, reads or audits the log knows it. Pure. */
#ifndef DL_PROTOCOL_LOGICAL_CLIENTS_H
#define DL_PROTOCOL_LOGICAL_CLIENTS_H

#include "base/config.h"
#include "log/entry.h"

/* How many an entry asks: clients.per_round, or all; run.replicas where there are no clients. */
size_t dl_clients_per_round(const dl_config *config);
/* Most members of an entry; every reader has the same (an entry with more is void to all). */
size_t dl_clients_max_members(const dl_config *config);
/* Into how many pieces the data is cut: one a client, or one a replica. */
size_t dl_clients_shards(const dl_config *config);

typedef char dl_client_name[DL_REPLICA_MAX + 1];
void dl_client_name_of(dl_client_name out, uint64_t client); /* "client17"; clients are 1 … total */
uint64_t dl_client_number(const char *name);                 /* 0: no client's name */

/* The clients that `entry` asks, without misses. The roster has room for them. */
void dl_clients_sample(dl_roster *out, const dl_config *config, uint64_t entry);
bool dl_clients_sampled(const dl_config *config, uint64_t entry, uint64_t client);

/* Does a round of which nobody counts empty the outer momentum (server.diloco.plato_compat)? */
bool dl_clients_empty_momentum(const dl_config *config);

/* Why an entry of a federated run is void: its roster is not what the next entry asks, or it counts
 * a client that was not asked. NULL: it is not. `asked` is the roster it was open under. */
const char *dl_clients_void_reason(const dl_config *config, const dl_entry *entry,
                                   const dl_roster *asked);

#endif
