/* invitation.c - see invitation.h. */
#include "log/invitation.h"

#include "base/rng.h"
#include "base/text.h"
#include "log/fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char magic[] = "diloco-invitation-1";
enum { N_PARTS = 6, SIGNED_MAX = 128 };

/* The signed hash: the id and the expiry, beside the run. The run is in the statement, so an
 * invitation is valid for one run only. */
static diloco_status hash_of(dl_strong *out, const char *id, uint64_t expires)
{
    char text[SIGNED_MAX];
    const int n = snprintf(text, sizeof text, "%s %" PRIu64, id, expires);
    return dl_strong_bytes(out, text, (size_t)n);
}

/* The text has six parts with dots in between: magic, run, id, expiry, owner's key and signature.
 * It is a bearer secret: anyone who has it may use it once. */
diloco_status dl_invitation_make(char out[DL_INVITATION_TEXT], const char *run, uint64_t expires,
                                 const dl_signer *owner)
{
    unsigned char random[DL_HASH_HEX / 2];
    char id[DL_HASH_HEX + 1], signature_hex[DL_SIGNATURE_HEX + 1], key_hex[2 * 32 + 1];
    dl_strong hash;
    dl_signature signature;
    const dl_statement what = {.kind = "invitation", .run = run};
    DL_TRY(dl_random_bytes(random, sizeof random));
    dl_hex(id, random, sizeof random);
    DL_TRY(hash_of(&hash, id, expires));
    DL_TRY(dl_statement_sign(&signature, owner, &what, &hash));
    dl_hex(key_hex, dl_signer_public(owner)->bytes, sizeof dl_signer_public(owner)->bytes);
    dl_hex(signature_hex, signature.bytes, sizeof signature.bytes);
    const int n = snprintf(out, DL_INVITATION_TEXT, "%s.%s.%s.%" PRIu64 ".%s.%s", magic, run, id,
                           expires, key_hex, signature_hex);
    DL_ASSERT(n > 0 && n < DL_INVITATION_TEXT);
    return DILOCO_OK;
}

typedef struct part {
    const char *at;
    size_t len;
} part;

/* Returns false unless there are exactly N_PARTS parts. The parts refer to `text`. */
static bool split(part parts[N_PARTS], const char *text, size_t len)
{
    size_t n = 0;
    for (const char *at = text, *end = text + len; n < N_PARTS;) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        parts[n++] = (part){at, (size_t)((dot ? dot : end) - at)};
        if (!dot) return n == N_PARTS;
        at = dot + 1;
    }
    return false;
}

/* Copies an id of hex digits; another length or character returns false. */
static bool take_hex(char out[DL_HASH_HEX + 1], part p)
{
    unsigned char ignored[DL_HASH_HEX / 2];
    if (!dl_unhex(ignored, sizeof ignored, p.at, p.len)) return false;
    memcpy(out, p.at, p.len);
    out[p.len] = '\0';
    return true;
}

/* The length is checked first, so every part fits its field. */
static bool parse(dl_invitation *out, const char *text, size_t len)
{
    part p[N_PARTS];
    return len < DL_INVITATION_TEXT && split(p, text, len) && p[0].len == sizeof magic - 1 &&
           !memcmp(p[0].at, magic, p[0].len) && take_hex(out->run, p[1]) &&
           take_hex(out->id, p[2]) && dl_text_to_u64(&out->expires, p[3].at, p[3].len) &&
           dl_unhex(out->owner.bytes, sizeof out->owner.bytes, p[4].at, p[4].len) &&
           dl_unhex(out->signature.bytes, sizeof out->signature.bytes, p[5].at, p[5].len);
}

/* It checks that the named owner signed it. Whether that is this run's owner is the caller's
 * check. */
diloco_status dl_invitation_read(dl_invitation *out, const char *text, size_t len)
{
    dl_strong hash;
    if (!parse(out, text, len))
        return dl_fail(DILOCO_EPROTO, "that is no invitation: diloco invite makes one");
    const dl_statement what = {.kind = "invitation", .run = out->run};
    DL_TRY(hash_of(&hash, out->id, out->expires));
    if (dl_statement_holds(&out->signature, &out->owner, &what, &hash)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "that invitation is not signed by the owner that it names");
}
