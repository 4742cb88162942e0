/* s3_claim.h - the claims of a request signed by SigV4: key, time, scope, headers.
 *
 *     Authorization: AWS4-HMAC-SHA256 Credential=<scope>, SignedHeaders=<a;b>, Signature=<hex>
 *     or in the query: X-Amz-Algorithm, -Credential, -Date, -Expires, -SignedHeaders, -Signature
 *
 * The scope is <access>/<day>/<region>/s3/aws4_request. Bytes from outside; nothing is believed
 * here but their form. */
#ifndef DL_HUB_S3_CLAIM_H
#define DL_HUB_S3_CLAIM_H

#include "hub/target.h"
#include "store/http/sigv4.h"

enum { DL_CLAIM_SCOPE = 512, DL_CLAIM_NAMES = 1024 };

/* One claim. It is filled from untrusted bytes and used within one request, on the stack. */
typedef struct dl_hub_s3_claim {
    char scope[DL_CLAIM_SCOPE]; /* cut at its '/' into the next four */
    const char *access, *day, *region, *service;
    char names[DL_CLAIM_NAMES]; /* cut at its ';' into the next */
    const char *headers[DL_SIGV4_PAIRS];
    size_t n_headers;
    char signature[DL_SHA256_HEX]; /* in hex, as given */
    const char *date;              /* of the query; NULL: in a header */
    int64_t expires;               /* seconds; -1: not in the query */
} dl_hub_s3_claim;

/* From the header's value, or the query. false: it is no such claim for s3, or it leaves the
 * Host header unsigned. The claim points into itself and the target. */
bool dl_hub_s3_claim_header(dl_hub_s3_claim *out, const char *authorization);
bool dl_hub_s3_claim_query(dl_hub_s3_claim *out, const dl_target *target);

/* Is that header among the signed ones? */
bool dl_hub_s3_claim_signs(const dl_hub_s3_claim *claim, const char *header);

/* "20130524T000000Z" as seconds since 1970; -1: it is no such time. */
int64_t dl_hub_s3_seconds(const char *date);

#endif
