/* signed.h - signatures of a run's objects, and sealed JSON that carries one (docs/formats.md,
 * Signatures).
 *
 * A signature signs a *statement*. This text says which object of which run it is, and ends with
 * the hash of its bytes:
 *
 *     diloco-signature-1 <kind> <run> <entry> <fragment> <generation> <hash>
 *     (with a newline for each space)
 *
 * So signed bytes cannot be used in another run, entry, fragment or generation, nor as an object of
 * another kind. */
#ifndef DL_LOG_SIGNED_H
#define DL_LOG_SIGNED_H

#include "base/signature.h"
#include "log/layout.h"

typedef struct dl_statement {
    const char *kind; /* "run", "life", "contribution", "combined", "entry", "snapshot", … */
    const char *run;
    uint64_t entry;
    uint32_t fragment;
    const dl_generation *generation; /* NULL: no generation's */
} dl_statement;

DL_MUST_CHECK diloco_status dl_statement_sign(dl_signature *out, const dl_signer *signer,
                                              const dl_statement *what, const dl_strong *hash);
bool dl_statement_holds(const dl_signature *signature, const dl_public *key,
                        const dl_statement *what, const dl_strong *hash);

/* Adds two members to the sealed JSON (fields.h) that begins at `start` of text, before its seal,
 * which is made again:
 *
 *      "signer":"ed25519:…","signature":"<128 hex digits>","check":"<hash>"}\n
 *
 * The signature signs everything before the comma in front of "signer". */
DL_MUST_CHECK diloco_status dl_sealed_sign(dl_buf *text, size_t start, const dl_signer *signer,
                                           const dl_statement *what);

/* Finds the key that signed a sealed text as `what`. Returns DILOCO_EPROTO if no key did. */
DL_MUST_CHECK diloco_status dl_sealed_signer(dl_public *out, const void *text, size_t len,
                                             const dl_statement *what);

#endif
