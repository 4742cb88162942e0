/* bucket.c - the url, single requests, small objects. Listing: bucket_list.c; big objects:
 * bucket_bulk.c.
 *
 * A create is one conditional PUT: 412 (or 304, as old MinIO says) is "taken", 409 is a race that
 * S3 wants tried again, 501 a service that cannot do it. A PUT that was cut or answered 5xx has an
 * unknown outcome, so web.c tries it again. If the first one had succeeded, the second answer is
 * "taken" and store.c finds equal bytes. Nothing here needs a conditional replace.
 *
 * Signatures hold the time. A refusal whose Date is far from what we signed moves skew_s and is
 * tried again at once. One that says that the credentials are out of date has them read again. */
#include "store/http/bucket.h"

#include "base/log.h"
#include "base/text.h"
#include "store/http/bucket_bulk.h"
#include "store/http/web_read.h"
#include "store/http/xml.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    PART_MIB = 8, /* S3 wants 5 at least; four of them in flight fill most links */
    PART_MIB_MAX = 1024,
    PARALLEL = 4,
    RENEW_EARLY_S = 300,
    SKEW_S = 240,
    DAY_S = 86400
};

#define LOOK_AGAIN (30 * DL_SECOND) /* for credentials */

/* ---- the url */

static diloco_status bad_url(const dl_bucket *b, const char *why)
{
    return dl_fail(DILOCO_EINVAL, "%s://%s: %s", b->dialect->scheme, b->bucket, why);
}

static bool is_known(const dl_bucket *b, const char *name)
{
    static const char *const common[] = {"endpoint", "ca", "pin", "part_mib", "parallel", "halves"};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (!strcmp(name, common[i])) return true;
    for (const char *const *own = b->dialect->options; *own; own++)
        if (!strcmp(name, *own)) return true;
    return false;
}

/* An unknown option is refused, since a misspelt one would be ignored silently. One that is given
 * twice is ambiguous. */
static diloco_status add_option(dl_bucket *b, char *name)
{
    char *equals = strchr(name, '=');
    if (!equals)
        return bad_url(b, "write options after the '?' as option=value, separated by "
                          "'&'");
    *equals = '\0';
    if (!is_known(b, name))
        return dl_fail(DILOCO_EINVAL, "%s://%s: there is no option \"%.40s\" (docs/stores.md)",
                       b->dialect->scheme, b->bucket, name);
    if (!dl_text_unescape(equals + 1, false))
        return dl_fail(DILOCO_EINVAL,
                       "%s://%s: option %s has an invalid %%-escape; write a percent sign as %%25",
                       b->dialect->scheme, b->bucket, name);
    if (dl_bucket_option(b, name) || b->n_options == DL_BUCKET_OPTIONS)
        return dl_fail(DILOCO_EINVAL, "%s://%s: option %s is given twice", b->dialect->scheme,
                       b->bucket, name);
    b->options[b->n_options++] = (dl_pair){name, equals + 1};
    return DILOCO_OK;
}

const char *dl_bucket_option(const dl_bucket *b, const char *name)
{
    for (size_t i = 0; i < b->n_options; i++)
        if (!strcmp(b->options[i].name, name)) return b->options[i].value;
    return NULL;
}

/* *out keeps its default if the option is not given. */
static diloco_status read_number(const dl_bucket *b, size_t *out, const char *name, size_t max)
{
    const char *text = dl_bucket_option(b, name);
    char *end;
    if (!text) return DILOCO_OK;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || !*text || *text == '-' || value < 1 || value > max)
        return dl_fail(DILOCO_EINVAL, "%s://%s: %s=%s is not a number from 1 to %zu",
                       b->dialect->scheme, b->bucket, name, text, max);
    *out = value;
    return DILOCO_OK;
}

static diloco_status read_switch(const dl_bucket *b, bool *out, const char *name)
{
    const char *text = dl_bucket_option(b, name);
    *out = text && !strcmp(text, "yes");
    if (!text || *out || !strcmp(text, "no")) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s://%s: %s=%.40s is neither yes nor no", b->dialect->scheme,
                   b->bucket, name, text);
}

