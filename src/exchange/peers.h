/* peers.h - members read contributions from each other (run.peers; docs/hub.md, Between members).
 *
 * The store has every contribution first, and has it always (PROTOCOL P8): what a member serves is
 * a copy that saves the others a reading, and what they cannot get from it they read from the
 * store. So nothing that is decided depends on who could reach whom.
 *
 *     own       dl_peers_keep; put into the store; dl_peers_show      others may read it now
 *     others'   the owner's heartbeat says where it is; dl_peers_read asks there, then the store
 *
 * Who talks to whom is known by keys on both sides: in a roster of keys the member's own, which the
 * run knows; among the trusted one that each life makes for itself and tells in its heartbeat. What
 * a peer sends is checked as a store's bytes are. One that does not answer, stalls or lies costs
 * one time-out, then is left in peace, for run.patience and twice as long each time after.
 *
 * Serving takes a server, which is the program's: it names one (dl_peers_use), and a program that
 * has none is refused run.peers. */
#ifndef DL_EXCHANGE_PEERS_H
#define DL_EXCHANGE_PEERS_H

#include "base/config.h"
#include "base/json.h"
#include "base/peer_address.h"
#include "base/signature.h"
#include "log/contribution.h"

enum { DL_PEERS_KEPT = 8 }; /* own contributions that are served: the last */

/* ---- what a program brings ---- */

typedef struct dl_peers_service {
    const dl_config *config;
    const char *dir; /* its folder "run" holds what is served, by key */
    const dl_signer *signer;
    /* Who shows this key may read; else nobody. Any thread; may wait for a second. */
    bool (*welcome)(void *user, const dl_public *key);
    void *user;
} dl_peers_service;

typedef struct dl_peers_kind {
    /* Serve, until the stop; `address`: what others reach it by. `service` and all in it outlive
     * it. */
    diloco_status (*serve)(void **out, char address[DL_ADDRESS_MAX + 1],
                           const dl_peers_service *service);
    void (*stop)(void *self);
    uint64_t (*served)(const void *self); /* bytes so far */
    /* What who holds `key` serves at an address. Nobody is asked yet; later nothing waits longer
     * than `patience` for a byte. */
    diloco_status (*open)(void *self, dl_store **out, const char *address, const dl_public *key,
                          dl_time patience);
} dl_peers_kind;

/* For this process, from here on; static. */
void dl_peers_use(const dl_peers_kind *kind);

/* ---- of one life ---- */

typedef struct dl_peers dl_peers;

typedef struct dl_peers_args {
    const dl_config *config; /* borrowed, as all */
    const char *dir;         /* made, and emptied: this life's alone */
    const dl_signer *signer; /* of a roster of keys; NULL: a key of this life's own */
    const char *replica;     /* this one */
    size_t max_members;
    bool reads; /* false: it serves, and reads from the store (committers of rosters of keys) */
} dl_peers_args;

/* DILOCO_EREFUSED: the program has no server. What `serve` fails with; DILOCO_EIO. */
DL_MUST_CHECK diloco_status dl_peers_create(dl_peers **out, const dl_peers_args *args);
void dl_peers_destroy(dl_peers *p); /* NULL is fine */

/* A contribution of this life, before it is put; and once the store has it: others may read it. A
 * disk that does not take it is a warning. One thread. */
void dl_peers_keep(dl_peers *p, uint64_t entry, const dl_span *spans, size_t n);
void dl_peers_show(dl_peers *p, uint64_t entry, const dl_life *life);

/* This key is that of a member of a roster of keys. Any thread, as what follows. */
void dl_peers_know(dl_peers *p, const char *replica, const dl_public *key);

/* What dl_contribution_fetch takes, and: */
typedef struct dl_peers_want {
    uint64_t entry;
    dl_life life;
    dl_slot *slot;
    dl_store *store; /* the caller's own handle */
    const dl_contribution_expect *expect;
    double down_bps; /* as measured; 0: not yet */
    bool store_only;
    dl_time until;
} dl_peers_want;

/* As dl_contribution_fetch, from its owner or else from the store. *why: why not from its owner, a
 * word for the record; NULL: from it, or it was not asked. */
DL_MUST_CHECK diloco_status dl_peers_read(dl_peers *p, dl_contribution *facts,
                                          dl_contribution_data *data, const char **reason,
                                          const char **why, const dl_peers_want *want);

typedef struct dl_peers_counts {
    uint64_t from_peers, from_store; /* bytes of contributions, by where they were read */
    uint64_t fell_back;              /* readings that a peer was asked for in vain */
    uint64_t sent, received;         /* over the lines to peers, both ways, framing included */
} dl_peers_counts;
dl_peers_counts dl_peers_count(dl_peers *p);

/* Members of a heartbeat: address, peer_key, from_peers, from_store. */
void dl_peers_tell(dl_peers *p, dl_json *heartbeat);

#endif
