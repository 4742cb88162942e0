/* wire.h - the lines of a node to the others: two threads for each address, and one keeper.
 *
 *     keeper   writes this node's heartbeat (me/beat.json). It looks for addresses in the
 * heartbeats under its own hb/, in the folders of this machine's nodes, and in swarm.bootstrap.
 *     line     its listener announces this node to its peer (hb/<name> there), and reads the peer's
 *              heartbeat and members. Its fetcher reads the objects that the node wants of it.
 *
 * The two have a connection each, so no heartbeat delays an object. The peer's hub holds a request
 * for an object that is not there yet, and replies when it is. The request ends early once its
 * object would not be taken any more. Lines do not wait for each other: n peers with a delay cost
 * one round trip, and a stalled peer delays no other. Everything that a line reads is untrusted. A
 * heartbeat has at most DL_BEAT_MAX bytes, a list of known nodes is read up to DL_NODE_MAX, and an
 * object up to the largest size of its form. Only whole, checked objects are given to the node. */
#ifndef DL_GOSSIP_WIRE_H
#define DL_GOSSIP_WIRE_H

#include "gossip/mix.h"

typedef struct dl_wire dl_wire;

typedef struct dl_wire_args {
    dl_node *node; /* touched only between dl_wire_lock and _unlock from dl_wire_create on */
    const dl_mix *mix;
    const char *home;      /* folder store of this node's own objects */
    const char *beside;    /* folder of the nodes of this machine */
    const char *bootstrap; /* addresses with commas; "" */
    bool tls;              /* addresses without a scheme are https */
    dl_time heartbeat;
    const char *link; /* run.link: lines are seen through it, the own folder is not */
    void (*report)(void *user, const char *key); /* an own object has changed */
    void *user;
} dl_wire_args;

/* Starts the keeper; lines follow as addresses are found. All arguments are borrowed until
 * dl_wire_destroy. Returns DILOCO_ENOMEM, or DILOCO_EINVAL for an invalid address. */
DL_MUST_CHECK diloco_status dl_wire_create(dl_wire **out, const dl_wire_args *args);
/* Aborts all requests in flight and joins the threads. Call it without the lock. NULL is fine. */
void dl_wire_destroy(dl_wire *wire);

void dl_wire_lock(dl_wire *wire);
void dl_wire_unlock(dl_wire *wire);
/* With the lock: reports that the node has changed. Lines look again for wanted objects, and the
 * keeper writes the heartbeat. */
void dl_wire_changed(dl_wire *wire);
/* With the lock, which is released meanwhile: waits until a line has brought something, or until
 * `until`. It may return earlier. */
void dl_wire_wait(dl_wire *wire, dl_time until);

/* With the lock: the received object of a member, valid while the node's phase is STEP or AGREE. */
dl_mix_input dl_wire_input(const dl_wire *wire, size_t member);
/* With the lock: a member's address; "" when its line is gone. */
void dl_wire_address(char out[DL_ADDRESS_MAX + 1], const dl_wire *wire, size_t member);
/* With the lock: over all lines so far. */
void dl_wire_traffic(const dl_wire *wire, uint64_t *sent, uint64_t *received);

#endif
