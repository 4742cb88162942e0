/* s3_wire.c - signed requests, and uploads in parts.
 *
 * An upload is: begin (an id comes back), the parts (an ETag each), complete with the list of
 * them. Its name is unique, so completing twice is harmless: a completion that was cut and then
 * finds no such upload is right if the object is there. A 200 may carry an error, and is read. */
#include "store/http/s3_wire.h"

#include "store/http/bucket_bulk.h"
#include "store/http/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MAX = 10000, ETAG_MAX = 128, ID_MAX = 1024, NAME_BYTES = DL_BUCKET_NAME + 64 };
#define COMPLETE_PATIENCE (300 * DL_SECOND)

/* ---- where the service is */

/* The bucket is in the path or in the host's name. Credentials go to that host, so user, path and
 * query are refused. */
diloco_status dl_s3_endpoint(dl_s3_store *s, const char *endpoint, bool in_path)
{
    const char *host = strstr(endpoint, "://");
    const char *style = dl_bucket_option(&s->b, "style");
    s->tls = !strncmp(endpoint, "https://", 8);
    if (!host || (!s->tls && strncmp(endpoint, "http://", 7)) || strchr(host, '@') ||
        strpbrk(host + 3, "/?#"))
        return dl_fail(DILOCO_EINVAL,
                       "%s: the endpoint is http(s)://host[:port], without user or "
                       "path",
                       s->b.label);
    if (style && strcmp(style, "path") && strcmp(style, "host"))
        return dl_fail(DILOCO_EINVAL, "%s: style is path or host", s->b.label);
    s->in_path = style ? !strcmp(style, "path") : in_path;
    int len = s->in_path ? snprintf(s->host, sizeof s->host, "%s", host + 3)
                         : snprintf(s->host, sizeof s->host, "%s.%s", s->b.bucket, host + 3);
    if (len > 300) return dl_fail(DILOCO_EINVAL, "%s: the endpoint is too long", s->b.label);
    snprintf(s->base, sizeof s->base, "http%s://%s", s->tls ? "s" : "", s->host);
    return DILOCO_OK;
}

/* ---- requests */

/* The path's escapes are those that are signed, so the server computes the same signature. */
static diloco_status add_path(dl_buf *out, const dl_s3_store *s, const char *name)
{
    if (s->owner[0]) DL_TRY(dl_buf_addf(out, "/%s", s->owner));
    if (s->in_path) DL_TRY(dl_buf_addf(out, "/%s", s->b.bucket));
    if (!name) return s->in_path ? DILOCO_OK : dl_buf_add(out, "/", 1);
    DL_TRY(dl_buf_add(out, "/", 1));
    DL_TRY(dl_web_escape(out, s->b.prefix, true));
    return dl_web_escape(out, name, true);
}

/* Adds the Authorization header. `payload` is the body's hash in hex, or the word for an unsigned
 * one. */
static diloco_status sign(const dl_s3_store *s, dl_web_exchange *x, const dl_bucket_request *r,
                          const char *path, const dl_pair *headers, size_t n_headers,
                          const char *payload, const char *date)
{
    dl_buf authorization;
    dl_sigv4_scope scope = {.vendor = s->vendor,
                            .access = s->credentials.access,
                            .secret = s->credentials.secret,
                            .region = s->region,
                            .service = s->service};
    dl_sigv4_request request = {.method = r->method,
                                .path = path,
                                .query = r->query,
                                .n_query = r->n_query,
                                .headers = headers,
                                .n_headers = n_headers,
                                .payload = payload,
                                .date = date};
    dl_buf_init(&authorization, 4096);
    diloco_status status = dl_sigv4_sign(&authorization, &scope, &request);
    const char *text = status ? NULL : dl_buf_str(&authorization);
    if (text) status = dl_web_header(x, "Authorization: %s", text);
    dl_buf_deinit(&authorization);
    return status;
}

/* Bulk parts over TLS are sent without a hash of their body, which would cost a second pass; the
 * pointer's digest covers them. */
