/* cert.h - a certificate of one's own: ECDSA P-256, which browsers, Go, Python and curl all
 * take, signed by itself. */
#ifndef DL_HUB_CERT_H
#define DL_HUB_CERT_H

#include "base/status.h"

enum { DL_CERT_DAYS = 730, DL_CERT_PRINT = 96, DL_CERT_PIN = 64 };

/* Write both as PEM, the key readable by its owner alone, for localhost, this host's name, the
 * loopback addresses and `host` (NULL or "": none). DILOCO_EEXIST: one of the files is there.
 *
 *   fingerprint  SHA-256 of the certificate, as "AB:CD:…"
 *   pin          "sha256//<base64>" of the public key, as curl's --pinnedpubkey takes it */
DL_MUST_CHECK diloco_status dl_cert_make(const char *cert_path, const char *key_path,
                                         const char *host, char fingerprint[DL_CERT_PRINT],
                                         char pin[DL_CERT_PIN]);

/* SHA-256 of the public key of a certificate in PEM, as 64 hex digits, as in a join line.
 * DILOCO_EPROTO: the file holds none. */
enum { DL_CERT_KEY_HEX = 64 };
DL_MUST_CHECK diloco_status dl_cert_key_hash(char out[DL_CERT_KEY_HEX + 1], const char *cert_path);

#endif
