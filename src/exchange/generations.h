/* generations.h - a replica's generations: gen/<replica>.<g>, created once each. A process that
 * starts claims the next one, and every object it writes names it. */
#ifndef DL_EXCHANGE_GENERATIONS_H
#define DL_EXCHANGE_GENERATIONS_H

#include "log/runfile.h"

/* The newest life of a replica. DILOCO_ENOENT: it never had one. */
DL_MUST_CHECK diloco_status dl_run_newest_life(dl_life *out, dl_store *store, const char *replica);

/* In a run of keys: the newest generation of a replica that this key has signed. DILOCO_ENOENT:
 * none. */
DL_MUST_CHECK diloco_status dl_run_newest_signed(dl_life *out, dl_store *store, const char *replica,
                                                 const dl_runfile *run, const dl_public *key);

/* gen/<replica>.<g>, g the smallest number after all that are taken, in a run of keys the smallest
 * free one after all that the signer has signed; with run.single_committer
 * one that nobody else will choose in the same moment, since the store would let both (P26).
 * DILOCO_EFENCED: a new name (config's first_life), which another replica took since it was
 * chosen, or in this moment. Where objects are signed, DILOCO_EREFUSED: this key may not be that
 * replica (keyring.h); config says where invitations are. */
DL_MUST_CHECK diloco_status dl_run_claim_life(dl_life *out, dl_store *store, const char *replica,
                                              const dl_runfile *run, const dl_config *config,
                                              const dl_signer *signer);

/* The first free generation from `from` on, for a process of a run of keys that goes on as it:
 * somebody has created a name of the one that it has. DILOCO_EFENCED: its key has signed a later
 * one than `self`. *out is the last that was tried, on error, too. */
DL_MUST_CHECK diloco_status dl_run_claim_next(dl_life *out, dl_store *store, const dl_life *self,
                                              uint32_t from, const dl_runfile *run,
                                              const dl_signer *signer);

/* DILOCO_EFENCED, with the words for it. */
DL_MUST_CHECK diloco_status dl_run_refuse_twin(const char *replica, dl_store *store);

/* Is it not the first of its replica? */
bool dl_run_has_lived(const dl_life *life, const dl_config *config);

#endif
