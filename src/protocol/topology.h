/* topology.h - exchange topologies: which replica reads which contributions (docs/protocol.md P19).
 *
 *     allgather   every replica reads every contribution and combines
 *     leader      one replica reads them, and uploads the combined update; the others read that
 *     sharded     each member reads and combines one slice of all, and uploads it; all read those
 *
 * S is the bytes of a contribution, F the bytes of the largest fragment in f32, N the number of
 * replicas. The bytes of one entry are:
 *
 *                 written      read            the busiest replica sends and receives
 *     allgather   N S          N^2 S           S            N S
 *     leader      N S + F      N S + N F       S + F        N S + F
 *     sharded     N S + F      N S + N F       S + F/N      S + F
 *
 * Here every replica reads its own contribution and combined update back, as from a folder. If the
 * store confirms uploads by checksum (P8), neither is needed. Then allgather reads N S less, a
 * leader S + F less, and the owners of slices together S + F less. `auto` counts as for a folder,
 * whatever the store is.
 *
 * A leader costs a further put and get, one after the other. Shards cost two more, and four if the
 * combiner measures whole members: then owners first exchange its measures over their slices
 * (sharded_measure.c). If w members combine each slice, against Byzantine ones, they read w N S,
 * not N S. An update can be sharded only if it can be combined by pieces. The codec's payloads must
 * allow slices, payloads are not compressed, and a combiner that sorts elements must not rescale
 * its result. */
#ifndef DL_PROTOCOL_TOPOLOGY_H
#define DL_PROTOCOL_TOPOLOGY_H

#include "base/config.h"
#include "log/identity.h"
#include "tensor/manifest.h"

typedef enum dl_topology_kind {
    DL_TOPOLOGY_ALLGATHER,
    DL_TOPOLOGY_LEADER,
    DL_TOPOLOGY_SHARDED,
    DL_N_TOPOLOGIES
} dl_topology_kind;
/* Returns whether a roster allows the topology. If members have keys, a replica that combines for
 * others has to be one that the run's creator listed (P19). */
bool dl_topology_fits_roster(dl_topology_kind topology, dl_policy policy);

extern const char *const dl_topology_names[DL_N_TOPOLOGIES];

/* Returns the topology that server.diloco.exchange names, which is not auto. */
static inline dl_topology_kind dl_topology_named(dl_exchange_choice exchange)
{
    _Static_assert(DL_EXCHANGE_SHARDED - DL_EXCHANGE_ALLGATHER == DL_TOPOLOGY_SHARDED, "one order");
    return (dl_topology_kind)(exchange - DL_EXCHANGE_ALLGATHER);
}

/* Below this, `auto` does not look for fewer bytes. A replica of an allgather reads so little that
 * a further round trip costs more. */
#define DL_TOPOLOGY_SMALL ((double)(16 << 20))

typedef struct dl_volume {
    double written, read; /* bytes of an entry, of all replicas in total */
} dl_volume;
/* `reads_back`: the store does not confirm uploads by checksum (store/store.h). */
dl_volume dl_topology_volume(dl_topology_kind topology, double replicas, double contribution,
                             double floats, bool reads_back);
/* Returns the bytes of the replica that moves the most, in both directions; it reads back. */
double dl_topology_busiest(dl_topology_kind topology, double replicas, double contribution,
                           double floats);
/* Sets *out to how many members combine each slice of a sharded run. Returns DILOCO_EINVAL if the
 * combiner does not exist. */
DL_MUST_CHECK diloco_status dl_topology_n_owners(size_t *out, const dl_config *config);
/* Returns DILOCO_EREFUSED and the reason if such a run's contributions cannot be combined by
 * pieces. */
DL_MUST_CHECK diloco_status dl_topology_can_shard(const dl_config *config);

/* Computes the most bytes that a contribution of this run can have. Returns DILOCO_EINVAL or
 * DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_topology_max_contribution(size_t *out, const dl_config *config,
                                                         const dl_manifest *manifest);

/* Resolves server.diloco.exchange for this run, as a function of options that must agree. `auto`
 * chooses the topology that moves the fewest bytes, and among equals the one whose busiest replica
 * moves the fewest. It chooses allgather if an entry is small, counts one contribution, or has
 * clients as members, which take no turns. It chooses no leader under a robust combiner, since one
 * member would determine the update. Returns DILOCO_EINVAL or DILOCO_ENOMEM of the codec. */
DL_MUST_CHECK diloco_status dl_topology_choose(dl_topology_kind *out, const dl_config *config,
                                               const dl_manifest *manifest);

#endif