/* bucket[/prefix][?options], cut in place. The text is checked before it is repeated anywhere: a
 * url with credentials is not shown. */
static diloco_status parse(dl_bucket *b)
{
    char *query = strchr(b->text, '?'), *slash;
    b->bucket = b->text;
    if (query) *query++ = '\0';
    if (strchr(b->text, '@')) {
        b->bucket = "…"; /* not repeated */
        return bad_url(
            b, "a url must not contain credentials; docs/stores.md says where to give them");
    }
    if ((slash = strchr(b->text, '/'))) *slash = '\0';
    if (!dl_store_key_ok(b->bucket)) return bad_url(b, "that is no name of a bucket");
    for (char *next; query && *query; query = next) {
        next = strchr(query, '&');
        if (next) *next++ = '\0';
        DL_TRY(add_option(b, query));
    }
    char *prefix = slash ? slash + 1 : b->text + strlen(b->text);
    size_t len = strlen(prefix);
    if (len && prefix[len - 1] == '/') prefix[--len] = '\0';
    if (len && (len > DL_BUCKET_PREFIX || !dl_store_key_ok(prefix)))
        return bad_url(b, "a prefix is up to 400 letters, digits and ._=-, in parts that do not "
                          "begin with a dot, separated by '/'");
    snprintf(b->label, sizeof b->label, "%s://%s%s%s", b->dialect->scheme, b->bucket,
             len ? "/" : "", prefix);
    b->prefix = malloc(len + 2);
    if (!b->prefix) return dl_fail(DILOCO_ENOMEM, "not enough memory to open %s", b->label);
    sprintf(b->prefix, "%s%s", prefix, len ? "/" : "");
    return DILOCO_OK;
}

/* After an error the kind's close releases what exists. */
diloco_status dl_bucket_begin(dl_bucket *b, const dl_dialect *dialect, const char *place,
                              const atomic_bool *aborted)
{
    size_t part_mib = PART_MIB;
    b->dialect = dialect;
    b->aborted = aborted;
    b->parallel = PARALLEL;
    dl_buf_init(&b->entries, DL_BUCKET_PAGE);
    dl_buf_init(&b->names, DL_BUCKET_PAGE);
    if (!(b->text = strdup(place)))
        return dl_fail(DILOCO_ENOMEM, "not enough memory to open a bucket");
    DL_TRY(parse(b));
    DL_TRY(read_number(b, &part_mib, "part_mib", PART_MIB_MAX));
    DL_TRY(read_number(b, &b->parallel, "parallel", DL_WEB_WIDTH));
    DL_TRY(read_switch(b, &b->halves, "halves"));
    b->part_bytes = part_mib << 20;
    dl_web_options options = {.ca_file = dl_bucket_option(b, "ca"),
                              .pin = dl_bucket_option(b, "pin")};
    return dl_web_create(&b->web, &options, aborted);
}

void dl_bucket_close(void *self)
{
    dl_bucket *b = self;
    dl_web_destroy(b->web);
    dl_buf_deinit(&b->entries);
    dl_buf_deinit(&b->names);
    free(b->sizes);
    free(b->prefix);
    free(b->text);
}

void dl_bucket_traffic(const void *self, dl_store_counters *counts)
{
    dl_web_add_traffic(counts, ((const dl_bucket *)self)->web);
}

/* ---- one request */

int64_t dl_bucket_now(const dl_bucket *b)
{
    return (int64_t)dl_clock_wall() + b->skew_s;
}

void dl_bucket_query(dl_bucket_request *r, const char *name, const char *value)
{
    DL_ASSERT(r->n_query < DL_BUCKET_PAIRS);
    r->query[r->n_query++] = (dl_pair){name, value};
}

void dl_bucket_header(dl_bucket_request *r, const char *name, const char *value)
{
    DL_ASSERT(r->n_headers < DL_BUCKET_PAIRS);
    r->headers[r->n_headers++] = (dl_pair){name, value};
}

