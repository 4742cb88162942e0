/* generations.h - a replica's generations: gen/<replica>.<g>, created once each. A process that
 * starts claims the next one, and every object it writes names it. */
#ifndef DL_EXCHANGE_GENERATIONS_H
#define DL_EXCHANGE_GENERATIONS_H

#include "log/runfile.h"

/* Finds the newest generation of a replica. Returns DILOCO_ENOENT if it never had one. */
DL_MUST_CHECK diloco_status dl_run_newest_generation(dl_generation *out, dl_store *store,
                                                     const char *replica);

/* In a run with keys: finds the newest generation of a replica that this key has signed. Returns
 * DILOCO_ENOENT if it signed none. */
DL_MUST_CHECK diloco_status dl_run_newest_signed(dl_generation *out, dl_store *store,
                                                 const char *replica, const dl_runfile *run,
                                                 const dl_public *key);

/* Claims gen/<replica>.<g>. g is the smallest number after all existing ones; in a run with keys,
 * the smallest free one after all that the signer has signed. With run.single_committer it is a
 * number that no other process chooses at the same moment, since the store would accept both (P26).
 * Returns DILOCO_EFENCED if the name is new (config's first_generation) and another replica claimed
 * it first. If objects are signed, returns DILOCO_EREFUSED if this key may not be that replica
 * (keyring.h); config names the file of invitations. */
DL_MUST_CHECK diloco_status dl_run_claim_generation(dl_generation *out, dl_store *store,
                                                    const char *replica, const dl_runfile *run,
                                                    const dl_config *config,
                                                    const dl_signer *signer);

/* Follows a claim of a run with keys, since the claim's listing may have been stale. Lists again,
 * and claims the next number if the signer has a later one there. Returns DILOCO_EUNREACHABLE if
 * the listing does not show the claim yet: repeat this call later. *claimed is right on error, too.
 */
DL_MUST_CHECK diloco_status dl_run_confirm_claim(dl_generation *claimed, dl_store *store,
                                                 const dl_runfile *run, const dl_signer *signer);

/* Claims the first free generation from `from` on, for a running process of a run with keys whose
 * own object name holds junk. Returns DILOCO_EFENCED if its key has signed a later generation than
 * `self`. *out is the last one that was tried, on error too. */
DL_MUST_CHECK diloco_status dl_run_claim_next(dl_generation *out, dl_store *store,
                                              const dl_generation *self, uint32_t from,
                                              const dl_runfile *run, const dl_signer *signer);

/* Returns DILOCO_EFENCED and sets the error text. */
DL_MUST_CHECK diloco_status dl_run_refuse_twin(const char *replica, dl_store *store);

/* Returns whether it is not the first generation of its replica. */
bool dl_run_is_restart(const dl_generation *generation, const dl_config *config);

#endif
