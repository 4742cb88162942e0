/* allgather.c - every replica combines what it has read (P19): an own contribution is whole, and no
 * combined update is put, served or collected. */
#include "exchange/exec_parts.h"

static diloco_status prepare(dl_exec *x)
{
    (void)x;
    return DILOCO_OK;
}

const dl_exec_topology dl_exec_allgather = {.prepare = prepare};

/* A new topology is a row here, a name among dl_topology_names, and a file that fills
 * dl_exec_topology. */
const dl_exec_topology *dl_exec_topology_of(dl_topology_kind topology_kind)
{
    static const dl_exec_topology *const rows[DL_N_TOPOLOGIES] = {
        [DL_TOPOLOGY_ALLGATHER] = &dl_exec_allgather,
        [DL_TOPOLOGY_LEADER] = &dl_exec_leader,
        [DL_TOPOLOGY_SHARDED] = &dl_exec_sharded};
    DL_ASSERT((unsigned)topology_kind < DL_N_TOPOLOGIES);
    return rows[topology_kind];
}
