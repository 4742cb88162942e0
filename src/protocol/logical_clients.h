/* logical_clients.h - federated runs: the members of an entry are logical clients, which are no
 * processes (docs/federated.md). The run's seed and the entry's number alone determine which
 * clients an entry samples. So every writer, reader or auditor of the log knows it. Pure. */
#ifndef DL_PROTOCOL_LOGICAL_CLIENTS_H
#define DL_PROTOCOL_LOGICAL_CLIENTS_H

#include "base/config.h"
#include "log/entry.h"

/* Returns how many an entry samples: clients.per_round, or all; run.replicas if there are no
 * clients. */
size_t dl_clients_per_round(const dl_config *config);
/* Returns the most members of an entry; every reader has the same (an entry with more is void to
 * all). */
size_t dl_clients_max_members(const dl_config *config);
/* Returns into how many pieces the data is divided: one a client, or one a replica. */
size_t dl_clients_shards(const dl_config *config);

typedef char dl_client_name[DL_REPLICA_MAX + 1];
void dl_client_name_of(dl_client_name out, uint64_t client); /* "client17"; clients are 1 … total */
uint64_t dl_client_number(const char *name);                 /* 0: no client's name */

/* dl_clients_sample lists the clients that `entry` samples, without misses. The roster has space
 * for them. */
void dl_clients_sample(dl_roster *out, const dl_config *config, uint64_t entry);
bool dl_clients_sampled(const dl_config *config, uint64_t entry, uint64_t client);

/* Returns whether a round without a counted client resets the outer momentum
 * (server.diloco.plato_compat). */
bool dl_clients_empty_momentum(const dl_config *config);

/* Returns why an entry of a federated run is void: its roster is not the next entry's sample, or it
 * counts a client that was not sampled. NULL: it is valid. `asked` is the roster under which it was
 * open. */
const char *dl_clients_void_reason(const dl_config *config, const dl_entry *entry,
                                   const dl_roster *asked);

#endif
