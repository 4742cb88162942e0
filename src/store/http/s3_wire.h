/* s3_wire.h - the S3 API as two vendors speak it: requests signed with dl_sigv4, listings,
 * multipart uploads. s3.c and gs.c are rows over it. */
#ifndef DL_STORE_HTTP_S3_WIRE_H
#define DL_STORE_HTTP_S3_WIRE_H

#include "store/http/bucket.h"
#include "store/http/credentials.h"

typedef struct dl_s3_store {
    dl_bucket b;
    const char *vendor, *word, *service; /* "AWS4", "amz", "s3" */
    char region[64];
    char owner[97]; /* the part of the path before the bucket; "" */
    char base[544]; /* "https://host:port" of the url, the bucket in it or not */
    char host[512]; /* "host:port" of the header */
    bool in_path;   /* the bucket is in the path, not in the host */
    bool bearer;    /* the token alone authorizes, without signatures */
    bool tls;
    dl_credentials credentials;
} dl_s3_store;

/* Set base, host, in_path and tls from "http(s)://host[:port]". `in_path` unless style=host asks
 * otherwise. DILOCO_EINVAL. */
DL_MUST_CHECK diloco_status dl_s3_endpoint(dl_s3_store *s, const char *endpoint, bool in_path);

diloco_status dl_s3_dress(dl_bucket *b, dl_web_exchange *x, const dl_bucket_request *r);
void dl_s3_list(dl_bucket_request *r, const char *prefix, const char *after, const char *marker,
                const char *max);
bool dl_s3_expired(const char *code);
diloco_status dl_s3_upload(dl_bucket *b, const char *name, const dl_span *spans, size_t n_spans,
                           dl_time until);
diloco_status dl_s3_sweep(dl_bucket *b, dl_time until);

#define DL_S3_LISTING                                                                              \
    {                                                                                              \
        .root = "ListBucketResult", .entry = "Contents", .key = "Contents/Key",                    \
        .size = "Contents/Size", .etag = "Contents/ETag", .modified = "Contents/LastModified",     \
        .truncated = "IsTruncated"                                                                 \
    }

#endif
