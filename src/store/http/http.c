/* http.c - "http://host:port/run", "https://…": the hub (docs/hub.md) as a store.
 *
 * A create is a PUT with If-None-Match: *, and 412 means taken; retries and connections are
 * web.c's. The run's path is a bucket (its first component), and a prefix of every key (the
 * rest). From the environment, so that no secret is in a command line or a run:
 *
 *     DILOCO_HUB_TOKEN       the token; or DILOCO_HUB_TOKEN_FILE, a file whose first line it is
 *     DILOCO_HUB_CA          PEM file: signer of the hub's certificate (a self-signed one: itself)
 *     DILOCO_HUB_PIN         "sha256//…": the hub's public key, instead of names and signatures
 *     DILOCO_KEY             this machine's key (base/signature.h), else where it usually is.
 *                            A hub that asks for a certificate gets one of this key. */

#include "base/host_port.h"
#include "base/log.h"
#include "base/signature.h"
#include "base/text.h"
#include "store/http/change_stream.h"
#include "store/http/http_upload.h"
#include "store/http/sse.h"
#include "store/http/web_read.h"
#include "store/wrap/shaped.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WHAT_MAX = DL_KEY_MAX + 256,
    PAGE_KEYS = 10000, /* of a listing; an earlier hub gives 1000 */
    TOKEN_MAX = 4096,
    PEM_MAX = 8192,
    PREFIX_MAX = 200,      /* so that every key of a run fits after it */
    RANGE_BYTES = 4 << 20, /* longer objects are read over several connections at once */
    CONNECTIONS = 4,
    PEER_TRIES = 2,
    HOLD_S = 20, /* the longest wait for an object at a node; shorter than web.c's patience */
    ASK_FIRST = 1 << 20,  /* bytes of a body that is not sent before the hub has agreed */
    PARTS_FROM = 4 << 20, /* bytes of an object that goes in parts, to a hub that is far */
};

/* From this round trip on one connection does not fill the line; below it one is enough. */
static const dl_time FAR = 10 * DL_MILLISECOND;
static const size_t WHOLE_BYTES = (size_t)1 << 40;

/* How the hub is reached; texts owned. */
typedef struct http_place {
    char *base;          /* "https://host:8765" */
    char *bucket;        /* the path's first component */
    char *prefix;        /* prefix of every key: "", or "more/" */
    char *authorization; /* the header, or NULL */
    dl_buf cert, secret; /* PEM of this machine's key; empty: it has none */
    char pin[DL_PIN_TEXT];
    dl_web_options web; /* its texts are the environment's, or of these three */
} http_place;

typedef struct http_store {
    http_place place;
    const atomic_bool *aborted;
    dl_web *web;
    bool holds;   /* reads wait for objects that are not there */
    bool vouched; /* the last create's answer had the digest of what was sent */
    dl_http_upload upload;
    dl_change_stream *stream; /* NULL until the first wait */
    dl_sse sse;               /* of the ear's thread */
    bool told_of;             /* likewise: an event came */
} http_store;

/* One call: the arguments of prepare and finish. */
typedef struct call {
    const http_store *s;
    const char *method, *key; /* key "": the bucket */
    const dl_span *spans;
    size_t n_spans, total;
    bool create, taken, vouched, missing;
    dl_time until; /* of a read that waits for its object; 0: it does not */
    char what[WHAT_MAX];
    const char *prefix, *after; /* of a listing */
    dl_found_fn found;
    void *context;
    char last[DL_KEY_MAX + 1];
    bool more;
} call;

/* ---- opening */

static diloco_status bad_url(const char *place)
{
    /* A join line's token may follow '#', and a password may precede '@'. */
    const size_t shown = strchr(place, '@') ? 0 : strcspn(place, "#");
    return dl_fail(DILOCO_EINVAL,
                   "http://%.*s%s is not the url of a run at a hub: http://HOST:PORT/RUN, RUN of "
                   "letters, digits and ._=-, perhaps in folders",
                   (int)dl_size_min(shown, 200), place, shown ? "" : "…");
}

