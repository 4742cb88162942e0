/* s3_body.c - bodies as S3 describes them: signed hashes, MD5, aws-chunked framing, checksums. A
 * request that a hub does not support is refused by its name, never ignored: a client that gets
 * 200 believes that it was done. */
#include "base/text.h"
#include "hub/s3_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Return true for the signed SHA-256 of a body, in lower case as SigV4 has it. */
static bool is_hash(const char *text)
{
    return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static EVP_MD_CTX *hasher(const EVP_MD *kind)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context && EVP_DigestInit_ex(context, kind, NULL)) return context;
    EVP_MD_CTX_free(context);
    return NULL;
}

/* ---- headers that a signed query may carry in their place */

/* A search for headers by their prefix, and its result. */
typedef struct search {
    const char *prefix;       /* of the headers that are looked for */
    const char *name, *value; /* the first; NULL: none */
    unsigned n;
} search;

/* Headers that only describe a checksum do not count as one. */
static enum MHD_Result look(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    static const char *const about[] = {"algorithm", "mode", "type"};
    search *s = cls;
    const size_t len = strlen(s->prefix);
    (void)kind;
    if (strncasecmp(name, s->prefix, len) != 0) return MHD_YES;
    for (size_t i = 0; i < sizeof about / sizeof *about; i++)
        if (!strcasecmp(name + len, about[i])) return MHD_YES;
    if (!s->n++) s->name = name, s->value = value ? value : "";
    return MHD_YES;
}

/* A presigned URL carries headers as parameters of its query. Both places are searched, so a
 * header cannot be hidden in the other one. */
static search find(const dl_http_request *r, const char *prefix)
{
    search s = {.prefix = prefix};
    MHD_get_connection_values(r->mhd, MHD_HEADER_KIND, look, &s);
    for (size_t i = 0; i < r->target.n_params; i++)
        look(&s, MHD_GET_ARGUMENT_KIND, r->target.params[i].name, r->target.params[i].value);
    return s;
}

/* All headers of this prefix are refused. A client would otherwise believe that its data is
 * encrypted on the disk. */
bool dl_hub_s3_asks_to_encrypt(dl_http_request *r, dl_response *refusal)
{
    const search s = find(r, "x-amz-server-side-encryption");
    if (!s.n) return false;
    *refusal = dl_refuse(r, 501, "NotImplemented",
                         "%.80s: a hub does not encrypt what it stores; encrypt before the upload, "
                         "or the file system below the hub",
                         s.name);
    return true;
}

/* ---- checksums */

static dl_response refuse_kind(dl_http_request *r, const char *name)
{
    return dl_refuse(r, 501, "NotImplemented",
                     "%.80s: a hub computes CRC32, CRC32C, CRC64NVME, SHA1 and SHA256", name);
}

/* More than one checksum in a request is refused, since a client may mean either. */
dl_response dl_hub_s3_find_checksum(dl_http_request *r, const dl_checksum_kind **kind,
                                    const char **value)
{
    const search s = find(r, DL_CHECKSUM_PREFIX);
    *kind = s.n ? dl_checksum_find(s.name) : NULL;
    *value = s.value;
    if (s.n > 1)
        return dl_refuse(r, 400, "InvalidRequest",
                         "a request has at most one " DL_CHECKSUM_PREFIX "<name> header");
    return s.n && !*kind ? refuse_kind(r, s.name) : (dl_response){0};
}

/* A checksum comes in a header, or in a trailer that x-amz-trailer names. The trailer needs
 * aws-chunked framing. The checksum is begun here, since its bytes pass by only once. */
dl_response dl_hub_s3_prepare_checksum(dl_http_request *r)
{
    dl_body *b = &r->body;
    const char *trailer = dl_request_header(r, "x-amz-trailer");
    const dl_checksum_kind *kind;
    dl_response refusal = dl_hub_s3_find_checksum(r, &kind, &b->checksum_value);
    if (refusal.response) return refusal;
    if (trailer && (kind || !b->chunks))
        return dl_refuse(r, 400, "InvalidRequest",
                         "x-amz-trailer belongs to aws-chunked framing, in place of a header");
    if (trailer && !(kind = dl_checksum_find(trailer))) return refuse_kind(r, trailer);
    if (kind && dl_checksum_begin(&b->checksum, kind))
        return dl_refuse(r, 500, "InternalError", "out of memory");
    return (dl_response){0};
}

/* The value of the trailer, or NULL: it is not the one that was announced. */
static const char *trailer_value(const dl_body *b)
{
    const char *name = dl_checksum_header(b->checksum.kind), *at = b->chunks->trailer;
    if (strncasecmp(at, name, strlen(name)) != 0 || at[strlen(name)] != ':') return NULL;
    at += strlen(name) + 1;
    return at + strspn(at, " \t");
}

/* The trailer has arrived, so its value is taken now. Returns false and sets *refusal if it is
 * missing, was not announced, or differs. */