static diloco_status dress_signed(const dl_s3_store *s, dl_web_exchange *x,
                                  const dl_bucket_request *r, const char *path)
{
    char sha[DL_SHA256_HEX] = "UNSIGNED-PAYLOAD", date[DL_SIGV4_DATE];
    char date_name[32], sha_name[32], token_name[32];
    dl_pair headers[DL_SIGV4_PAIRS];
    size_t n = 0;
    if (!(r->bulk && s->tls)) DL_TRY(dl_sha256_hex(sha, r->body, r->n_body));
    dl_sigv4_date(date, dl_bucket_now(&s->b));
    snprintf(date_name, sizeof date_name, "x-%s-date", s->word);
    snprintf(sha_name, sizeof sha_name, "x-%s-content-sha256", s->word);
    snprintf(token_name, sizeof token_name, "x-%s-security-token", s->word);
    headers[n++] = (dl_pair){"Host", s->host};
    headers[n++] = (dl_pair){date_name, date};
    headers[n++] = (dl_pair){sha_name, sha};
    if (s->credentials.token[0]) headers[n++] = (dl_pair){token_name, s->credentials.token};
    for (size_t i = 0; i < r->n_headers; i++)
        headers[n++] = r->headers[i];
    for (size_t i = 0; i < n; i++)
        DL_TRY(dl_web_header(x, "%s: %s", headers[i].name, headers[i].value));
    return sign(s, x, r, path, headers, n, sha, date);
}

static diloco_status dress_bearer(const dl_s3_store *s, dl_web_exchange *x,
                                  const dl_bucket_request *r)
{
    for (size_t i = 0; i < r->n_headers; i++)
        DL_TRY(dl_web_header(x, "%s: %s", r->headers[i].name, r->headers[i].value));
    return dl_web_header(x, "Authorization: Bearer %s", s->credentials.token);
}

/* The path is escaped once, and the same text is signed and sent. */
diloco_status dl_s3_dress(dl_bucket *b, dl_web_exchange *x, const dl_bucket_request *r)
{
    const dl_s3_store *s = (const dl_s3_store *)b;
    dl_buf path;
    dl_buf_init(&path, DL_WEB_URL);
    diloco_status status = add_path(&path, s, r->name);
    const char *text = status ? NULL : dl_buf_str(&path);
    if (!status) status = dl_buf_addf(&x->url, "%s%s", s->base, text ? text : "/");
    if (!status && r->n_query) status = dl_buf_add(&x->url, "?", 1);
    if (!status) status = dl_sigv4_query(&x->url, r->query, r->n_query);
    if (!status) status = s->bearer ? dress_bearer(s, x, r) : dress_signed(s, x, r, text);
    dl_buf_deinit(&path);
    return status;
}

void dl_s3_list(dl_bucket_request *r, const char *prefix, const char *after, const char *marker,
                const char *max)
{
    (void)marker; /* a listing continues after its last key */
    dl_bucket_query(r, "list-type", "2");
    dl_bucket_query(r, "encoding-type", "url"); /* a foreign key may have what XML cannot hold */
    dl_bucket_query(r, "max-keys", max);
    if (*prefix) dl_bucket_query(r, "prefix", prefix);
    if (after) dl_bucket_query(r, "start-after", after);
}

bool dl_s3_expired(const char *code)
{
    return !strcmp(code, "ExpiredToken") || !strcmp(code, "TokenRefreshRequired") ||
           !strcmp(code, "InvalidToken") || !strcmp(code, "ExpiredTokenException");
}

/* ---- uploads */

typedef struct upload {
    char id[ID_MAX];
    char (*etags)[ETAG_MAX]; /* of the parts */
    char number[16];         /* of the part being prepared */
    bool gone;               /* completing found no such upload: it may be complete */
    size_t len;              /* that the object has, on a look */
} upload;

static diloco_status note_id(void *context, const char *path, const char *text)
{
    upload *u = context;
    if (!strcmp(path, "UploadId")) snprintf(u->id, sizeof u->id, "%s", text);
    return DILOCO_OK;
}