/* "host:port/bucket/more". The run's name is checked as a key, since it becomes part of every
 * path. */
static diloco_status cut_place(http_place *p, const char *scheme, const char *place)
{
    const char *path = strchr(place, '/');
    size_t host = path ? (size_t)(path - place) : 0, len = path ? strlen(path + 1) : 0;
    if (!host || memchr(place, '@', host) || !len) return bad_url(place);
    if (path[len] == '/') len--; /* one at the end is allowed */
    char *run = strndup(path + 1, len);
    if (!run || asprintf(&p->base, "%s://%.*s", scheme, (int)host, place) < 0) {
        free(run);
        p->base = NULL;
        return dl_fail(DILOCO_ENOMEM, "not enough memory to open %s", place);
    }
    bool ok = dl_store_key_ok(run);
    char *more = strchr(run, '/');
    if (more) *more++ = '\0';
    if (ok && more && strlen(more) > PREFIX_MAX) ok = false;
    if (asprintf(&p->prefix, "%s%s", more ? more : "", more ? "/" : "") < 0) p->prefix = NULL;
    p->bucket = run;
    return ok && p->prefix ? DILOCO_OK : bad_url(place);
}

static diloco_status read_token_file(char token[TOKEN_MAX], const char *path)
{
    dl_buf file;
    dl_buf_init(&file, TOKEN_MAX - 1);
    diloco_status status = dl_file_read(&file, path);
    if (status) {
        dl_buf_deinit(&file);
        return dl_fail_context(status, "DILOCO_HUB_TOKEN_FILE");
    }
    if (file.len) memcpy(token, file.data, file.len);
    token[file.len] = '\0';
    token[strcspn(token, "\r\n")] = '\0';
    if (file.data) OPENSSL_cleanse(file.data, file.cap);
    dl_buf_deinit(&file);
    return DILOCO_OK;
}

/* An unencrypted connection to another machine is warned of. */
static diloco_status find_secrets(http_place *p, const char *scheme)
{
    const char *given = getenv("DILOCO_HUB_TOKEN"), *path = getenv("DILOCO_HUB_TOKEN_FILE");
    char token[TOKEN_MAX] = "";
    p->web.ca_file = getenv("DILOCO_HUB_CA");
    p->web.pin = getenv("DILOCO_HUB_PIN");
    if (given && strlen(given) < sizeof token)
        strcpy(token, given);
    else if (path)
        DL_TRY(read_token_file(token, path));
    if (!*token) return DILOCO_OK;
    if (strcmp(scheme, "https") != 0 && !dl_url_is_loopback(p->base))
        dl_log(DILOCO_LOG_WARN, "the token goes to %s unencrypted; use https://", p->base);
    int made = asprintf(&p->authorization, "Authorization: Bearer %s", token);
    OPENSSL_cleanse(token, sizeof token);
    if (made >= 0) return DILOCO_OK;
    p->authorization = NULL;
    return dl_fail(DILOCO_ENOMEM, "out of memory for a token");
}

static diloco_status use_certificate(http_place *p)
{
    p->web.cert = dl_buf_str(&p->cert);
    p->web.key = dl_buf_str(&p->secret);
    return p->web.cert && p->web.key ? DILOCO_OK
                                     : dl_fail(DILOCO_ENOMEM, "out of memory for a key");
}

/* A key that others may read is not used, and the hub may do without: it has tokens too. */
static diloco_status find_certificate(http_place *p)
{
    char usual[PATH_MAX];
    const char *path = getenv("DILOCO_KEY");
    dl_signer *signer;
    if (!path && dl_signer_path(usual, sizeof usual)) return DILOCO_OK;
    diloco_status status = dl_signer_open(&signer, path ? path : usual);
    if (status == DILOCO_ENOENT && !path) return DILOCO_OK;
    if (status && path) return dl_fail_context(status, "DILOCO_KEY");
    if (status) {
        dl_log(DILOCO_LOG_WARN, "%s; it is not shown to the hub", diloco_error_text());
        return DILOCO_OK;
    }
    dl_buf_init(&p->cert, PEM_MAX);
    dl_buf_init(&p->secret, PEM_MAX);
    status = dl_signer_certificate(&p->cert, &p->secret, signer);
    dl_signer_close(signer);
    return status ? status : use_certificate(p);
}

