/* node_dir.h - a node's own folder (gossip.h has the layout), and its private state in it. */
#ifndef DL_GOSSIP_NODE_DIR_H
#define DL_GOSSIP_NODE_DIR_H

#include "gossip/node.h"
#include "hub/hub.h"
#include "log/contribution.h"
#include "log/runfile.h"
#include "state/private_state.h"
#include "state/state.h"

enum { DL_HOME_PRIVATES = 32 };

typedef struct dl_home {
    dl_config_path nodes, dir, served, bucket; /* nodes; nodes/<name>; …/served; …/served/run */
    char id[DL_HASH_HEX + 1];                  /* random, made once */
    dl_local *local;                           /* with the lock */
    dl_store *store;                           /* of bucket */
    dl_hub *hub;
    char address[DL_ADDRESS_MAX + 1];
    dl_generation generation;
} dl_home;

/* Make the folder of node `name` under config's run.store, lock it, copy run.json into it. Then
 * serve it. DILOCO_EINVAL: another process is this node, or an address or a token is wrong;
 * DILOCO_EREFUSED: it would be served beyond this machine without TLS. */
DL_MUST_CHECK diloco_status dl_home_open(dl_home *out, const dl_config *config, const char *name);
DL_MUST_CHECK diloco_status dl_home_serve(dl_home *home, const dl_config *config);
void dl_home_close(dl_home *home); /* zeroed is fine */

void dl_home_report(void *home, const char *key); /* its changes, for listeners */

/* An object of this generation to a round: header and spans. The same again is fine. */
DL_MUST_CHECK diloco_status dl_home_put(dl_home *home, dl_object object, uint64_t round,
                                        const dl_contribution *facts, const dl_span *spans,
                                        size_t n_spans);
/* The model before `state->control.entry`, and what came more than DL_NODE_KEEP rounds earlier
 * removed. */
DL_MUST_CHECK diloco_status dl_home_put_model(dl_home *home, const dl_state *state,
                                              const dl_runfile *run);

#endif
