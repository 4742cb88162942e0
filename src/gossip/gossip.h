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

/* Runs one node to the end of the run, as diloco_train does a replica. The folder run.store has
 * the run already. name and hooks are borrowed; hooks may be NULL.
 *
 * Returns DILOCO_EUNREACHABLE if fewer than swarm.min_peers nodes were found in run.start_timeout,
 * or if none of the agreements was made. Returns DILOCO_EINTERRUPTED if it was asked to stop; the
 * same call then resumes the node. Also returns the errors of the folder and of training. */
DL_MUST_CHECK diloco_status dl_gossip_train(const dl_config *config, const char *name,
                                            const diloco_train_hooks *hooks);

/* Copies run.json of the run that the node at address `peer` takes part in into the folder `store`,
 * which is made. tls: an address without a scheme is https. A second call with the same run is
 * fine. Returns DILOCO_EINVAL if `peer` is no address, DILOCO_EREFUSED if its run has a log, and
 * DILOCO_EDIFFERS if the folder has another run. */
DL_MUST_CHECK diloco_status dl_gossip_take_run(const char *store, const char *peer, bool tls);

/* Draws a name for a node: "n" and 8 random hexadecimal digits. It is not compared with the names
 * in use; a collision is an error when the node starts. */
void dl_gossip_name(char out[32]);

/* One node's report about itself, or about a node that did not answer. */
typedef struct dl_gossip_peer {
    char name[32], address[288];
    unsigned generation;
    uint64_t round, stepped, step, ignored; /* round: number of rounds contributed to */
    double divergence;                      /* NAN: not measured */
    char digest[33];
    bool done, reached; /* reached: it answered itself just now */
} dl_gossip_peer;
enum { DL_GOSSIP_PEERS = 65 }; /* DL_NODE_MAX and the node that is asked */
typedef struct dl_gossip_status {
    char run[33];    /* the run's identifier */
    uint64_t rounds; /* that the run has in all */
    size_t n;
    dl_gossip_peer peers[DL_GOSSIP_PEERS];
} dl_gossip_status;
/* Reads the reports of the nodes of this machine if `target` is a folder. Each node is asked at its
 * address; the report of one that does not answer is read from its folder. If `target` is an
 * address, reads the report of the node there and those of the nodes that it knows. Each request
 * may take 10 s. Returns the errors of the first request; later nodes that do not answer are not
 * `reached`. */
DL_MUST_CHECK diloco_status dl_gossip_status_read(dl_gossip_status *out, const char *target);

#endif