/* A member's own credentials, in place of those of the environment. */
static diloco_status take_access(http_place *p, const dl_peer_access *access)
{
    p->web.patience = access->patience;
    if (strlen(access->pin) >= sizeof p->pin)
        return dl_fail(DILOCO_EINVAL, "the pin of a peer is too long");
    strcpy(p->pin, access->pin);
    p->web.pin = p->pin;
    dl_buf_init(&p->cert, PEM_MAX);
    dl_buf_init(&p->secret, PEM_MAX);
    DL_TRY(dl_buf_add(&p->cert, access->cert, strlen(access->cert)));
    DL_TRY(dl_buf_add(&p->secret, access->key, strlen(access->key)));
    return use_certificate(p);
}

/* ---- requests */

static call call_of(const http_store *s, const char *method, const char *key)
{
    call c = {.s = s, .method = method, .key = key};
    snprintf(c.what, sizeof c.what, "%s%s%.100s/%.100s", key, *key ? " in " : "", s->place.base,
             s->place.bucket);
    return c;
}

static diloco_status head(const call *c, dl_web_exchange *x)
{
    x->method = c->method;
    x->what = c->what;
    return c->s->place.authorization ? dl_web_header(x, "%s", c->s->place.authorization)
                                     : DILOCO_OK;
}

static diloco_status prepare(void *context, dl_web_exchange *x)
{
    const call *c = context;
    const http_place *p = &c->s->place;
    DL_TRY(head(c, x));
    DL_TRY(dl_buf_addf(&x->url, "%s/%s", p->base, p->bucket));
    if (*c->key) {
        DL_TRY(dl_buf_addf(&x->url, "/%s", p->prefix));
        DL_TRY(dl_web_escape(&x->url, c->key, true));
    }
    x->body = c->spans;
    x->n_body = c->n_spans;
    x->expect = c->total >= ASK_FIRST;
    return c->create ? dl_web_header(x, "If-None-Match: *") : DILOCO_OK;
}

/* A bucket that was there at open and is not now: its disk is away, perhaps. */
static diloco_status refused(const dl_web_exchange *x)
{
    if (x->status == 404 && dl_web_response_header(x, "X-Diloco-Missing"))
        return dl_fail(DILOCO_EUNREACHABLE, "%s: the hub does not have that run any more", x->what);
    if (x->status == 401)
        return dl_fail(DILOCO_EREFUSED,
                       "%s: the hub got no token that it knows; set DILOCO_HUB_TOKEN or "
                       "DILOCO_HUB_TOKEN_FILE to one, or take its join line",
                       x->what);
    return dl_web_unexpected(x);
}

static diloco_status finish(void *context, dl_web_exchange *x)
{
    call *c = context;
    c->taken = c->create && x->status == 412;
    const bool right = x->status >= 200 && x->status < 300;
    if (right && c->create) c->vouched = dl_http_took(x);
    return c->taken || right ? DILOCO_OK : refused(x);
}

static diloco_status run(const http_store *s, call *c, dl_time until)
{
    const dl_web_batch batch = {
        .n = 1, .width = 1, .context = c, .prepare = prepare, .finish = finish};
    return dl_web_run(s->web, &batch, until);
}

static diloco_status look_finish(void *context, dl_web_exchange *x)
{
    call *c = context;
    c->missing = x->status == 404;
    return c->missing || x->status == 200 ? DILOCO_OK : refused(x);
}

static diloco_status find_bucket(const http_store *s, bool create)
{
    call look = call_of(s, "HEAD", ""), make = call_of(s, "PUT", "");
    const dl_web_batch batch = {
        .n = 1, .width = 1, .context = &look, .prepare = prepare, .finish = look_finish};
    DL_TRY(dl_web_run(s->web, &batch, DL_NEVER));
    if (!look.missing) return DILOCO_OK;
    if (create) return run(s, &make, DL_NEVER);
    return dl_fail(DILOCO_ENOENT, "the hub has no %s", look.what);
}

