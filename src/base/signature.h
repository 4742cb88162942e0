/* signature.h - proof of the sender: Ed25519 keys and signatures (RFC 8032), and the hash that is
 * signed.
 *
 * A secret key is a file in PEM (PKCS #8, as "openssl genpkey -algorithm ed25519" writes it).
 * Only its owner may read it. Nothing here gives it out, and no error text holds any of it. A
 * public key is the text "ed25519:" and 64 hex digits.
 *
 * XXH3 (hash.h) finds accidents; bytes that an adversary could exploit are hashed with BLAKE2b-512,
 * of which the first 32 bytes are kept. 0.7 to 0.9 GB/s on a core.
 *
 * Builds without OpenSSL (DILOCO_CLOUD=OFF) refuse all of it: DILOCO_EREFUSED, verify false. */
#ifndef DL_BASE_SIGNATURE_H
#define DL_BASE_SIGNATURE_H

#include "base/file.h"

enum { DL_PUBLIC_TEXT = 8 + 64 + 1, DL_PIN_TEXT = 64, DL_SIGNATURE_HEX = 128, DL_STRONG_HEX = 64 };

typedef struct dl_public {
    unsigned char bytes[32];
} dl_public;
typedef struct dl_signature {
    unsigned char bytes[64];
} dl_signature;
typedef struct dl_strong {
    unsigned char bytes[32];
} dl_strong;

bool dl_public_equal(const dl_public *a, const dl_public *b);
void dl_public_text(char out[DL_PUBLIC_TEXT], const dl_public *key);
/* false unless it is exactly such a text, lower case: a key has one text. */
bool dl_public_parse(dl_public *out, const char *text, size_t len);

/* "sha256//<base64>", by which a TLS client believes a certificate of this key and no other. */
DL_MUST_CHECK diloco_status dl_public_pin(char out[DL_PIN_TEXT], const dl_public *key);

/* Lower-case hex of n bytes and a zero byte; and back, false unless all of it is that. */
void dl_hex(char *out, const unsigned char *bytes, size_t n);
bool dl_unhex(unsigned char *out, size_t n, const char *text, size_t len);

/* ---- a secret key; any thread */

typedef struct dl_signer dl_signer;

/* A new key in a new file of mode 0600; folders above it are made. DILOCO_EEXIST: there is a file;
 * DILOCO_EIO. */
DL_MUST_CHECK diloco_status dl_signer_make(const char *path);
/* DILOCO_ENOENT; DILOCO_EREFUSED: others than its owner may read or write it; DILOCO_EPROTO: it is
 * no Ed25519 key. *out is NULL on error. */
DL_MUST_CHECK diloco_status dl_signer_open(dl_signer **out, const char *path);
/* A new key that is kept nowhere. */
DL_MUST_CHECK diloco_status dl_signer_generate(dl_signer **out);
void dl_signer_close(dl_signer *signer); /* NULL is fine */

const dl_public *dl_signer_public(const dl_signer *signer);
DL_MUST_CHECK diloco_status dl_sign(dl_signature *out, const dl_signer *signer, const void *data,
                                    size_t len);
bool dl_verify(const dl_signature *signature, const dl_public *key, const void *data, size_t len);

/* A certificate of the key, signed by itself, and the key, both appended as PEM, as TLS takes them.
 * `secret` should be made with a fixed maximum and cleansed by the caller (dl_cleanse). */
DL_MUST_CHECK diloco_status dl_signer_certificate(dl_buf *cert, dl_buf *secret,
                                                  const dl_signer *signer);
void dl_cleanse(dl_buf *secret); /* overwrite and free */

/* The default place of a person's key: $XDG_CONFIG_HOME/diloco/key.pem or
 * $HOME/.config/diloco/key.pem. DILOCO_EINVAL: neither is set, or too long for `cap`. */
DL_MUST_CHECK diloco_status dl_signer_path(char *out, size_t cap);

/* ---- the hash that is signed */

typedef struct dl_strong_stream dl_strong_stream;
DL_MUST_CHECK diloco_status dl_strong_begin(dl_strong_stream **out); /* DILOCO_ENOMEM */
void dl_strong_add(dl_strong_stream *stream, const void *data, size_t n);
dl_strong dl_strong_end(dl_strong_stream *stream); /* frees it */
void dl_strong_drop(dl_strong_stream *stream);     /* frees it; NULL is fine */
DL_MUST_CHECK diloco_status dl_strong_bytes(dl_strong *out, const void *data, size_t n);

#endif
