/* keyring.h - maps a replica's name to its key, in a run whose objects are signed.
 *
 *     closed    the key that run.json lists
 *     open      the key that signed gen/<replica>.0000
 *     invited   the same, if that generation names an invitation, invite/<id> holds the invitation,
 *               the same key signed that for this replica, and the run's owner issued it
 *
 * All of it is created once and never deleted, so every replica finds the same key at any time.
 *
 * These objects cannot show whether an invitation had expired, since no writer can prove the time
 * of its writes. A committer decides it by its own clock when it first meets the replica. It signs
 * its decision in admit/<replica>. Only committers read that; the members of an entry that they
 * committed have been admitted. */
#ifndef DL_LOG_KEYRING_H
#define DL_LOG_KEYRING_H

#include "log/invitation.h"
#include "log/runfile.h"

typedef struct dl_keyring dl_keyring; /* one thread at a time */

/* signer: this replica's; it admits others if it is a committer's. NULL: a reader. All pointers are
 * borrowed. */
DL_MUST_CHECK diloco_status dl_keyring_create(dl_keyring **out, dl_store *store,
                                              const dl_runfile *run, const dl_signer *signer);
void dl_keyring_destroy(dl_keyring *ring); /* NULL is fine */

/* Finds the key of a replica, valid until the next call. Returns DILOCO_OK with NULL if it has none
 * here; *why, valid until the next call, has the reason. Asks the store once per replica. Returns
 * the store's errors as they are. */
DL_MUST_CHECK diloco_status dl_keyring_find(const dl_public **out, const char **why,
                                            dl_keyring *ring, const char *replica, dl_time until);

/* dl_members_admits returns whether this key admits the replicas that it meets. A committer then
 * calls dl_keyring_meet from time to time, which looks for new names in gen/. So no invitation
 * expires during its replica's first round. Returns the store's errors as they are. */
bool dl_members_admits(const dl_runfile *run, const dl_signer *signer);
DL_MUST_CHECK diloco_status dl_keyring_meet(dl_keyring *ring, dl_time until);

/* Sets *out to whether the object of that generation in gen/ is valid and signed by that key.
 * Returns the store's errors as they are. */
DL_MUST_CHECK diloco_status dl_members_has_generation(bool *out, dl_store *store,
                                                      const dl_runfile *run,
                                                      const dl_generation *generation,
                                                      const dl_public *key, dl_time until);

/* Returns DILOCO_EREFUSED if no line of run.invitation is for this run, whatever its roster. So a
 * store cannot lead an invited replica into another run. */
DL_MUST_CHECK diloco_status dl_members_fits(const dl_runfile *run, const dl_config *config);

/* Call it before a generation is claimed: it checks whether this key may be that replica. Returns
 * DILOCO_EREFUSED if not; the text has the reason and what to do. *invitation: in an invited run,
 * for a new name, the first unused line of run.invitation; "" if none is needed. */
DL_MUST_CHECK diloco_status dl_members_may_join(char invitation[DL_INVITATION_TEXT],
                                                dl_store *store, const dl_runfile *run,
                                                const dl_config *config, const dl_signer *signer,
                                                const char *replica, dl_time until);
/* Call it once the generation is created: it marks the invitation as used. Returns DILOCO_EREFUSED
 * if another replica used it first. */
DL_MUST_CHECK diloco_status dl_members_use_invitation(dl_store *store, const dl_runfile *run,
                                                      const dl_signer *signer, const char *replica,
                                                      const char *invitation, dl_time until);

#endif
