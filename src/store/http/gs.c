/* gs.c - "gs://bucket/prefix": Google Cloud Storage, by its XML API.
 *
 * As S3, with words of its own: GOOG4-HMAC-SHA256 over x-goog- headers, and a create is a PUT of
 * generation 0. On Google's machines the service account's token authorizes instead. */
#include "store/http/s3_wire.h"

#include <string.h>

static diloco_status renew(dl_bucket *b, dl_time until)
{
    dl_s3_store *s = (dl_s3_store *)b;
    dl_credentials now;
    diloco_status status = dl_credentials_google(&now, b->web, until);
    if (status) return dl_fail_context(status, "%s", b->label);
    s->credentials = now;
    s->bearer = !s->credentials.access[0];
    b->expires = s->credentials.expires ? s->credentials.expires + b->skew_s : 0; /* by our clock */
    return DILOCO_OK;
}

static bool expired(const char *code)
{
    return dl_s3_expired(code) || !strcmp(code, "AuthenticationRequired");
}

static const char *const options[] = {"style", NULL};

static const dl_dialect gs = {
    .scheme = "gs",
    .options = options,
    .if_absent = {"x-goog-if-generation-match", "0"},
    .listing = DL_S3_LISTING,
    .dress = dl_s3_dress,
    .list = dl_s3_list,
    .renew = renew,
    .expired = expired,
    .upload = dl_s3_upload,
    .sweep = dl_s3_sweep,
};

static diloco_status gs_open(void *self, const char *place, bool create, const atomic_bool *aborted)
{
    dl_s3_store *s = self;
    s->vendor = "GOOG4";
    s->word = "goog";
    s->service = "storage";
    strcpy(s->region, "auto");
    DL_TRY(dl_bucket_begin(&s->b, &gs, place, aborted));
    const char *endpoint = dl_bucket_option(&s->b, "endpoint");
    DL_TRY(dl_s3_endpoint(s, endpoint ? endpoint : "https://storage.googleapis.com", true));
    s->b.stale = true; /* so that the first request reads credentials */
    return dl_bucket_ready(&s->b, create);
}

const dl_store_kind dl_store_gs = {
    .scheme = "gs", .size = sizeof(dl_s3_store), .open = gs_open, DL_BUCKET_KIND};
