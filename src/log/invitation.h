/* invitation.h - an invitation: the owner of a run lets one replica in.
 *
 *     diloco-invitation-1.<run>.<id>.<expires>.<owner's key>.<signature>
 *
 * One line of text, in hex and decimal, expires in seconds since 1970. Its holder may use it
 * once, so until then it is a secret. docs/formats.md has the statement that is signed. */
#ifndef DL_LOG_INVITATION_H
#define DL_LOG_INVITATION_H

#include "log/signed.h"

enum { DL_INVITATION_TEXT = 320 };

typedef struct dl_invitation {
    char run[DL_HASH_HEX + 1];
    char id[DL_HASH_HEX + 1]; /* random; names the object that is created when it is used */
    uint64_t expires;         /* seconds since 1970 */
    dl_public owner;
    dl_signature signature;
} dl_invitation;

/* Makes a new one. Returns DILOCO_EIO if there are no random bytes. */
DL_MUST_CHECK diloco_status dl_invitation_make(char out[DL_INVITATION_TEXT], const char *run,
                                               uint64_t expires, const dl_signer *owner);
/* Reads an untrusted text. Returns DILOCO_EPROTO if it is no invitation or its owner did not sign
 * it. The caller checks that the owner is the run's, and the run this one. No error contains any of
 * the text. */
DL_MUST_CHECK diloco_status dl_invitation_read(dl_invitation *out, const char *text, size_t len);

#endif