static diloco_status set_up(http_store *s, const char *scheme, const char *place,
                            const dl_peer_access *access, const atomic_bool *aborted)
{
    s->aborted = aborted;
    DL_TRY(cut_place(&s->place, scheme, place));
    const bool own = access && access->pin;
    s->holds = access && access->holds;
    DL_TRY(own ? take_access(&s->place, access) : find_secrets(&s->place, scheme));
    if (!own && strcmp(scheme, "https") == 0) DL_TRY(find_certificate(&s->place));
    return dl_web_create(&s->web, &s->place.web, aborted);
}

static diloco_status open_place(http_store *s, const char *scheme, const char *place, bool create,
                                const atomic_bool *aborted)
{
    DL_TRY(set_up(s, scheme, place, NULL, aborted));
    return find_bucket(s, create);
}

static diloco_status http_open(void *self, const char *place, bool create,
                               const atomic_bool *aborted)
{
    return open_place(self, "http", place, create, aborted);
}

static diloco_status https_open(void *self, const char *place, bool create,
                                const atomic_bool *aborted)
{
    return open_place(self, "https", place, create, aborted);
}

static void http_close(void *self)
{
    http_store *s = self;
    dl_change_stream_destroy(s->stream);
    dl_http_upload_deinit(&s->upload);
    dl_web_destroy(s->web);
    if (s->place.authorization)
        OPENSSL_cleanse(s->place.authorization, strlen(s->place.authorization));
    free(s->place.authorization);
    dl_cleanse(&s->place.cert);
    dl_cleanse(&s->place.secret);
    free(s->place.base);
    free(s->place.bucket);
    free(s->place.prefix);
}

/* ---- objects */

/* Return true if one connection may not fill the line, or if the kernel does not report it. */
static bool is_far(const http_store *s)
{
    const dl_time trip = dl_web_trip(s->web);
    return !trip || trip >= FAR;
}

static diloco_status address(void *context, const char *key, dl_web_exchange *x)
{
    call *c = context;
    c->key = key;
    return prepare(c, x);
}

/* *done: it was not needless, and the hub knows parts. */
static diloco_status create_in_parts(http_store *s, const call *c, bool *done, bool *taken,
                                     dl_time until)
{
    call plain = *c;
    const dl_http_object object = {
        .key = c->key, .context = &plain, .address = address, .refused = refused};
    plain.spans = NULL;
    plain.n_spans = plain.total = 0;
    plain.create = false;
    *done = false;
    if (c->total < PARTS_FROM || s->upload.none || !is_far(s)) return DILOCO_OK;
    DL_TRY(dl_http_upload_run(&s->upload, s->web, &object, c->spans, c->n_spans, taken, until));
    *done = !s->upload.none;
    s->vouched = s->upload.vouched;
    return DILOCO_OK;
}

static diloco_status http_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                                 bool *taken, dl_time until)
{
    call c = call_of(self, "PUT", key);
    c.spans = spans;
    c.n_spans = n_spans;
    c.create = true;
    c.total = dl_spans_len(spans, n_spans);
    bool done;
    DL_TRY(create_in_parts(self, &c, &done, taken, until));
    if (done) return DILOCO_OK;
    DL_TRY(run(self, &c, until));
    *taken = c.taken;
    ((http_store *)self)->vouched = c.vouched;
    return DILOCO_OK;
}

static bool http_vouches(const void *self)
{
    return ((const http_store *)self)->vouched;
}

static diloco_status http_put(void *self, const char *key, const void *data, size_t len,
                              dl_time until)
{
    const dl_span span = {data, len};
    call c = call_of(self, "PUT", key);
    c.spans = &span;
    c.n_spans = 1;
    c.total = len;
    return run(self, &c, until);
}

static diloco_status http_remove(void *self, const char *key, dl_time until)
{
    call c = call_of(self, "DELETE", key);
    return run(self, &c, until);
}

