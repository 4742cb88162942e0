/* auth.c - see auth.h.
 *
 * Each file is read by dl_file_each_line, which calls add_token, add_key or add_member for a
 * line. Its error names the file and the line's number. The text of a line is a secret and is in
 * no message. */
#include "hub/auth.h"

#include "base/file.h"
#include "base/log.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Bounds of the files: bytes of one, members in one, characters of a token. */
enum { FILE_MAX = 1 << 20, MEMBERS_MAX = 4096, TOKEN_MIN = 16, TOKEN_MAX = 256 };

/* Printable ASCII without spaces. */
static bool is_word(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f) return false;
    return len > 0;
}

/* Keep the SHA-256 of the token only, so a dump of the memory does not show it. The shortest
 * length keeps tokens from being guessed. */
static diloco_status add_token(void *context, const char *line, size_t len)
{
    dl_auth *auth = context;
    if (!is_word(line, len) || len < TOKEN_MIN || len > TOKEN_MAX)
        return dl_fail(DILOCO_EINVAL,
                       "a token is %d to %d printable characters without spaces; "
                       "\"openssl rand -hex 32\" makes one",
                       TOKEN_MIN, TOKEN_MAX);
    if (auth->n_tokens == DL_AUTH_MAX)
        return dl_fail(DILOCO_EINVAL, "more than %d tokens", DL_AUTH_MAX);
    SHA256((const unsigned char *)line, len, auth->tokens[auth->n_tokens++]);
    return DILOCO_OK;
}

diloco_status dl_auth_add_token(dl_auth *auth, const char *token)
{
    return add_token(auth, token, strlen(token));
}

/* Split "ACCESS SECRET" at the first blank. '/' is refused in ACCESS because it separates the
 * parts of a signature's scope (s3_claim.c). */
static diloco_status add_key(void *context, const char *line, size_t len)
{
    dl_auth *auth = context;
    size_t access = 0, secret;
    while (access < len && line[access] != ' ' && line[access] != '\t')
        access++;
    for (secret = access; secret < len && (line[secret] == ' ' || line[secret] == '\t');)
        secret++;
    if (access == 0 || access > DL_S3_KEY_MAX || len - secret > DL_S3_KEY_MAX ||
        !is_word(line, access) || !is_word(line + secret, len - secret) ||
        memchr(line, '/', access))
        return dl_fail(DILOCO_EINVAL, "a line is \"ACCESS SECRET\", each at most %d characters",
                       DL_S3_KEY_MAX);
    if (auth->n_keys == DL_AUTH_MAX)
        return dl_fail(DILOCO_EINVAL, "more than %d keys", DL_AUTH_MAX);
    dl_hub_s3_key *key = &auth->keys[auth->n_keys++];
    memset(key, 0, sizeof *key);
    memcpy(key->access, line, access);
    memcpy(key->secret, line + secret, len - secret);
    return DILOCO_OK;
}

/* The key is the last word of the line. A name before it is for people; access is by key alone. */
static diloco_status add_member(void *context, const char *line, size_t len)
{
    dl_auth *auth = context;
    dl_public key, *more;
    size_t at = len;
    while (at && line[at - 1] != ' ' && line[at - 1] != '\t')
        at--;
    if (!dl_public_parse(&key, line + at, len - at))
        return dl_fail(DILOCO_EINVAL,
                       "a line is \"KEY\" or \"NAME KEY\", KEY as diloco id prints it");
    if (auth->n_members == MEMBERS_MAX)
        return dl_fail(DILOCO_EINVAL, "more than %d members", MEMBERS_MAX);
    more = realloc(auth->members, (auth->n_members + 1) * sizeof *more);
    if (!more) return dl_fail(DILOCO_ENOMEM, "out of memory for a member");
    auth->members = more;
    more[auth->n_members++] = key;
    return DILOCO_OK;
}

/* Return DILOCO_EINVAL if a file had only comments. An empty file would otherwise open the hub
 * to every client. */
static diloco_status some(size_t n, const char *path, const char *what)
{
    return n ? DILOCO_OK : dl_fail(DILOCO_EINVAL, "%s holds no %s", path, what);
}

diloco_status dl_auth_read_tokens(dl_auth *auth, const char *path)
{
    DL_TRY(dl_file_each_line(path, FILE_MAX, add_token, auth));
    return some(auth->n_tokens, path, "token");
}

diloco_status dl_auth_read_keys(dl_auth *auth, const char *path)
{
    DL_TRY(dl_file_each_line(path, FILE_MAX, add_key, auth));
    return some(auth->n_keys, path, "key");
}

diloco_status dl_auth_read_members(dl_auth *auth, const char *path)
{
    DL_TRY(dl_file_each_line(path, FILE_MAX, add_member, auth));
    return some(auth->n_members, path, "member");
}

/* A warning and no error: platforms mount secrets that every user of a container may read. */
void dl_auth_warn_if_shared(const char *path)
{
    struct stat st;
    if (!path || stat(path, &st) || !S_ISREG(st.st_mode) || !(st.st_mode & 077)) return;
    dl_log(DILOCO_LOG_WARN, "%s holds a secret and others may read it (mode %04o): chmod 600 it",
           path, (unsigned)st.st_mode & 07777);
}

void dl_auth_deinit(dl_auth *auth)
{
    free(auth->members);
    OPENSSL_cleanse(auth, sizeof *auth);
}

bool dl_auth_is_member(const dl_auth *auth, const dl_public *key)
{
    for (size_t i = 0; i < auth->n_members; i++)
        if (dl_public_equal(&auth->members[i], key)) return true;
    return false;
}

/* Compare with every token, also after a match, so the time does not show which token matched.
 * The header's scheme is matched in any case of letters (RFC 9110, 11.1). */
bool dl_auth_bearer(const dl_auth *auth, const char *header)
{
    static const char scheme[] = "Bearer ";
    unsigned char given[32];
    bool known = false;
    if (!header || strncasecmp(header, scheme, sizeof scheme - 1) != 0) return false;
    header += sizeof scheme - 1;
    SHA256((const unsigned char *)header, strlen(header), given);
    for (size_t i = 0; i < auth->n_tokens; i++)
        known |= CRYPTO_memcmp(given, auth->tokens[i], sizeof given) == 0;
    return known;
}

/* An access key is public, so it is compared in the plain way. Only its secret is compared in
 * constant time (s3_sign.c). */
const dl_hub_s3_key *dl_auth_key(const dl_auth *auth, const char *access, size_t len)
{
    for (size_t i = 0; i < auth->n_keys; i++)
        if (strlen(auth->keys[i].access) == len && !memcmp(auth->keys[i].access, access, len))
            return &auth->keys[i];
    return NULL;
}
