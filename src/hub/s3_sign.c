/* s3_sign.c - is a signature right? By making it again (store/http/sigv4.h) and comparing, in
 * constant time. Good for 15 minutes around now, or in a query for as long as that says; any
 * region is right. Every x-amz- header must be signed, or a proxy between could add one. */
#include "hub/s3_api.h"
#include "hub/s3_claim.h"
#include "store/http/web.h"

#include <openssl/crypto.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* The allowance for clocks that differ, as S3 has it. */
enum { SKEW_S = 15 * 60 };

/* Return true if the request claims to be signed. An "AWS" header of an unsupported version
 * counts too, so it gets an error that says so. */
bool dl_hub_s3_is_signed(const dl_http_request *r)
{
    const char *header = dl_request_header(r, "Authorization");
    if (header && strncmp(header, "AWS", 3) == 0) return true;
    return dl_target_has(&r->target, "X-Amz-Signature") ||
           dl_target_has(&r->target, "X-Amz-Algorithm");
}

/* Read the claim from the query, if it has a signature, else from the header. A header without
 * x-amz-content-sha256 is refused: the body would be unsigned unnoticed. */
static bool read_claim(dl_hub_s3_claim *c, dl_http_request *r)
{
    const char *header = dl_request_header(r, "Authorization");
    r->payload_hash = dl_request_header(r, "x-amz-content-sha256");
    if (dl_target_has(&r->target, "X-Amz-Signature")) {
        if (!r->payload_hash) r->payload_hash = "UNSIGNED-PAYLOAD";
        return dl_hub_s3_claim_query(c, &r->target);
    }
    if (!header || !dl_hub_s3_claim_header(c, header)) return false;
    c->date = dl_request_header(r, "x-amz-date");
    return r->payload_hash != NULL;
}

/* The result of a search for x-amz- headers that the signature does not cover. */
typedef struct extras {
    const dl_hub_s3_claim *claim;
    bool found;
} extras;

/* A proxy between could add an x-amz- header that changes the meaning of a signed request. */
static enum MHD_Result look_for_extras(void *cls, enum MHD_ValueKind kind, const char *name,
                                       const char *value)
{
    extras *e = cls;
    (void)kind, (void)value;
    e->found |= strncasecmp(name, "x-amz-", 6) == 0 && !dl_hub_s3_claim_signs(e->claim, name);
    return MHD_YES;
}

/* The day of the scope has to be that of the date, since the signing key is derived from that
 * day. */
static bool in_time(const dl_hub_s3_claim *c)
{
    int64_t then = dl_hub_s3_seconds(c->date), now = time(NULL);
    if (then < 0 || strlen(c->day) != 8 || strncmp(c->date, c->day, 8) != 0) return false;
    if (c->expires < 0) return now - then <= SKEW_S && then - now <= SKEW_S;
    return then - now <= SKEW_S && now - then < c->expires;
}

/* All parameters but the signature itself. */
static diloco_status list_query(dl_pair query[DL_SIGV4_PAIRS], size_t *n, const dl_hub_s3_claim *c,
                                const dl_target *target)
{
    *n = 0;
    for (size_t i = 0; i < target->n_params; i++) {
        const dl_param *p = &target->params[i];
        if (c->expires >= 0 && strcmp(p->name, "X-Amz-Signature") == 0) continue;
        if (*n == DL_SIGV4_PAIRS) return dl_fail(DILOCO_EPROTO, "too many parameters");
        query[(*n)++] = (dl_pair){p->name, p->value};
    }
    return DILOCO_OK;
}

/* Make the signature that the claim should have. A signed header that was removed on the way
 * counts as empty, so the signatures differ. */
static diloco_status sign_again(dl_buf *out, dl_buf *path, const dl_hub_s3_claim *c,
                                const dl_http_request *r, const dl_hub_s3_key *key)
{
    dl_pair query[DL_SIGV4_PAIRS], headers[DL_SIGV4_PAIRS];
    size_t n;
    DL_TRY(list_query(query, &n, c, &r->target));
    for (size_t i = 0; i < c->n_headers; i++) {
        const char *value = dl_request_header(r, c->headers[i]);
        headers[i] = (dl_pair){c->headers[i], value ? value : ""};
    }
    DL_TRY(dl_web_escape(path, r->target.path, true));
    if (!dl_buf_str(path)) return dl_fail(DILOCO_ENOMEM, "not enough memory to check a signature");
    const dl_sigv4_scope scope = {.vendor = "AWS4",
                                  .access = key->access,
                                  .secret = key->secret,
                                  .region = c->region,
                                  .service = c->service};
    const dl_sigv4_request request = {.method = r->method,
                                      .path = dl_buf_str(path),
                                      .query = query,
                                      .n_query = n,
                                      .headers = headers,
                                      .n_headers = c->n_headers,
                                      .payload = r->payload_hash,
                                      .date = c->date};
    return dl_sigv4_sign(out, &scope, &request);
}

/* Return true if the signature is right. It is the last DL_SHA256_HEX - 1 bytes of the result of
 * dl_sigv4_sign. */
static bool signature_holds(const dl_hub_s3_claim *c, const dl_http_request *r,
                            const dl_hub_s3_key *key)
{
    enum { HEX = DL_SHA256_HEX - 1 };
    dl_buf made, path;
    dl_buf_init(&made, 8192);
    dl_buf_init(&path, 4 * DL_TARGET_MAX);
    bool holds = !sign_again(&made, &path, c, r, key) && made.len > HEX &&
                 strlen(c->signature) == HEX &&
                 CRYPTO_memcmp(made.data + made.len - HEX, c->signature, HEX) == 0;
    dl_buf_deinit(&made);
    dl_buf_deinit(&path);
    return holds;
}

static bool refuse(dl_response *refusal, dl_http_request *r, unsigned status, const char *code,
                   const char *message)
{
    *refusal = dl_refuse(r, status, code, "%s", message);
    return false;
}

/* The cheap checks come first: form, key, unsigned headers, time. Only then is a signature
 * computed. */
bool dl_hub_s3_is_welcome(dl_http_request *r, dl_response *refusal)
{
    dl_hub_s3_claim c;
    if (!read_claim(&c, r))
        return refuse(refusal, r, 400, "AuthorizationHeaderMalformed",
                      "a hub accepts only requests that are signed with AWS4-HMAC-SHA256 for s3, "
                      "have x-amz-content-sha256, and sign the header host");
    const dl_hub_s3_key *key = dl_auth_key(&r->hub->auth, c.access, strlen(c.access));
    if (!key)
        return refuse(refusal, r, 403, "InvalidAccessKeyId",
                      "this hub does not know that access key (diloco serve --s3-keys FILE)");
    extras e = {&c, false};
    MHD_get_connection_values(r->mhd, MHD_HEADER_KIND, look_for_extras, &e);
    if (e.found)
        return refuse(refusal, r, 403, "AccessDenied",
                      "there are x-amz- headers that are not signed");
    if (!in_time(&c))
        return refuse(refusal, r, 403, c.expires < 0 ? "RequestTimeTooSkewed" : "AccessDenied",
                      "the signature has expired or is not valid yet: check the client's clock");
    if (!signature_holds(&c, r, key))
        return refuse(refusal, r, 403, "SignatureDoesNotMatch",
                      "the signature does not match this key");
    return true;
}
