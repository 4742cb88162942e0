/* signed.c - the two members are written compactly, so they are always the same bytes before the
 * seal, and finding them needs no parsing. */
#include "log/signed.h"

#include "log/fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char signer_head[] = ",\"signer\":\"", signature_head[] = "\",\"signature\":\"";
enum {
    STATEMENT_MAX = 512,
    KEY = DL_PUBLIC_TEXT - 1,
    SIGNER_HEAD = sizeof signer_head - 1,
    SIGNATURE_HEAD = sizeof signature_head - 1,
    /* from the comma in front of "signer" to the seal's comma */
    PROOF = SIGNER_HEAD + KEY + SIGNATURE_HEAD + DL_SIGNATURE_HEX + 1
};

/* The signed text has one line for each part, none of which may contain a newline. So two different
 * statements never have the same text. */
static size_t statement_text(char out[STATEMENT_MAX], const dl_statement *s, const dl_strong *hash)
{
    char hex[DL_STRONG_HEX + 1], generation[DL_GENERATION_TEXT] = "-";
    if (s->generation) dl_generation_text(generation, s->generation);
    dl_hex(hex, hash->bytes, sizeof hash->bytes);
    const int n = snprintf(out, STATEMENT_MAX,
                           "diloco-signature-1\n%s\n%s\n%" PRIu64 "\n%" PRIu32 "\n%s\n%s\n",
                           s->kind, s->run, s->entry, s->fragment, generation, hex);
    DL_ASSERT(n > 0 && n < STATEMENT_MAX);
    return (size_t)n;
}

diloco_status dl_statement_sign(dl_signature *out, const dl_signer *signer,
                                const dl_statement *what, const dl_strong *hash)
{
    char text[STATEMENT_MAX];
    return dl_sign(out, signer, text, statement_text(text, what, hash));
}

bool dl_statement_holds(const dl_signature *signature, const dl_public *key,
                        const dl_statement *what, const dl_strong *hash)
{
    char text[STATEMENT_MAX];
    return dl_verify(signature, key, text, statement_text(text, what, hash));
}

/* ---- sealed JSON */

/* The signature is put before the seal, and the seal is made again over both. After an error the
 * text may lack its seal. */
diloco_status dl_sealed_sign(dl_buf *text, size_t start, const dl_signer *signer,
                             const dl_statement *what)
{
    dl_strong hash;
    dl_signature signature;
    char key[DL_PUBLIC_TEXT], hex[DL_SIGNATURE_HEX + 1], seal[DL_HASH_HEX + 1];
    DL_ASSERT(text->len - start > DL_SEAL);
    const size_t whole = text->len, len = whole - start - DL_SEAL;
    DL_TRY(dl_strong_bytes(&hash, text->data + start, len));
    DL_TRY(dl_statement_sign(&signature, signer, what, &hash));
    dl_public_text(key, dl_signer_public(signer));
    dl_hex(hex, signature.bytes, sizeof signature.bytes);
    DL_TRY(dl_buf_reserve(text, whole + PROOF));
    text->len -= DL_SEAL;
    DL_TRY(dl_buf_addf(text, "%s%s%s%s\"", signer_head, key, signature_head, hex));
    dl_hash_to_hex(seal, dl_hash_bytes(text->data + start, text->len - start));
    return dl_buf_addf(text, ",\"check\":\"%s\"}\n", seal);
}

/* Finds the proof by its position from the end. It checks the signature only; dl_sealed_open checks
 * the seal. */
diloco_status dl_sealed_signer(dl_public *out, const void *text, size_t len,
                               const dl_statement *what)
{
    dl_strong hash;
    dl_signature signature;
    if (len < PROOF + DL_SEAL) return dl_fail(DILOCO_EPROTO, "it is not signed");
    const size_t signed_len = len - DL_SEAL - PROOF;
    const char *at = (const char *)text + signed_len, *key = at + SIGNER_HEAD;
    const char *hex = key + KEY + SIGNATURE_HEAD;
    if (memcmp(at, signer_head, SIGNER_HEAD) != 0 ||
        memcmp(key + KEY, signature_head, SIGNATURE_HEAD) != 0 || hex[DL_SIGNATURE_HEX] != '"' ||
        !dl_public_parse(out, key, KEY) ||
        !dl_unhex(signature.bytes, sizeof signature.bytes, hex, DL_SIGNATURE_HEX))
        return dl_fail(DILOCO_EPROTO, "it is not signed");
    DL_TRY(dl_strong_bytes(&hash, text, signed_len));
    if (dl_statement_holds(&signature, out, what, &hash)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "its signature does not match this object of this run");
}
