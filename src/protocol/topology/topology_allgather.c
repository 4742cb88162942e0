/* topology_allgather.c - every replica reads every contribution, and combines (P19). */
#include "protocol/machine_parts.h"

const dl_topology *dl_topology_of(dl_way way)
{
    static const dl_topology *const rows[DL_N_WAYS] = {[DL_WAY_ALLGATHER] = &dl_topology_allgather,
                                                       [DL_WAY_LEADER] = &dl_topology_leader,
                                                       [DL_WAY_SHARDED] = &dl_topology_sharded};
    DL_ASSERT((unsigned)way < DL_N_WAYS);
    return rows[way];
}

static bool reads_whole(const dl_machine *m)
{
    (void)m;
    return true;
}

const dl_topology dl_topology_allgather = {
    .all_combine = true,
    .reads_whole = reads_whole,
    .look = dl_decide_look_to_close,
    .combine = dl_decide_compute,
};