static diloco_status begun(void *context, dl_bucket *b, dl_web_exchange *x)
{
    upload *u = context;
    if (x->status < 200 || x->status > 299) return dl_bucket_refusal(b, x);
    DL_TRY(dl_xml_walk(x->text.data, x->text.len, "InitiateMultipartUploadResult", note_id, u,
                       x->what));
    if (!u->id[0]) return dl_fail(DILOCO_EPROTO, "%s: an upload began without an id", x->what);
    return DILOCO_OK;
}

static diloco_status part_request(void *context, size_t index, dl_bucket_request *r)
{
    upload *u = context;
    snprintf(u->number, sizeof u->number, "%zu", index + 1);
    r->method = "PUT";
    dl_bucket_query(r, "partNumber", u->number);
    dl_bucket_query(r, "uploadId", u->id);
    return DILOCO_OK;
}

/* The ETag goes into the XML of the completion, so characters that XML reserves are refused. */
static diloco_status part_answer(void *context, size_t index, dl_web_exchange *x)
{
    upload *u = context;
    const char *etag = dl_web_response_header(x, "ETag");
    if (!etag || snprintf(u->etags[index], ETAG_MAX, "%s", etag) >= ETAG_MAX ||
        strpbrk(etag, "<>&"))
        return dl_fail(DILOCO_EPROTO, "%s: part %zu came back without an ETag", x->what, index + 1);
    return DILOCO_OK;
}

/* A 200 may have an error in its body, since the service answers before it has finished. */
static diloco_status completed(void *context, dl_bucket *b, dl_web_exchange *x)
{
    upload *u = context;
    char code[64];
    dl_bucket_code(code, x);
    if (x->status == 404 && !strcmp(code, "NoSuchUpload")) {
        u->gone = true;
        return DILOCO_OK;
    }
    if (x->status < 200 || x->status > 299) return dl_bucket_refusal(b, x);
    if (!code[0]) return DILOCO_OK;
    x->again = !strcmp(code, "InternalError") || !strcmp(code, "SlowDown");
    return x->again ? DILOCO_OK : dl_bucket_refusal(b, x);
}

static diloco_status note_length(void *context, dl_bucket *b, dl_web_exchange *x)
{
    upload *u = context;
    if (x->status < 200 || x->status > 299) return dl_bucket_refusal(b, x);
    const char *len = dl_web_response_header(x, "Content-Length");
    u->len = len ? strtoull(len, NULL, 10) : 0;
    return DILOCO_OK;
}

/* If the upload is gone, a completion before may have succeeded: the length of the object
 * decides. */
static diloco_status complete(dl_bucket *b, const char *name, upload *u, size_t n_parts,
                              size_t total, dl_time until)
{
    dl_buf body;
    dl_bucket_request r = {.method = "POST", .name = name, .patience = COMPLETE_PATIENCE};
    dl_bucket_request head = {.method = "HEAD", .name = name};
    dl_bucket_query(&r, "uploadId", u->id);
    dl_buf_init(&body, PARTS_MAX * (ETAG_MAX + 80));
    diloco_status status = dl_buf_addf(&body, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < n_parts && !status; i++)
        status = dl_buf_addf(&body, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>",
                             i + 1, u->etags[i]);
    if (!status) status = dl_buf_addf(&body, "</CompleteMultipartUpload>");
    dl_span span = {body.data, body.len};
    r.body = &span;
    r.n_body = 1;
    if (!status) status = dl_bucket_send_request(b, &r, completed, u, 0, until);
    dl_buf_deinit(&body);
    if (status || !u->gone) return status;
    DL_TRY(dl_bucket_send_request(b, &head, note_length, u, 0, until));
    return u->len == total ? DILOCO_OK
                           : dl_fail(DILOCO_EUNREACHABLE,
                                     "%s in %s: another process ended its upload", name, b->label);
}

static diloco_status abandon(dl_bucket *b, const char *name, const char *id, dl_time until)
{
    dl_bucket_request r = {.method = "DELETE", .name = name};
    dl_bucket_query(&r, "uploadId", id);
    return dl_bucket_send_request(b, &r, NULL, NULL, 0, until);
}

