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

typedef struct dl_client_store {
    dl_store *store; /* borrowed */
    char run[DL_HASH_HEX + 1];
    dl_hash layout;            /* dl_client_layout of: */
    const dl_private *vectors; /* [n_vectors] borrowed, as what they point to */
    size_t n_vectors;
    dl_buf object; /* the last object read */
} dl_client_store;

typedef struct dl_client_facts {
    uint64_t client, entry;
    dl_hash body;                /* of the contribution that it was made with */
    uint64_t steps, next_sample; /* completed in all; of its shard */
} dl_client_facts;

/* The digest that distinguishes states: model, optimizer, schedule, and the vectors by name and
 * length. */
dl_hash dl_client_layout(const dl_config *config, dl_hash manifest, const dl_private *vectors,
                         size_t n);

void dl_client_store_init(dl_client_store *out, dl_store *store, const char *run, dl_hash layout,
                          const dl_private *vectors, size_t n_vectors);
void dl_client_store_deinit(dl_client_store *s);

/* The vectors as they are. The same again is fine. */
DL_MUST_CHECK diloco_status dl_client_save(dl_client_store *s, const dl_client_facts *facts,
                                           dl_time until);

/* Into the vectors; facts' client, entry and body say which. DILOCO_ENOENT: it is not there;
 * DILOCO_EPROTO: truncated, damaged, or another's; DILOCO_EDIFFERS: of another model, optimizer or
 * schedule. Nothing is written to the vectors then. */
DL_MUST_CHECK diloco_status dl_client_load(dl_client_store *s, dl_client_facts *facts,
                                           dl_time until);

/* Remove the states of this client that no entry can ask for again: those before facts' entry, and
 * of that entry all others. */
DL_MUST_CHECK diloco_status dl_client_collect(dl_client_store *s, const dl_client_facts *facts,
                                              dl_time until);

#endif
