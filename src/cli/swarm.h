/* swarm.h - runs without a log (swarm.consensus = "none"; docs/swarm.md), for the commands; and, in
 * runs with one, members that read from each other (run.peers). */
#ifndef DL_CLI_SWARM_H
#define DL_CLI_SWARM_H

#include "base/config.h"
#include "cli/cli.h"
#include "cli/crew/processes.h"
#include <diloco/train.h>

/* Return true for a run in which every node has a model of its own. */
static inline bool dl_swarm_is(const dl_config *config)
{
    return config->consensus == DL_CONSENSUS_NONE;
}

/* dl_swarm_use_peers lets this process serve its contributions to members (run.peers). It does
 * nothing in a program that was built without the hub. */
void dl_swarm_use_peers(void);

/* dl_swarm_train trains one node of this name to the end of the run, as diloco_train trains a
 * replica. Returns DILOCO_EREFUSED in a program without the hub; otherwise as dl_gossip_train. */
DL_MUST_CHECK diloco_status dl_swarm_train(const dl_config *config, const char *name,
                                           const diloco_train_hooks *hooks);

/* dl_swarm_settings copies the run of the node at --peer into the folder --store (default
 * runs/swarm) and loads its settings. If that folder has a run already, the node need not answer.
 * Returns DILOCO_EINVAL for a URL beside --peer, and DILOCO_EUNREACHABLE or DILOCO_ETIMEDOUT
 * without a node. */
DL_MUST_CHECK diloco_status dl_swarm_settings(dl_config *out, const dl_args *args);

/* dl_swarm_names writes the names of n nodes of this machine: first those in the state folder that
 * no process uses, so they resume, then new random ones. */
void dl_swarm_names(dl_replica_name *out, size_t n, const dl_config *config);

/* dl_swarm_place turns "http://HOST:PORT", the address of a node, into the URL of the objects that
 * it serves. Any other text is left alone. */
void dl_swarm_place(dl_config_path store);

/* dl_swarm_is_at returns true if `store` is a node's address or a folder of nodes. A store that
 * cannot be read gives false. */
bool dl_swarm_is_at(const char *store);
/* dl_swarm_status prints the nodes at `store`, as lines or as one JSON object. */
DL_MUST_CHECK diloco_status dl_swarm_status(const char *store, bool json);

/* dl_swarm_refuse returns DILOCO_EREFUSED if the run in `store` has no log. `command` is the verb
 * of the error: "verify". */
DL_MUST_CHECK diloco_status dl_swarm_refuse(const char *store, const char *command);

#endif