/* The table of ETags has a row for each part, in order. */
static diloco_status send_all(dl_bucket *b, const char *name, upload *u, const dl_span *spans,
                              size_t n_spans, dl_time until)
{
    dl_bucket_cut cut = {.context = u, .request = part_request, .answer = part_answer};
    const size_t total = dl_spans_len(spans, n_spans);
    dl_bucket_cut_up(&cut, b, spans, n_spans, PARTS_MAX);
    u->etags = calloc(cut.n_parts, sizeof *u->etags);
    if (!u->etags) return dl_fail(DILOCO_ENOMEM, "%s: not enough memory to upload it", name);
    diloco_status status = dl_bucket_send(b, name, &cut, until);
    if (!status) status = complete(b, name, u, cut.n_parts, total, until);
    free(u->etags);
    return status;
}

/* After a failure the parts are removed, within 5 seconds, since they cost money. The first error's
 * text is kept. */
diloco_status dl_s3_upload(dl_bucket *b, const char *name, const dl_span *spans, size_t n_spans,
                           dl_time until)
{
    char text[512];
    upload u = {.gone = false};
    dl_bucket_request r = {.method = "POST", .name = name};
    dl_bucket_query(&r, "uploads", "");
    DL_TRY(dl_bucket_send_request(b, &r, begun, &u, 0, until));
    diloco_status status = send_all(b, name, &u, spans, n_spans, until);
    if (!status) return DILOCO_OK;
    snprintf(text, sizeof text, "%s", diloco_error_text());
    diloco_status left = abandon(b, name, u.id, dl_time_after(dl_clock_now(), 5 * DL_SECOND));
    return dl_fail(status, "%s%s", text, left ? " (its parts stay until they are swept)" : "");
}

/* ---- unfinished uploads */

/* The unfinished upload that is being read from a listing. `names` of the bucket collects pairs of
 * name and id. */
typedef struct orphans {
    dl_bucket *b;
    const dl_web_exchange *x;
    char name[NAME_BYTES], id[ID_MAX];
    bool old;
} orphans;

/* Collects unfinished uploads below this run's prefix that are more than a day old. */
static diloco_status note_upload(void *context, const char *path, const char *text)
{
    orphans *o = context;
    size_t len = strlen(o->b->prefix);
    if (!strcmp(path, "Upload/Key"))
        snprintf(o->name, sizeof o->name, "%s", strncmp(text, o->b->prefix, len) ? "" : text + len);
    if (!strcmp(path, "Upload/UploadId")) snprintf(o->id, sizeof o->id, "%s", text);
    if (!strcmp(path, "Upload/Initiated")) o->old = dl_bucket_is_old(text, o->x);
    if (strcmp(path, "Upload") || !o->old || !*o->name || !*o->id) return DILOCO_OK;
    DL_TRY(dl_buf_add(&o->b->names, o->name, strlen(o->name) + 1));
    return dl_buf_add(&o->b->names, o->id, strlen(o->id) + 1);
}

static diloco_status uploads_listed(void *context, dl_bucket *b, dl_web_exchange *x)
{
    orphans *o = context;
    if (x->status < 200 || x->status > 299) return dl_bucket_refusal(b, x);
    o->x = x;
    dl_buf_clear(&b->names);
    return dl_xml_walk(x->text.data, x->text.len, "ListMultipartUploadsResult", note_upload, o,
                       x->what);
}

/* Unfinished uploads cost money and are in no listing, so they are looked for on their own. */
diloco_status dl_s3_sweep(dl_bucket *b, dl_time until)
{
    char prefix[DL_BUCKET_NAME];
    orphans o = {.b = b};
    dl_bucket_request r = {.method = "GET"};
    snprintf(prefix, sizeof prefix, "%s.b/", b->prefix);
    dl_bucket_query(&r, "uploads", "");
    dl_bucket_query(&r, "prefix", prefix);
    DL_TRY(dl_bucket_send_request(b, &r, uploads_listed, &o, 4 << 20, until));
    for (size_t at = 0; at < b->names.len;) {
        const char *name = (const char *)b->names.data + at, *id = name + strlen(name) + 1;
        DL_TRY(abandon(b, name, id, until));
        at += strlen(name) + strlen(id) + 2;
    }
    return DILOCO_OK;
}