static diloco_status note_code(void *context, const char *path, const char *text)
{
    if (!strcmp(path, "Code")) snprintf(context, 64, "%s", text);
    return DILOCO_OK;
}

/* The code is untrusted text, cut at 63 bytes, and only compared. */
void dl_bucket_code(char code[64], const dl_web_exchange *x)
{
    code[0] = '\0';
    if (x->text.len && dl_xml_walk(x->text.data, x->text.len, "Error", note_code, code, x->what))
        code[0] = '\0'; /* no XML: no word */
}

bool dl_bucket_is_missing(const dl_web_exchange *x)
{
    char code[64];
    dl_bucket_code(code, x);
    return !strcmp(code, "NoSuchBucket") || !strcmp(code, "ContainerNotFound");
}

/* A row is a service's code with the status for the caller and a text for people. A code without a
 * row gets the general text of its HTTP status. */
diloco_status dl_bucket_refusal(const dl_bucket *b, const dl_web_exchange *x)
{
    static const struct {
        const char *code;
        diloco_status status;
        const char *text;
    } known[] = {
        {"NoSuchBucket", DILOCO_EUNREACHABLE, "there is no such bucket"},
        {"ContainerNotFound", DILOCO_EUNREACHABLE, "there is no such container"},
        {"RequestTimeTooSkewed", DILOCO_EREFUSED,
         "clock skew: the store does not accept this machine's time; set its clock"},
        {"ExpiredToken", DILOCO_EREFUSED,
         "the session token has expired; get new credentials (they are read again at each call)"},
        {"InvalidAccessKeyId", DILOCO_EREFUSED, "the store does not know that access key"},
        {"SignatureDoesNotMatch", DILOCO_EREFUSED, "the secret key does not fit the access key"},
        {"AuthenticationFailed", DILOCO_EREFUSED, "the account key or SAS token is not accepted"},
        {"AccessDenied", DILOCO_EREFUSED,
         "the credentials do not allow that; docs/stores.md has the permissions a run needs"},
    };
    char code[64];
    dl_bucket_code(code, x);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(code, known[i].code))
            return dl_fail(known[i].status, "%s: %s (%d %s)", x->what, known[i].text, x->status,
                           code);
    const char *region = dl_web_response_header(x, "x-amz-bucket-region");
    if (region && (x->status / 100 == 3 || !strcmp(code, "AuthorizationHeaderMalformed")))
        return dl_fail(DILOCO_EINVAL, "%s: the bucket is in another region: add region=%.40s",
                       b->label, region);
    return dl_web_unexpected(x);
}

/* Was it the clock? Then from now on it is the service's. Only a refusal counts, with a difference
 * of more than SKEW_S: a wrong Date of a good answer changes nothing. */
static bool mend_clock(dl_bucket *b, const dl_web_exchange *x)
{
    int64_t theirs = x->status >= 400 && x->status <= 403 ? dl_web_date(x) : 0;
    int64_t off = theirs - dl_bucket_now(b);
    if (!theirs || (off > -SKEW_S && off < SKEW_S)) return false;
    b->skew_s += off;
    dl_log(DILOCO_LOG_WARN, "%s: this machine's clock is %lld s %s; signing with the store's time",
           b->label, (long long)(b->skew_s < 0 ? -b->skew_s : b->skew_s),
           b->skew_s < 0 ? "ahead" : "behind");
    return true;
}

/* Trouble that passes, under whatever number: S3 answers 400 to a body that came too slowly. */
static bool is_passing(const dl_web_exchange *x)
{
    static const char *const codes[] = {"RequestTimeout", "SlowDown", "InternalError",
                                        "ServiceUnavailable", "ServerBusy"};
    char code[64];
    if (x->status < 400) return false;
    dl_bucket_code(code, x);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (!strcmp(code, codes[i])) return true;
    return false;
}

bool dl_bucket_mends(dl_bucket *b, dl_web_exchange *x)
{
    return x->again = mend_clock(b, x) || is_passing(x);
}

