/* client.h - the private state of a logical client (docs/federated.md): its inner optimizer's
 * vectors and counters, and the place in its stream of samples.
 *
 * It is in a store of its own that only workers can read (PROTOCOL P24), as
 * st/<run>/<client>/<e>.<digest>. It is made with the contribution to entry e whose body has that
 * digest, and durable before it (P16). So the log says which state holds: that of the newest entry
 * that counted the client; an uncounted contribution has no effect on its client either. */
#ifndef DL_CLIENTS_CLIENT_H
#define DL_CLIENTS_CLIENT_H

#include "state/private_state.h"
#include "store/store.h"

/* Where the states are, and the arrays that one is loaded into and saved from. */
typedef struct dl_client_store {
    dl_store *store;           /* borrowed */
    char run[DL_HASH_HEX + 1]; /* the run's identifier */
    dl_hash layout;            /* dl_client_layout of the run and the vectors */
    const dl_private *vectors; /* [n_vectors] borrowed, and so are the arrays they point to */
    size_t n_vectors;
    dl_buf object; /* owned; the last object read */
} dl_client_store;

/* One state of one client. The first three members are its name. */
typedef struct dl_client_facts {
    /* The client's number, from 1, and the entry that the contribution was made for. */
    uint64_t client, entry;
    dl_hash body; /* digest of that contribution's body */
    /* Optimizer steps completed over all rounds, and the position in the stream of its shard, which
     * counts over all epochs. */
    uint64_t steps, next_sample;
} dl_client_facts;

/* Returns the digest that distinguishes states which do not fit each other. It covers the model's
 * manifest, the inner optimizer, the schedule, and the vectors' names and lengths. */
dl_hash dl_client_layout(const dl_config *config, dl_hash manifest, const dl_private *vectors,
                         size_t n);

/* Borrows the store and the vectors until dl_client_store_deinit. `run` is copied. */
void dl_client_store_init(dl_client_store *out, dl_store *store, const char *run, dl_hash layout,
                          const dl_private *vectors, size_t n_vectors);
void dl_client_store_deinit(dl_client_store *s);

/* Saves the vectors as they are, under the name that `facts` yields. Returns DILOCO_OK if the state
 * exists already, and replaces a damaged one. Also returns the store's errors. */
DL_MUST_CHECK diloco_status dl_client_save(dl_client_store *s, const dl_client_facts *facts,
                                           dl_time until);

/* Loads the state that facts' client, entry and body name into the vectors, and sets facts' steps
 * and next_sample. Returns DILOCO_ENOENT if it does not exist, DILOCO_EPROTO if it is truncated,
 * damaged or another's, and DILOCO_EDIFFERS if it is of another model, optimizer, schedule or
 * format version. After an error the vectors and the facts are unchanged. */
DL_MUST_CHECK diloco_status dl_client_load(dl_client_store *s, dl_client_facts *facts,
                                           dl_time until);

/* Removes the states of this client that no entry can ask for again: those of entries before facts'
 * entry, and all others of that entry. */
DL_MUST_CHECK diloco_status dl_client_collect(dl_client_store *s, const dl_client_facts *facts,
                                              dl_time until);

#endif
