/* gossip.h - a run without a log (swarm.consensus = "none"; docs/swarm.md): nodes that find each
 * other, exchange, and each keep a model of their own.
 *
 * run.store is a folder of this machine, not shared:
 *
 *     run.json, theta0/…             what the run is (run/open.h): made here, or a peer's
 *     nodes/<name>/                  a node of this machine: lock, private state, and
 *     nodes/<name>/served/run/…      what it serves others, at its address: run.json, me/beat.json,
 *                                    c/ and a/ of the last rounds, its newest models under snap/;
 *                                    hb/<name>: others that made themselves known */
#ifndef DL_GOSSIP_GOSSIP_H
#define DL_GOSSIP_GOSSIP_H

#include "base/config.h"
#include <diloco/train.h>

/* Live one node to the end of the run, as diloco_train does a replica. config's run.store has the
 * run. DILOCO_EUNREACHABLE: fewer than swarm.min_peers nodes were found in run.start_timeout. */
DL_MUST_CHECK diloco_status dl_gossip_train(const dl_config *config, const char *name,
                                            const diloco_train_hooks *hooks);

/* Copy run.json of the run that a node takes part in into the folder `store`, which is made. The
 * same again is fine. DILOCO_EINVAL: no address; DILOCO_EDIFFERS: another run is there. */
DL_MUST_CHECK diloco_status dl_gossip_take_run(const char *store, const char *peer, bool tls);

/* A name that no node of this machine has: "n" and 8 hexadecimal digits, by chance. */
void dl_gossip_name(char out[32]);

/* Reports of nodes: of those of this machine (a folder), or of one and the nodes that it knows (its
 * address). */
typedef struct dl_gossip_peer {
    char name[32], address[288];
    unsigned generation;
    uint64_t round, stepped, step, ignored; /* round: number of rounds contributed to */
    double divergence;
    char digest[33];
    bool done, reached; /* reached: it answered itself just now, or is in this folder */
} dl_gossip_peer;
enum { DL_GOSSIP_PEERS = 65 };
typedef struct dl_gossip_status {
    char run[33];
    uint64_t rounds;
    size_t n;
    dl_gossip_peer peers[DL_GOSSIP_PEERS];
} dl_gossip_status;
DL_MUST_CHECK diloco_status dl_gossip_status_read(dl_gossip_status *out, const char *target);

#endif