static bool check_checksum(dl_http_request *r, dl_response *refusal)
{
    dl_body *b = &r->body;
    char value[DL_CHECKSUM_TEXT];
    const bool trails = b->chunks && b->chunks->trailer[0];
    if (b->checksum.kind && !b->checksum_value) b->checksum_value = trailer_value(b);
    if ((b->checksum.kind && !b->checksum_value) ||
        (trails && !dl_request_header(r, "x-amz-trailer"))) {
        *refusal = dl_refuse(r, 400, "MalformedTrailerError",
                             "the trailer is not the one that x-amz-trailer names");
        return false;
    }
    if (!b->checksum.kind) return true;
    dl_checksum_end(&b->checksum, value);
    if (!strcmp(value, b->checksum_value)) return true;
    *refusal = dl_refuse(r, 400, "BadDigest", "the body does not match %s: its checksum is %s",
                         dl_checksum_header(b->checksum.kind), value);
    return false;
}

void dl_hub_s3_repeat_checksum(const dl_http_request *r, dl_response reply)
{
    const dl_body *b = &r->body;
    if (b->checksum.kind)
        dl_response_header(reply, dl_checksum_header(b->checksum.kind), b->checksum_value);
}

/* ---- the body */

/* aws-chunked framing inside the body. The decoded length is required, since a cut body would
 * otherwise look like a whole one. */
static dl_response prepare_framing(dl_http_request *r)
{
    dl_body *b = &r->body;
    const char *length = dl_request_header(r, "x-amz-decoded-content-length");
    b->chunks = calloc(1, sizeof *b->chunks);
    if (!b->chunks) return dl_refuse(r, 500, "InternalError", "out of memory");
    if (!length)
        return dl_refuse(r, 411, "MissingContentLength",
                         "aws-chunked framing needs x-amz-decoded-content-length");
    if (!dl_text_to_u64(&b->decoded, length, strlen(length)))
        return dl_refuse(r, 400, "InvalidArgument", "x-amz-decoded-content-length is a number");
    return (dl_response){0};
}

/* Prepare for the three forms of x-amz-content-sha256: a hash, UNSIGNED-PAYLOAD, or unsigned
 * chunks with a trailer. Bodies signed chunk by chunk are refused by name. */
dl_response dl_hub_s3_prepare_body(dl_http_request *r)
{
    dl_body *b = &r->body;
    const char *hash = r->payload_hash, *encoding = dl_request_header(r, "Content-Encoding");
    const bool framed = !strcmp(hash, "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    if (encoding && *encoding && strcasecmp(encoding, "aws-chunked") != 0)
        return dl_refuse(r, 501, "NotImplemented", "a hub keeps no Content-Encoding");
    if (encoding && *encoding && !framed)
        return dl_refuse(r, 400, "InvalidRequest",
                         "aws-chunked needs x-amz-content-sha256: "
                         "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    if (is_hash(hash)) {
        b->sha256 = hasher(EVP_sha256());
        if (!b->sha256) return dl_refuse(r, 500, "InternalError", "out of memory");
    } else if (!framed && strcmp(hash, "UNSIGNED-PAYLOAD") != 0) {
        return dl_refuse(r, 501, "NotImplemented",
                         "%.80s: a hub does not check a body that is signed chunk by chunk", hash);
    }
    if (dl_request_header(r, "Content-MD5")) {
        b->md5 = hasher(EVP_md5());
        if (!b->md5) return dl_refuse(r, 500, "InternalError", "out of memory");
    }
    return framed ? prepare_framing(r) : (dl_response){0};
}

/* Compare all that the headers claim with the received bytes. Nothing was published yet, so a
 * false claim leaves nothing. */
bool dl_hub_s3_check_body(dl_http_request *r, dl_response *refusal)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    char text[2 * EVP_MAX_MD_SIZE + 1];
    const char *md5 = dl_request_header(r, "Content-MD5");
    if (r->body.sha256 && EVP_DigestFinal_ex(r->body.sha256, hash, NULL)) {
        for (size_t i = 0; i < 32; i++)
            snprintf(text + 2 * i, 3, "%02x", hash[i]);
        if (strcmp(text, r->payload_hash) != 0) {
            *refusal = dl_refuse(r, 400, "XAmzContentSHA256Mismatch",
                                 "the body does not match the SHA-256 that was signed");
            return false;
        }
    }
    if (r->body.md5 && EVP_DigestFinal_ex(r->body.md5, hash, NULL)) {
        EVP_EncodeBlock((unsigned char *)text, hash, 16);
        if (strcmp(text, md5) != 0) {
            *refusal = dl_refuse(r, 400, "BadDigest", "the body does not match Content-MD5");
            return false;
        }
    }
    if (r->body.chunks && r->body.len != r->body.decoded) {
        *refusal = dl_refuse(r, 400, "IncompleteBody",
                             "the body has %llu bytes, not those of x-amz-decoded-content-length",
                             (unsigned long long)r->body.len);
        return false;
    }
    return check_checksum(r, refusal);
}