/* Sets b->stale, so that the next request reads the credentials again. */
bool dl_bucket_has_expired(dl_bucket *b, const dl_web_exchange *x)
{
    char code[64];
    if (!b->dialect->expired || x->status < 400 || x->status > 403) return false;
    dl_bucket_code(code, x);
    return b->stale = b->dialect->expired(code);
}

typedef struct asking {
    dl_bucket *b;
    const dl_bucket_request *r;
    dl_bucket_response_fn answer;
    void *context;
    char what[DL_KEY_MAX + DL_BUCKET_NAME + 8];
} asking;

/* Fills the exchange from the request; the dialect adds url, headers and signature. It runs again
 * for each try, so the signature has the time of that try. */
static diloco_status prepare(void *context, dl_web_exchange *x)
{
    asking *a = context;
    x->method = a->r->method;
    x->what = a->what;
    x->body = a->r->body;
    x->n_body = a->r->n_body;
    x->patience = a->r->patience;
    x->lists = a->r->lists;
    return a->b->dialect->dress(a->b, x, a->r);
}

/* The order: a clock or a passing failure, expired credentials, then the caller's own judgement. */
static diloco_status finish(void *context, dl_web_exchange *x)
{
    asking *a = context;
    bool right = x->status >= 200 && x->status <= 299;
    if (!right && dl_bucket_mends(a->b, x)) return DILOCO_OK;
    if (!right && dl_bucket_has_expired(a->b, x)) return dl_bucket_refusal(a->b, x);
    if (a->answer) return a->answer(a->context, a->b, x);
    return right ? DILOCO_OK : dl_bucket_refusal(a->b, x);
}

static bool is_due(const dl_bucket *b)
{
    return b->expires && b->expires - RENEW_EARLY_S <= dl_bucket_now(b);
}

/* Credentials that are still valid are used until the endpoint answers. The endpoint is asked again
 * after half a minute, also if it returned the same credentials. */
static diloco_status keep_old(dl_bucket *b, diloco_status status)
{
    if (!b->stale && b->expires > dl_bucket_now(b)) {
        dl_log(DILOCO_LOG_WARN, "%s; the previous credentials are valid for %lld s more",
               diloco_error_text(), (long long)(b->expires - dl_bucket_now(b)));
        return DILOCO_OK;
    }
    return b->renewed && status == DILOCO_EINVAL
               ? dl_fail_context(DILOCO_EUNREACHABLE, "the credentials have expired")
               : status;
}

/* Called before each request. Credentials are read when they were refused, and RENEW_EARLY_S before
 * they expire. */
diloco_status dl_bucket_renew(dl_bucket *b, dl_time until)
{
    const dl_time now = dl_clock_now();
    if (!b->dialect->renew || !(b->stale || (is_due(b) && now >= b->look_again))) return DILOCO_OK;
    const diloco_status status = b->dialect->renew(b, until);
    b->look_again = dl_time_after(now, LOOK_AGAIN);
    if (status) return status == DILOCO_ECLOSED ? status : keep_old(b, status);
    b->renewed = true;
    b->stale = false;
    return DILOCO_OK;
}

/* One second attempt after expired credentials; a second refusal is returned. */
diloco_status dl_bucket_send_request(dl_bucket *b, const dl_bucket_request *r,
                                     dl_bucket_response_fn answer, void *context, size_t max_text,
                                     dl_time until)
{
    asking a = {.b = b, .r = r, .answer = answer, .context = context};
    dl_web_batch batch = {.n = 1,
                          .width = 1,
                          .max_text = max_text,
                          .context = &a,
                          .prepare = prepare,
                          .finish = finish};
    snprintf(a.what, sizeof a.what, "%s%s%s", r->name ? r->name : "", r->name ? " in " : "",
             b->label);
    DL_TRY(dl_bucket_renew(b, until));
    diloco_status status = dl_web_run(b->web, &batch, until);
    if (!status || !b->stale || !b->dialect->renew) return status;
    DL_TRY(dl_bucket_renew(b, until));
    return dl_web_run(b->web, &batch, until);
}

