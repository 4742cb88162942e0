/* topology_allgather.c - every replica reads every contribution, and combines (P19). */
#include "protocol/machine_parts.h"

const dl_topology *dl_topology_of(dl_topology_kind topology)
{
    static const dl_topology *const rows[DL_N_TOPOLOGIES] = {
        [DL_TOPOLOGY_ALLGATHER] = &dl_topology_allgather,
        [DL_TOPOLOGY_LEADER] = &dl_topology_leader,
        [DL_TOPOLOGY_SHARDED] = &dl_topology_sharded};
    DL_ASSERT((unsigned)topology < DL_N_TOPOLOGIES);
    return rows[topology];
}

static bool reads_whole(const dl_machine *m)
{
    (void)m;
    return true;
}

const dl_topology dl_topology_allgather = {
    .all_combine = true,
    .reads_whole = reads_whole,
    .look = dl_propose_look_to_close,
    .combine = dl_propose_compute,
};
