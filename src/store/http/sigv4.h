/* sigv4.h - AWS Signature Version 4, in the Authorization header.
 *
 * "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API reference; Google's
 * V4 is the same with other words. Own code, because libcurl 7.88's signer sends no
 * x-amz-content-sha256 and mis-signs queries that are unsorted, without values, or hold
 * "+ = :". As for S3, the path is signed as it is sent: no component is tidied away. */
#ifndef DL_STORE_HTTP_SIGV4_H
#define DL_STORE_HTTP_SIGV4_H

#include "base/file.h"

typedef struct dl_pair {
    const char *name, *value; /* borrowed */
} dl_pair;

/* The signer, the request and the service of a signature. */
typedef struct dl_sigv4_scope {
    const char *vendor;          /* "AWS4": also AWS4-HMAC-SHA256 and aws4_request; "GOOG4" */
    const char *access, *secret; /* the secret never leaves this module */
    const char *region, *service;
} dl_sigv4_scope;

enum { DL_SIGV4_PAIRS = 16, DL_SIGV4_DATE = 17, DL_SHA256_HEX = 65 };

typedef struct dl_sigv4_request {
    const char *method;
    const char *path; /* escaped, from its '/' */
    const dl_pair *query;
    size_t n_query; /* neither escaped nor sorted */
    const dl_pair *headers;
    size_t n_headers;    /* all of them are signed; one of them is Host; each name once */
    const char *payload; /* SHA-256 of the body in hex, or "UNSIGNED-PAYLOAD" */
    const char *date;    /* dl_sigv4_date */
} dl_sigv4_request;

/* "20130524T000000Z" of seconds since 1970. */
void dl_sigv4_date(char out[DL_SIGV4_DATE], int64_t seconds);

/* SHA-256 of the spans, one after the other, in hex. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_sha256_hex(char out[DL_SHA256_HEX], const dl_span *spans, size_t n);

/* MD5 of the spans, one after the other: services report it of the bytes that they received.
 * DILOCO_ENOMEM. */
enum { DL_MD5 = 16 };
DL_MUST_CHECK diloco_status dl_md5(unsigned char out[DL_MD5], const dl_span *spans, size_t n);

/* HMAC-SHA-256. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_hmac_sha256(unsigned char out[32], const void *key, size_t key_len,
                                           const void *data, size_t len);

/* Append the query as it is both signed and sent: escaped, sorted, each name with a '='. At most
 * DL_SIGV4_PAIRS pairs. DILOCO_ENOMEM, DILOCO_EPROTO. */
DL_MUST_CHECK diloco_status dl_sigv4_query(dl_buf *out, const dl_pair *query, size_t n);

/* Append the value of the Authorization header. DILOCO_ENOMEM, DILOCO_EPROTO (longer than
 * out->max). */
DL_MUST_CHECK diloco_status dl_sigv4_sign(dl_buf *out, const dl_sigv4_scope *scope,
                                          const dl_sigv4_request *request);

#endif
