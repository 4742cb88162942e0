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

/* From here on this process can do run.peers; where it was built without the hub, nothing. */
void dl_swarm_use_peers(void);

/* As diloco_train, of a node. */
DL_MUST_CHECK diloco_status dl_swarm_train(const dl_config *config, const char *name,
                                           const diloco_train_hooks *hooks);

/* join --peer: the run of that node, into the folder --store (default runs/swarm), and its
 * settings. A folder that has a run already needs no answer. */
DL_MUST_CHECK diloco_status dl_swarm_settings(dl_config *out, const dl_args *args);

/* Names of n nodes here: those of this folder that are not running, then new ones. */
void dl_swarm_names(dl_replica_name *out, size_t n, const dl_config *config);

/* "http://HOST:PORT", a node's address, becomes the url of what it serves. */
void dl_swarm_place(dl_config_path store);

/* Does `store` name a node, or a folder of nodes? */
bool dl_swarm_is_at(const char *store);
DL_MUST_CHECK diloco_status dl_swarm_status(const char *store, bool json);

/* Refuse a command that needs a log: DILOCO_EREFUSED, named. */
DL_MUST_CHECK diloco_status dl_swarm_refuse(const char *store, const char *command);

#endif
