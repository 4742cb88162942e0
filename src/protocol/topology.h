/* topology.h - how contributions are moved: who reads which of them (docs/protocol.md P19).
 *
 *     allgather   every replica reads every contribution and combines
 *     leader      one replica reads them, and puts what they come to; the others read that
 *     sharded     each member reads one slice of all, and puts what that comes to; all read those
 *
 * S bytes of a contribution, F = 4 bytes a float, of the largest fragment; N replicas; bytes of
 * one entry, all replicas together:
 *
 *                 written      read            one replica, at most, sends and receives
 *     allgather   N S          N^2 S           S            N S
 *     leader      N S + F      N S + N F       S + F        N S + F
 *     sharded     N S + F      N S + N F       S + F/N      S + F
 *
 * In these everybody reads its own contribution back, and what it has combined, as over a folder.
 * Where the store vouches for what was put (P8) neither is needed: then allgather reads N S less, a
 * leader S + F, and owners of slices, all together, S + F as well. `auto` counts as over a folder,
 * wherever the run is. A leader costs
 * a further put and get, one behind the other; shards two, and four where the combiner measures
 * whole members: then owners first tell each other what these measure over their slices
 * (sharded_measure.c). Where w members combine each slice, for fear of those that lie, they read w
 * N S, not N S. Only what can be combined by pieces can be sharded: by a codec whose payloads can
 * be cut, unpacked, and not a combiner that sorts elements where its result is rescaled. */
#ifndef DL_PROTOCOL_TOPOLOGY_H
#define DL_PROTOCOL_TOPOLOGY_H

#include "base/config.h"
#include "log/identity.h"
#include "tensor/manifest.h"

typedef enum dl_way { DL_WAY_ALLGATHER, DL_WAY_LEADER, DL_WAY_SHARDED, DL_N_WAYS } dl_way;
/* Where members have keys, whoever combines for others has to be one whom the run's creator listed
 * (P19). */
bool dl_way_fits_roster(dl_way way, dl_policy policy);

extern const char *const dl_way_names[DL_N_WAYS];

/* The way that server.diloco.exchange names, which is not auto. */
static inline dl_way dl_way_chosen(dl_exchange_choice exchange)
{
    _Static_assert(DL_EXCHANGE_SHARDED - DL_EXCHANGE_ALLGATHER == DL_WAY_SHARDED, "one order");
    return (dl_way)(exchange - DL_EXCHANGE_ALLGATHER);
}

/* Below this, `auto` does not look for fewer bytes: a replica of an allgather reads so little that
 * a further round trip is the dearer. */
#define DL_WAY_SMALL ((double)(16 << 20))

typedef struct dl_volume {
    double written, read; /* bytes of an entry, of all replicas together */
} dl_volume;
/* `reads_back`: the store does not vouch for what was put (store/store.h). */
dl_volume dl_way_volume(dl_way way, double replicas, double contribution, double floats,
                        bool reads_back);
/* … of the replica that moves the most, both directions; it reads back. */
double dl_way_busiest(dl_way way, double replicas, double contribution, double floats);
/* How many members combine each slice of a run that is sharded. DILOCO_EINVAL: no such combiner. */
DL_MUST_CHECK diloco_status dl_way_owners(size_t *out, const dl_config *config);
/* DILOCO_EREFUSED: why contributions of such a run cannot be combined by pieces. */
DL_MUST_CHECK diloco_status dl_way_can_shard(const dl_config *config);

/* The most bytes that a contribution of this run can have. DILOCO_EINVAL, DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_way_largest(size_t *out, const dl_config *config,
                                           const dl_manifest *manifest);

/* What server.diloco.exchange comes to for this run: a function of what must agree. `auto` takes
 * the way that moves the fewest bytes, of equals the one whose busiest replica moves the fewest,
 * and allgather where an entry is small, counts one contribution, or has clients for members, who
 * take no turns. Under a robust combiner no leader: one member's word would be the update.
 * DILOCO_EINVAL, DILOCO_ENOMEM: of the codec. */
DL_MUST_CHECK diloco_status dl_way_of(dl_way *out, const dl_config *config,
                                      const dl_manifest *manifest);

#endif
