/* hf.c - "hf://buckets/owner/bucket/prefix": Storage Buckets of Hugging Face, by their S3 API.
 *
 * A row over s3_wire.h. The owner is the first part of the path, the region is always us-east-1,
 * and a read may be redirected to another host. Keys come from the places of Amazon's tools, and
 * begin with HFAK: others are not sent. */
#include "store/http/s3_wire.h"

#include <stdio.h>
#include <string.h>

static const char endpoint[] = "https://s3.hf.co", place_begins[] = "buckets/";

static diloco_status renew(dl_bucket *b, dl_time until)
{
    dl_s3_store *s = (dl_s3_store *)b;
    dl_credentials now;
    diloco_status status = dl_credentials_aws(&now, b->web, until);
    if (status) return dl_fail_context(status, "%s", b->label);
    if (strncmp(now.access, "HFAK", 4) != 0)
        return dl_fail(DILOCO_EREFUSED,
                       "%s: the access key found does not begin with HFAK, so it is not one of "
                       "Hugging Face and was not sent. Generate S3 credentials of an access token "
                       "in your settings there, and set AWS_ACCESS_KEY_ID and "
                       "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
                       b->label);
    s->credentials = now;
    b->expires = now.expires;
    return DILOCO_OK;
}

static diloco_status dress(dl_bucket *b, dl_web_exchange *x, const dl_bucket_request *r)
{
    x->follows = strcmp(r->method, "GET") == 0;
    return dl_s3_dress(b, x, r);
}

static const char *const options[] = {NULL};

static const dl_dialect hf = {
    .scheme = "hf",
    .options = options,
    .if_absent = {"If-None-Match", "*"},
    .listing = DL_S3_LISTING,
    .dress = dress,
    .list = dl_s3_list,
    .renew = renew,
    .expired = dl_s3_expired,
    .upload = dl_s3_upload,
    .sweep = dl_s3_sweep,
};

/* Read the owner; *rest is bucket and prefix. The owner becomes a part of a path. */
static diloco_status read_owner(dl_s3_store *s, const char **rest, const char *place)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t begin = strlen(place_begins);
    const char *owner = strncmp(place, place_begins, begin) == 0 ? place + begin : "";
    const size_t len = strspn(owner, letters);
    if (!len || len >= sizeof s->owner || owner[0] == '.' || owner[len] != '/')
        return dl_fail(DILOCO_EINVAL,
                       "store hf://%.60s: write it as hf://buckets/OWNER/BUCKET/PREFIX; "
                       "models and datasets of Hugging Face hold no run",
                       place);
    memcpy(s->owner, owner, len);
    *rest = owner + len + 1;
    return DILOCO_OK;
}

static diloco_status hf_open(void *self, const char *place, bool create, const atomic_bool *aborted)
{
    dl_s3_store *s = self;
    s->vendor = "AWS4";
    s->word = "amz";
    s->service = "s3";
    strcpy(s->region, "us-east-1");
    DL_TRY(read_owner(s, &place, place));
    DL_TRY(dl_bucket_begin(&s->b, &hf, place, aborted));
    char label[sizeof s->b.label];
    memcpy(label, s->b.label, sizeof label);
    snprintf(s->b.label, sizeof s->b.label, "hf://buckets/%s/%.900s", s->owner, label + 5);
    const char *given = dl_bucket_option(&s->b, "endpoint");
    DL_TRY(dl_s3_endpoint(s, given ? given : endpoint, true));
    s->b.stale = true; /* so that the first request reads credentials */
    return dl_bucket_ready(&s->b, create);
}

const dl_store_kind dl_store_hf = {
    .scheme = "hf", .size = sizeof(dl_s3_store), .open = hf_open, DL_BUCKET_KIND};
