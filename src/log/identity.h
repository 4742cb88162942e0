/* identity.h - membership of a run: the member "identity" of run.json (docs/formats.md).
 *
 *     trusted   every process that reaches the store; nothing is signed (there is no such member)
 *     open      every holder of a key; a name belongs to the key of its first generation
 *     invited   every holder of an invitation of the owner's, one name each
 *     closed    the names and keys that run.json lists
 *
 * In all but the first, run.json is signed by its *owner*, which created it, and only the
 * listed *committers* create entries and snapshots. So run.json and the entry's own bytes decide
 * whether it counts (PROTOCOL P7). By default the committers of a closed roster are all members, of
 * the others the owner. keyring.h has the rest: which key a name has. */
#ifndef DL_LOG_IDENTITY_H
#define DL_LOG_IDENTITY_H

#include "base/config.h"
#include "base/json.h"
#include "log/signed.h"

enum { DL_N_POLICIES = DL_CLOSED + 1 }; /* of dl_policy, run.roster */

typedef struct dl_named_key {
    char replica[DL_REPLICA_MAX + 1];
    dl_public key;
} dl_named_key;

typedef struct dl_identity {
    dl_policy policy;
    dl_public owner;
    dl_strong theta0;      /* of the bytes of theta0/<digest>.safetensors */
    dl_public *committers; /* [n_committers], owned */
    size_t n_committers;
    dl_named_key *members; /* [n_members], owned; of a closed roster */
    uint32_t *by_name;     /* [n_members], owned: their indices in the order of the names */
    size_t n_members;
} dl_identity;

void dl_identity_deinit(dl_identity *identity);

/* Makes the identity that config describes (run.roster, run.members, run.committers), owned by that
 * key. Returns DILOCO_EINVAL with the file's line, or DILOCO_ENOENT of the file. */
DL_MUST_CHECK diloco_status dl_identity_make(dl_identity *out, const dl_config *config,
                                             const dl_signer *owner);

/* Write the member "identity" of the open object, unless the run has no keys, and read it. */
void dl_identity_write(dl_json *j, const dl_identity *identity);
DL_MUST_CHECK diloco_status dl_identity_read(dl_identity *out, dl_json_value root);

/* Returns the key of a name in a closed roster, or NULL if it is not listed. */
const dl_public *dl_identity_member(const dl_identity *identity, const char *replica);
/* Returns whether this key may create entries as this replica. */
bool dl_identity_may_commit(const dl_identity *identity, const dl_public *key, const char *replica);

#endif