bool dl_bucket_is_old(const char *then, const dl_web_exchange *x)
{
    int64_t made = dl_web_time(then), now = dl_web_date(x);
    return made && now && now - made > DAY_S;
}

/* ---- did it arrive?
 *
 * Services answer a PUT, and a part, with the MD5 of the received bytes. S3, Google and similar
 * services give it as ETag in hex, unless they encrypt with the customer's keys. Azure gives it as
 * Content-MD5 in base64. An answer without it, or with another ETag, is no error: it confirms
 * nothing. */

static bool is_etag(const char *etag, const unsigned char md5[DL_MD5])
{
    char hex[2 * DL_MD5 + 1];
    for (int i = 0; i < DL_MD5; i++)
        sprintf(hex + 2L * i, "%02x", md5[i]);
    etag += *etag == '"'; /* Ceph RGW has none */
    return !strncasecmp(etag, hex, 2L * DL_MD5) &&
           strspn(etag + 2L * DL_MD5, "\"") == strlen(etag + 2L * DL_MD5);
}

static bool is_base64(const char *text, const unsigned char md5[DL_MD5])
{
    unsigned char base64[DL_MD5 * 2];
    EVP_EncodeBlock(base64, md5, DL_MD5);
    return !strcmp(text, (const char *)base64);
}

/* `vouched` starts as true for a create, and one part without its digest clears it for the whole
 * object. */
void dl_bucket_took(dl_bucket *b, const dl_web_exchange *x)
{
    unsigned char md5[DL_MD5];
    const char *etag = dl_web_response_header(x, "ETag"),
               *reported = dl_web_response_header(x, "Content-MD5");
    if (!b->vouched) return;
    b->vouched = (etag || reported) && !dl_md5(md5, x->body, x->n_body) &&
                 ((etag && is_etag(etag, md5)) || (reported && is_base64(reported, md5)));
}

bool dl_bucket_vouches(const void *self)
{
    return ((const dl_bucket *)self)->vouched;
}

/* ---- small objects */

typedef struct writing {
    const char *key;
    bool *taken; /* NULL: a replacing put */
} writing;

/* Judges the answer to a conditional PUT. 412 is the answer that decides a race; 409 says that the
 * race is not decided yet. */
static diloco_status written(void *context, dl_bucket *b, dl_web_exchange *x)
{
    const writing *w = context;
    char code[64];
    if (x->status >= 200 && x->status <= 299) {
        dl_bucket_took(b, x);
        return DILOCO_OK;
    }
    dl_bucket_code(code, x);
    if (w->taken && (x->status == 412 || x->status == 304 || !strcmp(code, "BlobAlreadyExists"))) {
        *w->taken = true;
        return DILOCO_OK;
    }
    if (x->status == 409) {
        x->again = true; /* it raced with another one, which may have failed */
        return DILOCO_OK;
    }
    if (w->taken && x->status == 501)
        return dl_fail(DILOCO_EREFUSED,
                       "%s cannot create a name only if it is free (the server answered 501); a "
                       "run needs a store that lets exactly one writer win, or single_committer = "
                       "<replica>",
                       b->label);
    return dl_bucket_refusal(b, x);
}

diloco_status dl_bucket_put_small(dl_bucket *b, const char *key, const dl_span *spans,
                                  size_t n_spans, bool *taken, dl_time until)
{
    writing w = {key, taken};
    dl_bucket_request r = {.method = "PUT", .name = key, .body = spans, .n_body = n_spans};
    if (taken) dl_bucket_header(&r, b->dialect->if_absent.name, b->dialect->if_absent.value);
    return dl_bucket_send_request(b, &r, written, &w, 0, until);
}

diloco_status dl_bucket_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                               bool *taken, dl_time until)
{
    dl_bucket *b = self;
    *taken = false;
    b->vouched = true;
    return b->halves || dl_bulk_is(b, key, spans, n_spans)
               ? dl_bulk_publish(b, key, spans, n_spans, taken, until)
               : dl_bucket_put_small(b, key, spans, n_spans, taken, until);
}

