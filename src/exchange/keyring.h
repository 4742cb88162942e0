/* keyring.h - which key a replica's name has, in a run whose objects are signed.
 *
 *     closed    the one that run.json lists
 *     open      the one that signed gen/<replica>.0000
 *     invited   the same, when that life names an invitation, invite/<id> holds the invitation and
 *               the same key signed it for this replica, and its owner is the run's
 *
 * All of it is created once and never deleted, so everybody finds the same key at any time.
 *
 * Whether an invitation had expired cannot be seen from such objects, since nobody can prove when
 * he wrote; a committer decides it by its own clock when it first meets the replica, and what it
 * decided stands in admit/<replica>, signed. Only committers ask for it: what they committed has
 * been admitted. */
#ifndef DL_EXCHANGE_KEYRING_H
#define DL_EXCHANGE_KEYRING_H

#include "log/invitation.h"
#include "log/runfile.h"

typedef struct dl_keyring dl_keyring; /* one thread at a time */

/* signer: this replica's, which admits if it is a committer's; NULL: a reader. All borrowed. */
DL_MUST_CHECK diloco_status dl_keyring_create(dl_keyring **out, dl_store *store,
                                              const dl_runfile *run, const dl_signer *signer);
void dl_keyring_destroy(dl_keyring *ring); /* NULL is fine */

/* The key of a replica, valid until the next call; NULL with DILOCO_OK: it has none here, and
 * *why (valid until the next call) says so. Asks the store once a replica. Store errors as they
 * are. */
DL_MUST_CHECK diloco_status dl_keyring_find(const dl_public **out, const char **why,
                                            dl_keyring *ring, const char *replica, dl_time until);

/* Does this key admit whom it meets? A committer then looks at who is new in gen/ from time to
 * time, so that nobody's invitation expires while its first round lasts. Store errors as they are.
 */
bool dl_members_admits(const dl_runfile *run, const dl_signer *signer);
DL_MUST_CHECK diloco_status dl_keyring_meet(dl_keyring *ring, dl_time until);

/* Is gen/<life> signed by that key, as that? Store errors as they are. */
DL_MUST_CHECK diloco_status dl_members_lived(bool *out, dl_store *store, const dl_runfile *run,
                                             const dl_life *life, const dl_public *key,
                                             dl_time until);

/* A store cannot pass another run off on who was invited to one: DILOCO_EREFUSED where none of
 * run.invitation is to this run, whatever its roster. */
DL_MUST_CHECK diloco_status dl_members_fits(const dl_runfile *run, const dl_config *config);

/* Before a life is claimed: may this key be that replica? DILOCO_EREFUSED says why not and what to
 * do. *invitation: in an invited run, for a name that nobody has yet, the first of run.invitation
 * that is not used; "" where none is needed. */
DL_MUST_CHECK diloco_status dl_members_may_join(char invitation[DL_INVITATION_TEXT],
                                                dl_store *store, const dl_runfile *run,
                                                const dl_config *config, const dl_signer *signer,
                                                const char *replica, dl_time until);
/* Once the life stands: its invitation is used. DILOCO_EREFUSED: somebody else was quicker. */
DL_MUST_CHECK diloco_status dl_members_use_invitation(dl_store *store, const dl_runfile *run,
                                                      const dl_signer *signer, const char *replica,
                                                      const char *invitation, dl_time until);

#endif