/* Ask the node to wait for an object that is not there yet (RFC 7240, 4.3). */
static diloco_status prefer_to_wait(const call *c, dl_web_exchange *x)
{
    const dl_time left = c->until ? c->until - dl_clock_now() : 0;
    const int seconds = left < HOLD_S * DL_SECOND ? (int)(left / DL_SECOND) : HOLD_S;
    return seconds > 0 ? dl_web_header(x, "Prefer: wait=%d", seconds) : DILOCO_OK;
}

static diloco_status prepare_read(void *context, dl_web_exchange *x, const char *range,
                                  const char *if_match)
{
    DL_TRY(prepare(context, x));
    if (range) DL_TRY(dl_web_header(x, "Range: %s", range));
    return if_match ? dl_web_header(x, "If-Match: %s", if_match) : prefer_to_wait(context, x);
}

static diloco_status refuse_read(void *context, dl_web_exchange *x)
{
    const call *c = context;
    if (x->status == 404 && !dl_web_response_header(x, "X-Diloco-Missing"))
        return dl_fail(DILOCO_ENOENT, "%s is not in %s", c->key, c->s->place.base);
    return refused(x);
}

static diloco_status http_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    http_store *s = self;
    const bool far = is_far(s);
    call c = call_of(s, "GET", key);
    c.until = s->holds ? until : 0;
    const dl_web_source source = {.range = far ? RANGE_BYTES : WHOLE_BYTES,
                                  .width = far ? CONNECTIONS : 1,
                                  .context = &c,
                                  .prepare = prepare_read,
                                  .refused = refuse_read};
    return dl_web_read(s->web, &source, sink, until);
}

/* ---- listing */

/* "/list?run=bucket%2Fmore" and its kin. */
static diloco_status add_url(dl_buf *url, const http_place *place, const char *path)
{
    DL_TRY(dl_buf_addf(url, "%s%s?run=%s", place->base, path, place->bucket));
    if (!*place->prefix) return DILOCO_OK;
    DL_TRY(dl_buf_addf(url, "%%2F"));
    DL_TRY(dl_web_escape(url, place->prefix, false));
    url->len -= strlen("%2F"); /* the prefix's last '/' */
    return DILOCO_OK;
}

static diloco_status prepare_page(void *context, dl_web_exchange *x)
{
    const call *c = context;
    DL_TRY(head(c, x));
    x->lists = true;
    DL_TRY(add_url(&x->url, &c->s->place, "/list"));
    DL_TRY(dl_buf_addf(&x->url, "&limit=%d&prefix=", PAGE_KEYS));
    DL_TRY(dl_web_escape(&x->url, c->prefix, false));
    if (!c->after) return DILOCO_OK;
    DL_TRY(dl_buf_addf(&x->url, "&after="));
    return dl_web_escape(&x->url, c->after, false);
}

/* "<bytes> <key>", "more" or "end". The line comes from the server: every length is checked before
 * it is copied. */
static diloco_status take_line(call *c, const char *line, size_t len, bool *ended)
{
    const char *space = memchr(line, ' ', len);
    uint64_t bytes;
    c->more = len == 4 && !memcmp(line, "more", 4);
    *ended = c->more || (len == 3 && !memcmp(line, "end", 3));
    if (*ended) return DILOCO_OK;
    size_t key_len = space ? len - (size_t)(space + 1 - line) : 0;
    if (!space || key_len > DL_KEY_MAX || !dl_text_to_u64(&bytes, line, (size_t)(space - line)))
        return dl_fail(DILOCO_EPROTO, "%s: the hub's listing cannot be read", c->what);
    memcpy(c->last, space + 1, key_len);
    c->last[key_len] = '\0';
    return c->found(c->context, c->last, (size_t)bytes);
}