diloco_status dl_bucket_put(void *self, const char *key, const void *data, size_t len,
                            dl_time until)
{
    dl_bucket *b = self;
    dl_span span = {data, len};
    return dl_bulk_is(b, key, &span, 1) ? dl_bulk_publish(b, key, &span, 1, NULL, until)
                                        : dl_bucket_put_small(b, key, &span, 1, NULL, until);
}

static diloco_status deleted(void *context, dl_bucket *b, dl_web_exchange *x)
{
    (void)context;
    bool right = (x->status >= 200 && x->status <= 299) || x->status == 404;
    return right ? DILOCO_OK : dl_bucket_refusal(b, x);
}

diloco_status dl_bucket_delete(dl_bucket *b, const char *name, dl_time until)
{
    dl_bucket_request r = {.method = "DELETE", .name = name};
    return dl_bucket_send_request(b, &r, deleted, NULL, 0, until);
}

/* The pointer goes first, so no reader follows it to an object that is gone. */
diloco_status dl_bucket_remove(void *self, const char *key, dl_time until)
{
    dl_bucket *b = self;
    dl_bulk_look look;
    DL_TRY(dl_bulk_look_at(b, key, &look, until));
    if (!look.there) return DILOCO_OK;
    DL_TRY(dl_bucket_delete(b, key, until));
    return look.is_pointer ? dl_bulk_remove(b, key, &look.pointer, until) : DILOCO_OK;
}

/* ---- reading */

static diloco_status prepare_read(void *context, dl_web_exchange *x, const char *range,
                                  const char *if_match)
{
    asking *a = context;
    dl_bucket_request r = *a->r;
    if (range) dl_bucket_header(&r, "Range", range);
    if (if_match) dl_bucket_header(&r, "If-Match", if_match);
    x->method = r.method;
    x->what = a->what;
    return a->b->dialect->dress(a->b, x, &r);
}

/* A missing object is ENOENT; a missing bucket is unreachable, since a run was in it. */
static diloco_status refuse_read(void *context, dl_web_exchange *x)
{
    asking *a = context;
    if (dl_bucket_mends(a->b, x)) return DILOCO_OK;
    dl_bucket_has_expired(a->b, x);
    if (x->status == 404 && !dl_bucket_is_missing(x))
        return dl_fail(DILOCO_ENOENT, "%s is not in %s", a->r->name, a->b->label);
    return dl_bucket_refusal(a->b, x);
}

/* Large objects are read in ranges, several at a time (web_read.c). */
diloco_status dl_bucket_read_plain(dl_bucket *b, const char *name, dl_web_position *at,
                                   dl_sink sink, dl_time until)
{
    dl_bucket_request r = {.method = "GET", .name = name};
    asking a = {.b = b, .r = &r};
    dl_web_source source = {.range = b->part_bytes,
                            .width = b->parallel,
                            .context = &a,
                            .prepare = prepare_read,
                            .refused = refuse_read,
                            .at = at};
    snprintf(a.what, sizeof a.what, "%s in %s", name, b->label);
    DL_TRY(dl_bucket_renew(b, until));
    diloco_status status = dl_web_read(b->web, &source, sink, until);
    if (!status || !b->stale || !b->dialect->renew) return status;
    /* The sink may have heard something, so it is the caller's to start again. */
    return dl_fail(DILOCO_EUNREACHABLE, "%s: the credentials have expired; they are read again",
                   a.what);
}

diloco_status dl_bucket_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    return dl_bulk_read(self, key, sink, until);
}

/* The objects of a user are no pointers to big ones, which only a run has. */
diloco_status dl_bucket_read_part(void *self, const char *key, dl_store_part *part, dl_sink sink,
                                  dl_time until)
{
    dl_web_position at = {.begin = part->begin, .end = part->end};
    memcpy(at.etag, part->version, sizeof at.etag);
    const diloco_status status = dl_bucket_read_plain(self, key, &at, sink, until);
    memcpy(part->version, at.etag, sizeof at.etag);
    return status;
}
