/* auth.h - access: bearer tokens, and key pairs for the S3 side, each from a file.
 *
 * Token file: a token a line, 16 to 256 printable characters without spaces. Key file: "ACCESS
 * SECRET" a line. Members file: "KEY" or "NAME KEY" a line, as of run.members. Empty lines and
 * those that begin with '#' are left out. Tokens are kept as SHA-256 and compared in constant time;
 * the time of a comparison shows only their number. */
#ifndef DL_HUB_AUTH_H
#define DL_HUB_AUTH_H

#include "base/signature.h"
#include <stdbool.h>
#include <stddef.h>

/* Tokens and S3 keys each, and characters of one access key or secret. */
enum { DL_AUTH_MAX = 256, DL_S3_KEY_MAX = 128 };

/* A key pair of the S3 side. The secret is kept as text, because SigV4 derives its signing key
 * from it. */
typedef struct dl_hub_s3_key {
    char access[DL_S3_KEY_MAX + 1], secret[DL_S3_KEY_MAX + 1]; /* printable, without spaces */
} dl_hub_s3_key;

/* All credentials of a hub, owned by it. They are read at the start and then only compared, so
 * no lock is needed. */
typedef struct dl_auth {
    unsigned char tokens[DL_AUTH_MAX][32]; /* SHA-256 of each */
    size_t n_tokens;
    dl_hub_s3_key keys[DL_AUTH_MAX]; /* of --s3-keys */
    size_t n_keys;
    dl_public *members; /* [n_members], owned: keys whose certificates give access */
    size_t n_members;
} dl_auth;

/* Each adds to `auth`. DILOCO_EINVAL with the line's number (never its text); DILOCO_ENOENT, …:
 * the file. */
DL_MUST_CHECK diloco_status dl_auth_read_tokens(dl_auth *auth, const char *path);
DL_MUST_CHECK diloco_status dl_auth_read_keys(dl_auth *auth, const char *path);
DL_MUST_CHECK diloco_status dl_auth_read_members(dl_auth *auth, const char *path);
DL_MUST_CHECK diloco_status dl_auth_add_token(dl_auth *auth, const char *token);
/* Warns of a file with a secret that other users may read. NULL: no file. */
void dl_auth_warn_if_shared(const char *path);
void dl_auth_deinit(dl_auth *auth); /* cleanses it */

bool dl_auth_is_member(const dl_auth *auth, const dl_public *key);

/* The value of an Authorization header: "Bearer <token>" with a token that is known. */
bool dl_auth_bearer(const dl_auth *auth, const char *header);
const dl_hub_s3_key *dl_auth_key(const dl_auth *auth, const char *access,
                                 size_t len); /* NULL: none */

#endif
