/* node_dir.h - a node's own folder (gossip.h has the layout), and its private state in it. */
#ifndef DL_GOSSIP_NODE_DIR_H
#define DL_GOSSIP_NODE_DIR_H

#include "gossip/node.h"
#include "hub/hub.h"
#include "log/contribution.h"
#include "log/runfile.h"
#include "state/private_state.h"
#include "state/state.h"

enum { DL_HOME_PRIVATES = 32 }; /* arrays of a node's private state at most */

/* A node's folder, its lock and its server. All is owned. */
typedef struct dl_home {
    dl_config_path nodes, dir, served, bucket; /* nodes; nodes/<name>; …/served; …/served/run */
    char id[DL_HASH_HEX + 1];                  /* random, made once */
    dl_local *local;                           /* with the lock */
    dl_store *store;                           /* of bucket */
    dl_hub *hub;
    char address[DL_ADDRESS_MAX + 1];
    dl_generation generation; /* number 0, or one more than the saved state's */
} dl_home;

/* dl_home_open makes the folder of node `name` under config's run.store, locks it and copies
 * run.json into it. dl_home_serve then serves it and sets the address. Returns DILOCO_EINVAL if
 * another process is this node, or if an address or a token is wrong; DILOCO_EREFUSED if it would
 * be served beyond this machine without TLS. */
DL_MUST_CHECK diloco_status dl_home_open(dl_home *out, const dl_config *config, const char *name);
DL_MUST_CHECK diloco_status dl_home_serve(dl_home *home, const dl_config *config);
void dl_home_close(dl_home *home); /* zeroed is fine */

/* Reports to the hub's listeners that an object has changed. Any thread. */
void dl_home_report(void *home, const char *key);

/* Stores an object of this generation for a round: the header and the spans. A second call with the
 * same bytes is fine. */
DL_MUST_CHECK diloco_status dl_home_put(dl_home *home, dl_object object, uint64_t round,
                                        const dl_contribution *facts, const dl_span *spans,
                                        size_t n_spans);
/* Stores the model before `state->control.entry`, and removes models but the newest two and objects
 * of more than DL_NODE_KEEP rounds earlier. */
DL_MUST_CHECK diloco_status dl_home_put_model(dl_home *home, const dl_state *state,
                                              const dl_runfile *run);

#endif
