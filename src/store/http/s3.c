/* s3.c - "s3://bucket/prefix": Amazon S3, and what speaks its API at another endpoint. */
#include "store/http/s3_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static diloco_status renew(dl_bucket *b, dl_time until)
{
    dl_s3_store *s = (dl_s3_store *)b;
    dl_credentials now;
    diloco_status status = dl_credentials_aws(&now, b->web, until);
    if (status) return dl_fail_context(status, "%s", b->label);
    s->credentials = now;
    b->expires = s->credentials.expires;
    return DILOCO_OK;
}

static const char *const options[] = {"region", "style", NULL};

static const dl_dialect s3 = {
    .scheme = "s3",
    .options = options,
    .if_absent = {"If-None-Match", "*"},
    .listing = DL_S3_LISTING,
    .dress = dl_s3_dress,
    .list = dl_s3_list,
    .renew = renew,
    .expired = dl_s3_expired,
    .upload = dl_s3_upload,
    .sweep = dl_s3_sweep,
};

/* The first that is set: the url, the environment, the profile. Returns NULL if none is set. A
 * value that does not fit is cut. */
static const char *choose(char *out, size_t cap, const char *given, const char *const *variables,
                          const char *setting)
{
    for (; !given && *variables; variables++)
        given = getenv(*variables) && *getenv(*variables) ? getenv(*variables) : NULL;
    if (given) snprintf(out, cap, "%s", given);
    return given || dl_credentials_aws_setting(out, cap, setting) ? out : NULL;
}

/* It becomes a part of a host's name, to which credentials go. */
static bool is_region(const char *text)
{
    return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(text);
}

/* Without an endpoint the service's host is made of the region. */
static diloco_status find_service(dl_s3_store *s)
{
    static const char *const regions[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
    static const char *const endpoints[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
    char endpoint[512];
    if (!choose(s->region, sizeof s->region, dl_bucket_option(&s->b, "region"), regions, "region"))
        strcpy(s->region, "us-east-1");
    if (choose(endpoint, sizeof endpoint, dl_bucket_option(&s->b, "endpoint"), endpoints,
               "endpoint_url")) {
        size_t len = strlen(endpoint);
        if (len && endpoint[len - 1] == '/') endpoint[len - 1] = '\0';
        return dl_s3_endpoint(s, endpoint, true);
    }
    if (!is_region(s->region))
        return dl_fail(DILOCO_EINVAL, "%s: \"%.40s\" is no name of a region", s->b.label,
                       s->region);
    snprintf(endpoint, sizeof endpoint, "https://s3.%s.amazonaws.com%s", s->region,
             strncmp(s->region, "cn-", 3) ? "" : ".cn");
    /* A dot in a bucket's name fits no certificate. */
    return dl_s3_endpoint(s, endpoint, strchr(s->b.bucket, '.') != NULL);
}

static diloco_status s3_open(void *self, const char *place, bool create, const atomic_bool *aborted)
{
    dl_s3_store *s = self;
    s->vendor = "AWS4";
    s->word = "amz";
    s->service = "s3";
    DL_TRY(dl_bucket_begin(&s->b, &s3, place, aborted));
    DL_TRY(find_service(s));
    s->b.stale = true; /* so that the first request reads credentials */
    return dl_bucket_ready(&s->b, create);
}

const dl_store_kind dl_store_s3 = {
    .scheme = "s3", .size = sizeof(dl_s3_store), .open = s3_open, DL_BUCKET_KIND};