static diloco_status take_page(void *context, dl_web_exchange *x)
{
    call *c = context;
    bool ended = false;
    size_t n = 0;
    if (x->status != 200) return refused(x);
    const char *at = (const char *)x->text.data, *end = at + x->text.len;
    for (const char *line = at, *next; at && line < end && !ended; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        if (!next) break;
        DL_TRY(take_line(c, line, (size_t)(next - line), &ended));
        n += !ended;
    }
    if (ended && c->more && n == 0)
        return dl_fail(DILOCO_EPROTO, "%s: the hub's listing continues after no key", c->what);
    return ended ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "%s: the hub's listing was cut", c->what);
}

static diloco_status http_list(void *self, const char *prefix, const char *after, dl_found_fn found,
                               void *context, dl_time until)
{
    http_store *s = self;
    call c = call_of(s, "GET", "");
    const dl_web_batch batch = {.n = 1,
                                .width = 1,
                                .max_text = PAGE_KEYS * (DL_KEY_MAX + 24) + 64,
                                .context = &c,
                                .prepare = prepare_page,
                                .finish = take_page};
    c.prefix = prefix;
    c.after = after;
    c.found = found;
    c.context = context;
    do {
        DL_TRY(dl_web_run(s->web, &batch, until));
        c.after = c.last;
    } while (c.more);
    return DILOCO_OK;
}

/* ---- waiting, and what it cost */

static diloco_status prepare_events(void *context, dl_web_exchange *x, const char *folders,
                                    size_t len)
{
    http_store *s = context;
    x->method = "GET";
    x->what = "the hub's events";
    memset(&s->sse, 0, sizeof s->sse);
    if (s->place.authorization) DL_TRY(dl_web_header(x, "%s", s->place.authorization));
    DL_TRY(add_url(&x->url, &s->place, "/events"));
    for (size_t at = 0; at < len; at += strlen(folders + at) + 1) {
        DL_TRY(dl_buf_addf(&x->url, "&prefix="));
        DL_TRY(dl_web_escape(&x->url, folders + at, false));
    }
    return DILOCO_OK;
}

static void on_event(void *context, const char *event, const char *data)
{
    (void)event, (void)data;
    ((http_store *)context)->told_of = true;
}

static bool is_event(void *context, const void *data, size_t len)
{
    http_store *s = context;
    s->told_of = false;
    dl_sse_add(&s->sse, data, len, on_event, s);
    return s->told_of;
}

static diloco_status http_wait(void *self, const char *const *prefixes, size_t n, dl_time until)
{
    http_store *s = self;
    const dl_change_stream_args args = {.web = &s->place.web,
                                        .aborted = s->aborted,
                                        .context = s,
                                        .prepare = prepare_events,
                                        .is_event = is_event};
    if (!s->stream) DL_TRY(dl_change_stream_create(&s->stream, &args));
    return dl_change_stream_wait(s->stream, prefixes, n, until);
}

static void http_traffic(const void *self, dl_store_counters *counts)
{
    dl_web_add_traffic(counts, ((const http_store *)self)->web);
}

#define OF(name, opener)                                                                           \
    {                                                                                              \
        .scheme = name, .size = sizeof(http_store), .open = opener, .close = http_close,           \
        .create = http_create, .put = http_put, .read = http_read, .list = http_list,              \
        .remove = http_remove, .vouches = http_vouches, .wait = http_wait, .traffic = http_traffic \
    }
const dl_store_kind dl_store_http = OF("http", http_open);
const dl_store_kind dl_store_https = OF("https", https_open);

diloco_status dl_store_open_peer(dl_store **out, const char *address, const dl_peer_access *access)
{
    const bool tls = !strncmp(address, "https://", 8);
    const atomic_bool *aborted;
    void *self;
    char url[512];
    const int len = snprintf(url, sizeof url, "%s/run", address);
    const char *place = strstr(url, "://");
    if (len < 0 || (size_t)len >= sizeof url || !place) return bad_url(address);
    DL_TRY(dl_store_wrap(out, tls ? &dl_store_https : &dl_store_http, url, &self, &aborted));
    http_store *s = self;
    s->place.web.tries = PEER_TRIES;
    diloco_status status = set_up(s, tls ? "https" : "http", place + 3, access, aborted);
    if (!status) return dl_store_through_link(out);
    dl_store_close(*out);
    *out = NULL;
    return status;
}
