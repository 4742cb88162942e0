/* peers.h - members read contributions from each other (run.peers; docs/hub.md, Between members).
 *
 * Every contribution is in the store first, and stays there (PROTOCOL P8). A member serves a copy,
 * which saves the others a read from the store. If they cannot get it from the member, they read it
 * from the store. So no decision depends on which members can reach each other.
 *
 *     own       dl_peers_keep; upload to the store; dl_peers_show      others may read it now
 *     others'   the owner's heartbeat has its address; dl_peers_read asks there, then the store
 *
 * Keys identify both sides. With a roster of keys it is the member's key, which the run knows.
 * Among trusted members each process makes a key and publishes it in its heartbeat. Bytes from a
 * peer are checked as a store's bytes are. A peer that does not answer, stalls or sends wrong bytes
 * costs one time-out. It is then not asked for run.patience, and twice as long each time after.
 *
 * Serving needs a server, which the program registers with dl_peers_use. A program without one is
 * refused run.peers. */
#ifndef DL_EXCHANGE_PEERS_H
#define DL_EXCHANGE_PEERS_H

#include "base/config.h"
#include "base/json.h"
#include "base/peer_address.h"
#include "base/signature.h"
#include "log/contribution.h"

enum { DL_PEERS_KEPT = 8 }; /* the newest own contributions are served */

/* ---- the program's part ---- */

typedef struct dl_peers_service {
    const dl_config *config;
    const char *dir; /* its folder "run" holds the served objects, by key */
    const dl_signer *signer;
    /* Returns whether the holder of this key may read. Any thread may call it; it may wait for a
     * second. */
    bool (*welcome)(void *user, const dl_public *key);
    void *user;
} dl_peers_service;

typedef struct dl_peers_kind {
    /* Serves until `stop`. `address` is set to the address at which others reach it. `service` and
     * all in it outlive the server. */
    diloco_status (*serve)(void **out, char address[DL_ADDRESS_MAX + 1],
                           const dl_peers_service *service);
    void (*stop)(void *self);
    uint64_t (*served)(const void *self); /* bytes so far */
    /* Opens the objects that the holder of `key` serves at an address. It does not connect yet.
     * Later no call waits longer than `patience` for a byte. */
    diloco_status (*open)(void *self, dl_store **out, const char *address, const dl_public *key,
                          dl_time patience);
} dl_peers_kind;

/* Registers the server of this process; `kind` is static. */
void dl_peers_use(const dl_peers_kind *kind);

/* ---- one process's part ---- */

typedef struct dl_peers dl_peers;

typedef struct dl_peers_args {
    const dl_config *config; /* borrowed, as all pointers here */
    const char *dir;         /* created, and emptied; only this process uses it */
    const dl_signer *signer; /* of a roster of keys; NULL: this process makes a key */
    const char *replica;     /* this one */
    size_t max_members;
    bool reads; /* false: it serves, but reads from the store (committers with a roster of keys) */
} dl_peers_args;

/* Creates the member's server and its lines to peers. Returns DILOCO_EREFUSED if the program has no
 * server, DILOCO_EIO, or the error of `serve`. */
DL_MUST_CHECK diloco_status dl_peers_create(dl_peers **out, const dl_peers_args *args);
void dl_peers_destroy(dl_peers *p); /* NULL is fine */

/* Keep a contribution of this process before its upload, and show it once the store has it: then
 * others may read it. A disk error is a warning. Call both from one thread. */
void dl_peers_keep(dl_peers *p, uint64_t entry, const dl_span *spans, size_t n);
void dl_peers_show(dl_peers *p, uint64_t entry, const dl_generation *generation);

/* Records the key of a member of a roster of keys. Any thread may call this and the functions
 * below. */
void dl_peers_know(dl_peers *p, const char *replica, const dl_public *key);

/* The arguments of dl_contribution_fetch, and: */
typedef struct dl_peers_want {
    uint64_t entry;
    dl_generation generation;
    dl_slot *slot;
    dl_store *store; /* the caller's own handle */
    const dl_contribution_expect *expect;
    double down_bps; /* as measured; 0: not measured yet */
    bool store_only;
    dl_time until;
} dl_peers_want;

/* Reads a contribution as dl_contribution_fetch does, from its owner or else from the store. *why:
 * why it did not come from its owner, one word for the record. NULL: it did, or the owner was not
 * asked. */
DL_MUST_CHECK diloco_status dl_peers_read(dl_peers *p, dl_contribution *facts,
                                          dl_contribution_data *data, const char **reason,
                                          const char **why, const dl_peers_want *want);

typedef struct dl_peers_counts {
    uint64_t from_peers, from_store; /* bytes of contributions, by where they were read */
    uint64_t fell_back;              /* requests to a peer that failed */
    uint64_t sent, received;         /* over the lines to peers, both ways, framing included */
} dl_peers_counts;
dl_peers_counts dl_peers_count(dl_peers *p);

/* Writes the heartbeat's members address, peer_key, from_peers and from_store. */
void dl_peers_report(dl_peers *p, dl_json *heartbeat);

#endif
