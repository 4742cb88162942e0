/* topology_rules.h - the differences between exchange topologies (topology.h) for the machine: one
 * table and one file each. The executor has a table of its own (exchange/exec_parts.h). */
#ifndef DL_PROTOCOL_TOPOLOGY_TOPOLOGY_RULES_H
#define DL_PROTOCOL_TOPOLOGY_TOPOLOGY_RULES_H

#include "protocol/request.h"
#include "protocol/topology.h"

typedef struct dl_topology {
    /* Every replica reads all contributions and combines them. So an entry names no combined
     * update, each replica checks its verdicts, and there are no turns. */
    bool all_combine;
    bool (*reads_whole)(const dl_machine *m); /* contributions, and not only the tables of slices */
    dl_request (*look)(dl_machine *m);        /* log/<e> is absent: before it is closed */
    dl_request (*combine)(dl_machine *m);     /* the drafted members */
    /* replies to the requests of `combine`; NULL: it makes no such request */
    dl_request (*combined)(dl_machine *m, const dl_reply *reply);
    dl_request (*read_own)(dl_machine *m, const dl_reply *reply);
} dl_topology;

extern const dl_topology dl_topology_allgather, dl_topology_leader, dl_topology_sharded;

const dl_topology *dl_topology_of(dl_topology_kind topology);

#endif
