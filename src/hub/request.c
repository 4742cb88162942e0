/* request.c - one request from its first line to its last byte.
 *
 *     create   the target is known           parse it
 *     begin    all headers are               may it? what is it? refuse, answer, or ask for the
 *                                            body by setting `finish`
 *     add      a piece of the body           to its place, hashed on the way
 *     finish   the body is whole             answer
 *     end      answered, or broken off       free; an upload not published is discarded
 *
 * An answer may be ready before a body that is on its way already. It is held until that body
 * was thrown away, for closing on unread bytes can destroy the answer. There is no wait for a long
 * body, or for one whose sender waits for a "100 Continue". */
#include "base/host_port.h"
#include "base/log.h"
#include "base/text.h"
#include "hub/s3_api.h"
#include "hub/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Slower bodies are cut after options.slow seconds, so no client keeps a thread by sending a
 * byte now and then. */
enum { MIN_BYTES_PER_S = 1000 };

/* ---- answers */

/* The text is copied, so the caller may free it at once. Without memory the response is NULL,
 * and the connection is closed. */
dl_response dl_response_text(unsigned status, const char *type, const void *text, size_t len)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    dl_response reply = {status, response};
    dl_response_header(reply, "Content-Type", type);
    return reply;
}

dl_response dl_response_empty(unsigned status)
{
    return (dl_response){status, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)};
}

void dl_response_header(dl_response reply, const char *name, const char *value)
{
    if (reply.response) MHD_add_response_header(reply.response, name, value);
}

/* A reply in the form that the client reads: text, or S3's XML with `code`. Messages longer than
 * 511 bytes are cut. */
dl_response dl_refuse(dl_http_request *r, unsigned status, const char *code, const char *format,
                      ...)
{
    char message[512], text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (r->s3) return dl_hub_s3_refuse(status, code, message);
    int len = snprintf(text, sizeof text, "%s\n", message);
    return dl_response_text(status, "text/plain; charset=utf-8", text, (size_t)len);
}

/* Turn a status of the store into a reply. Failures of the disk are logged here and not shown,
 * because their text names paths of the hub's machine. */
dl_response dl_refuse_failed(dl_http_request *r, diloco_status status)
{
    if (status == DILOCO_ENOENT) return dl_refuse(r, 404, "NoSuchKey", "there is no such object");
    if (status == DILOCO_EINVAL || status == DILOCO_EPROTO)
        return dl_refuse(r, 400, "InvalidArgument", "%s", diloco_error_text());
    dl_log(DILOCO_LOG_WARN, "%s %s: %s", r->method, r->target.path, diloco_error_text());
    if (status == DILOCO_EFULL)
        return dl_refuse(r, 507, "InsufficientStorage", "the hub's disk is full");
    if (status == DILOCO_EUNREACHABLE)
        return dl_refuse(r, 503, "ServiceUnavailable", "the hub's folder does not answer");
    return dl_refuse(r, 500, "InternalError",
                     "the hub could not use its folder; its log has the error");
}

/* ---- kinds of requests */

const char *dl_request_header(const dl_http_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);
}

static dl_response health_begin(dl_http_request *r)
{
    (void)r; /* that the folder is there was seen on the way here */
    return dl_response_text(200, "text/plain", "ok\n", 3);
}

/* Paths of the hub itself; any other path is a bucket's. A row is a path and its handler: a new
 * endpoint is one row and its function in server.h. */
static const struct route {
    const char *path;
    dl_kind kind;
    bool open; /* for every client */
    dl_handler begin;
    bool page;   /* of the page: where the hub has none, there is no such path */
    bool viewed; /* there also where the hub only shows runs and is no store */
} routes[] = {
    {"/healthz", DL_KIND_HEALTH, true, health_begin, false, true},
    {"/metrics", DL_KIND_METRICS, false, dl_metrics_begin, false, false},
    {"/status.json", DL_KIND_STATUS, false, dl_status_begin, false, false},
    {"/list", DL_KIND_LIST, false, dl_list_begin, false, false},
    {"/events", DL_KIND_EVENTS, false, dl_events_begin, false, true},
    /* A name that begins with a dot is no bucket's, so no run is hidden by these. */
    {"/", DL_KIND_PAGE, true, dl_page_begin, true, true},
    {"/.page/page.js", DL_KIND_PAGE, true, dl_page_begin, true, true},
    {"/.page/page.css", DL_KIND_PAGE, true, dl_page_begin, true, true},
    {"/.page/runs", DL_KIND_PAGE, false, dl_page_runs_begin, true, true},
    {"/.page/run", DL_KIND_PAGE, false, dl_page_run_begin, true, true},
    {"/.page/entries", DL_KIND_PAGE, false, dl_page_entries_begin, true, true},
    {"/.page/settings", DL_KIND_PAGE, false, dl_page_settings_begin, true, true},
};
enum { N_ROUTES = sizeof routes / sizeof *routes };

/* A linear search: the table is short, and every name of a bucket is tried against it once. */
static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < N_ROUTES; i++)
        if (strcmp(routes[i].path, path) == 0) return &routes[i];
    return NULL;
}

/* A bucket cannot have the name of a route, or its objects would be hidden by it. */
bool dl_hub_bucket_name_ok(const char *name)
{
    char path[DL_BUCKET_MAX + 2];
    if (strlen(name) > DL_BUCKET_MAX || strchr(name, '/') || !dl_store_key_ok(name)) return false;
    snprintf(path, sizeof path, "/%s", name);
    return !find_route(path);
}

/* `path` is "bucket[/rest]", untrusted and already decoded. r->root may be written even if the
 * name is invalid, so callers look at the result first. */
bool dl_request_bucket(dl_http_request *r, const char *path, const char **rest)
{
    size_t len = strcspn(path, "/");
    if (len > DL_BUCKET_MAX) return false;
    memcpy(r->bucket, path, len);
    r->bucket[len] = '\0';
    *rest = path + len + (path[len] == '/');
    snprintf(r->root, sizeof r->root, "%s/%s", r->hub->dir, r->bucket);
    r->folder = (dl_file_store){.root = r->root, .aborted = &r->hub->never};
    return dl_hub_bucket_name_ok(r->bucket);
}

bool dl_hub_bucket_there(const dl_http_request *r)
{
    struct stat st;
    if (r->hub->options.viewed) return true;
    return lstat(r->root, &st) == 0 && S_ISDIR(st.st_mode);
}

/* X-Diloco-Missing says that the whole bucket is missing, not only the object. */
dl_response dl_refuse_no_bucket(dl_http_request *r)
{
    dl_response reply = dl_refuse(r, 404, "NoSuchBucket", "this server has no run %s", r->bucket);
    dl_response_header(reply, "X-Diloco-Missing", "bucket");
    return reply;
}

/* ---- may it? */

static const struct route *route_of(const dl_http_request *r)
{
    const struct route *route = find_route(r->target.path);
    return route && route->page && !r->hub->views ? NULL : route;
}

/* Return true if DIR is the folder that was opened at the start. After an unmount another folder
 * has its path, and writing there would split the run in two. */
static bool folder_is_ours(const dl_hub *hub)
{
    struct stat st;
    if (hub->options.viewed) return true;
    return stat(hub->dir, &st) == 0 && st.st_dev == hub->device && st.st_ino == hub->inode;
}

/* Return true if the Host header names this machine. A page of any site can let a browser here
 * ask an open hub on loopback by a name of that site's (DNS rebinding). A client that means this
 * machine names it. */
static bool host_is_ours(const dl_http_request *r)
{
    const char *host = dl_request_header(r, "Host");
    if (r->hub->any_host) return true;
    if (!host) return false;
    /* A Host header has neither a user nor a path, so no part of a URL may be hidden in it. */
    char url[DL_HOST_MAX + 32];
    const int n = snprintf(url, sizeof url, "http://%s", host);
    return n > 0 && (size_t)n < sizeof url && !strpbrk(host, "@/?#") && dl_url_is_loopback(url);
}

/* Return true if the client has shown one of the known keys in its certificate. */
static bool is_known(const dl_http_request *r)
{
    const dl_hub *hub = r->hub;
    dl_public peer;
    if (!dl_hub_needs_keys(hub) || !dl_request_peer(&peer, r)) return false;
    return dl_auth_is_member(&hub->auth, &peer) ||
           (hub->options.welcome && hub->options.welcome(hub->options.welcome_user, &peer));
}

/* Decide on access: a signature of S3, no credentials at all, a member's key, or a token, in
 * this order. A signed request is judged by its signature alone. */
static bool is_welcome(dl_http_request *r, dl_response *refusal)
{
    const dl_hub *hub = r->hub;
    if (dl_hub_s3_is_signed(r)) {
        r->s3 = true;
        return dl_hub_s3_is_welcome(r, refusal);
    }
    if (dl_hub_is_open(hub)) return true;
    if (is_known(r)) return true;
    if (dl_auth_bearer(&hub->auth, dl_request_header(r, "Authorization"))) return true;
    *refusal = dl_refuse(r, 401, "AccessDenied",
                         "this hub asks for a token that it knows: "
                         "Authorization: Bearer <token>%s",
                         dl_hub_needs_keys(hub) ? ", or for a certificate of a member's key" : "");
    dl_response_header(*refusal, "WWW-Authenticate", "Bearer realm=\"diloco hub\"");
    return false;
}

/* The target is no route: an object, a bucket, or S3. Asking for encryption is refused first,
 * since storing in plain text would break a promise. */
static dl_response begin_path(dl_http_request *r)
{
    const char *path = r->target.path + 1;
    dl_response refusal;
    if (dl_hub_s3_asks_to_encrypt(r, &refusal)) return refusal;
    if (r->s3) return dl_hub_s3_begin(r);
    if (!*path)
        return dl_refuse(r, 404, "",
                         "a diloco hub; /healthz, /metrics and "
                         "/status.json?run=RUN answer");
    if (!dl_request_bucket(r, path, &r->key))
        return dl_refuse(r, 400, "",
                         "that is not the path of an object: components of letters, "
                         "digits and ._=- that do not begin with a dot");
    return *r->key ? dl_object_begin(r) : dl_hub_bucket_begin(r);
}

/* Findings of see_header about the request's headers. */
typedef struct framing {
    unsigned n_lengths; /* headers that say where the body ends */
    bool bad_name;      /* a name that RFC 9110 does not allow */
} framing;

/* A name is letters, digits and some signs (RFC 9110, 5.6.2). libmicrohttpd takes a space before
 * the colon for a part of the name, and so misses a Content-Length. */
static enum MHD_Result see_header(void *context, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789"
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    framing *f = context;
    (void)kind, (void)value;
    f->n_lengths += !strcasecmp(name, "Content-Length") || !strcasecmp(name, "Transfer-Encoding");
    f->bad_name |= !*name || name[strspn(name, token)] != '\0';
    return MHD_YES;
}

/* Where a body ends has to be said once, lest a proxy in front, or libmicrohttpd itself, reads
 * another end. The connection ends: later bytes on it may be a part of the body. */
static bool is_framed_badly(dl_http_request *r, dl_response *refusal)
{
    framing f = {0};
    MHD_get_connection_values(r->mhd, MHD_HEADER_KIND, see_header, &f);
    if (f.bad_name)
        *refusal = dl_refuse(r, 400, "InvalidRequest", "the name of a header is invalid");
    else if (f.n_lengths > 1)
        *refusal = dl_refuse(r, 400, "InvalidRequest", "the body's length is given more than once");
    else
        return false;
    dl_response_header(*refusal, "Connection", "close");
    return true;
}

/* Judge a request whose headers are complete. The order matters: framing, before anything trusts
 * the body's end; access, before anything shows whether an object exists. */
static dl_response begin(dl_http_request *r)
{
    const struct route *route = r->target_status ? NULL : route_of(r);
    dl_response refusal = {0};
    if (is_framed_badly(r, &refusal)) return refusal;
    if (r->target_status) return dl_refuse(r, 400, "", "%s", diloco_error_text());
    if (atomic_load(&r->hub->stopping)) return dl_refuse(r, 503, "", "this hub is stopping");
    if (!folder_is_ours(r->hub))
        return dl_refuse(r, 503, "", "the hub's folder is gone; put it back, and the hub resumes");
    if (!host_is_ours(r))
        return dl_refuse(r, 421, "", "this hub answers to localhost and 127.0.0.1 only");
    /* Signed as S3 asks for it, GET / is ListBuckets and not the page. */
    const bool open = route && route->open && !(route->page && dl_hub_s3_is_signed(r));
    if (!open && !is_welcome(r, &refusal)) return refusal;
    /* On an open route no access was shown, unless the hub asks for none. The client stays
     * untrusted and keeps its short time limit. */
    if (!open || dl_hub_is_open(r->hub)) dl_connection_welcome(r->connection);
    if (r->hub->options.viewed && !(route && route->viewed && !r->s3))
        return dl_refuse(r, 404, "", "this server only shows runs and stores none");
    if (!route || r->s3) return begin_path(r);
    r->kind = route->kind;
    if (strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0) {
        refusal = dl_refuse(r, 405, "", "%s is read only", route->path);
        dl_response_header(refusal, "Allow", "GET, HEAD");
        return refusal;
    }
    return route->begin(r);
}

/* ---- the body */

static void set_timeout(const dl_http_request *r, dl_time limit)
{
    unsigned seconds = (unsigned)((limit + DL_SECOND - 1) / DL_SECOND);
    MHD_set_connection_option(r->mhd, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

void dl_request_untimed(const dl_http_request *r)
{
    set_timeout(r, 0);
}

static void body_fail(dl_body *b, diloco_status status)
{
    if (!b->status) b->status = status;
}

/* Take a piece of the object itself, without framing. Its bytes are hashed on the way, so a body
 * is read once. Returns DILOCO_EFULL past --max-object. */
static diloco_status body_take(void *context, const void *data, size_t len)
{
    dl_http_request *r = context;
    dl_body *b = &r->body;
    b->len += len;
    if (b->sha256) EVP_DigestUpdate(b->sha256, data, len);
    if (b->md5) EVP_DigestUpdate(b->md5, data, len);
    if (b->digest) dl_digest_add(b->digest, data, len);
    if (b->checksum.kind) dl_checksum_add(&b->checksum, data, len);
    if (b->kind == DL_BODY_TEXT) return dl_buf_add(&b->text, data, len);
    if (b->len > r->hub->options.max_object) {
        b->too_long = true;
        return DILOCO_EFULL;
    }
    return dl_upload_add(&b->upload, &r->folder, r->key, data, len, DL_NEVER);
}

/* Take a piece of the body. Returns false to cut the connection: the body is longer than any may
 * be, or too slow. Pieces after a failure are thrown away, so that the reply can say what
 * failed. */
static bool body_add(dl_http_request *r, const char *data, size_t len)
{
    dl_body *b = &r->body;
    uint64_t limit = DL_TEXT_BODY_MAX;
    dl_time gone = dl_clock_now() - b->began;
    b->received += len;
    atomic_fetch_add(&r->hub->metrics.bytes_in, len);
    /* A framed body is longer than its object, by lines that DL_TEXT_BODY_MAX covers. */
    if (b->kind == DL_BODY_FILE) limit = r->hub->options.max_object + DL_TEXT_BODY_MAX;
    if (b->received > limit) return false;
    if (gone > r->hub->options.slow && (double)b->received < dl_seconds(gone) * MIN_BYTES_PER_S)
        return false;
    if (b->kind == DL_BODY_NONE || b->status) return true;
    body_fail(b, b->chunks ? dl_chunks_add(b->chunks, data, len, body_take, r)
                           : body_take(r, data, len));
    return true;
}

/* ---- the lifetime of a request */

/* Called before the headers are read. An invalid target is kept as target_status and refused
 * later, when a reply can be sent. */
void *dl_request_create(dl_hub *hub, const char *target, struct MHD_Connection *mhd)
{
    dl_http_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    r->hub = hub;
    r->mhd = mhd;
    r->connection = info ? info->socket_context : NULL;
    r->key = "";
    r->began = dl_clock_now();
    r->body.upload.dir = r->body.upload.fd = -1;
    dl_buf_init(&r->body.text, DL_TEXT_BODY_MAX);
    r->target_status = dl_target_parse(&r->target, target);
    return r;
}

/* Queue the reply and give it up. Returns MHD_NO to close the connection if there is no reply,
 * for lack of memory. */
static enum MHD_Result queue(dl_http_request *r, dl_response reply)
{
    if (!reply.response) return MHD_NO; /* no memory */
    if (atomic_load(&r->hub->stopping)) dl_response_header(reply, "Connection", "close");
    set_timeout(r, r->hub->options.stalled);
    enum MHD_Result result = MHD_queue_response(r->mhd, reply.status, reply.response);
    MHD_destroy_response(reply.response);
    if (result == MHD_NO) return result;
    r->status = reply.status;
    /* Before its first byte leaves: a client with this answer then finds itself in the metrics. */
    dl_metrics_count(&r->hub->metrics, r->kind, r->status);
    return result;
}

/* Return true if the reply has to be sent before the body arrives. libmicrohttpd then closes the
 * connection, so only for a client that waits for "100 Continue" or sends a long body. */
static bool must_reply_now(const dl_http_request *r)
{
    const char *length = dl_request_header(r, "Content-Length");
    uint64_t n = 0;
    if (!length && !dl_request_header(r, "Transfer-Encoding")) return false;
    if (dl_request_header(r, "Expect")) return true;
    return length && dl_text_to_u64(&n, length, strlen(length)) && n > DL_TEXT_BODY_MAX;
}

/* Begin the digest of the received bytes (B4). The sender compares it and need not read the
 * object back (P8). S3 has its own header for that. */
static bool prepare_digest(dl_body *b)
{
    b->digest = aligned_alloc(_Alignof(dl_digest_stream), sizeof *b->digest);
    if (b->digest) dl_digest_begin(b->digest);
    return b->digest;
}

static void send_digest(dl_body *b, dl_response reply)
{
    char hex[DL_HASH_HEX + 1];
    if (!b->digest || reply.status > 299 || !reply.response) return;
    dl_hash_to_hex(hex, dl_digest_end(b->digest));
    dl_response_header(reply, "X-Diloco-Digest", hex);
}

/* All headers are here. A held reply waits until the body was thrown away; otherwise `finish` is
 * called once the body is whole. */
static enum MHD_Result first_step(dl_http_request *r, const char *method)
{
    r->begun = true;
    atomic_fetch_add(&r->hub->in_flight, 1);
    if (r->connection) dl_connection_busy(r->connection, true);
    snprintf(r->method, sizeof r->method, "%s", method);
    r->held = begin(r);
    if (r->held.response && must_reply_now(r)) {
        dl_response reply = r->held;
        r->held.response = NULL;
        return queue(r, reply);
    }
    if (!r->held.response && !r->finish) return MHD_NO; /* no memory */
    if (r->held.response) r->body.kind = DL_BODY_NONE;
    if (r->body.kind == DL_BODY_FILE && !r->s3 && !prepare_digest(&r->body)) return MHD_NO;
    r->body.began = dl_clock_now();
    set_timeout(r, r->hub->options.stalled);
    return MHD_YES;
}

/* Check the body against its framing and its headers. Returns false and sets *refusal on the
 * first fault. */
static bool body_is_right(dl_http_request *r, dl_response *refusal)
{
    dl_body *b = &r->body;
    if (b->chunks && !b->status) b->status = dl_chunks_end(b->chunks);
    if (b->too_long)
        *refusal = dl_refuse(r, 413, "EntityTooLarge",
                             "the object is longer than the %llu bytes that this hub takes",
                             (unsigned long long)r->hub->options.max_object);
    else if (b->status)
        *refusal = dl_refuse_failed(r, b->status);
    else
        return dl_hub_s3_check_body(r, refusal);
    return false;
}

/* The body is whole: check it and let the handler finish. An unpublished object is removed
 * before the reply says so. */
static dl_response finish(dl_http_request *r)
{
    dl_response reply;
    if (body_is_right(r, &reply)) reply = r->finish(r);
    dl_upload_discard(&r->body.upload);
    send_digest(&r->body, reply);
    return reply;
}

/* libmicrohttpd calls it with the headers, then with each piece, then with *len 0. *len becomes
 * the number of bytes that are left, always 0. */
enum MHD_Result dl_request_step(dl_http_request *r, const char *method, const char *data,
                                size_t *len)
{
    if (!r->begun) return first_step(r, method);
    if (*len) {
        bool ok = body_add(r, data, *len);
        *len = 0;
        return ok ? MHD_YES : MHD_NO;
    }
    if (r->status) return MHD_YES;
    dl_response reply = r->held;
    r->held.response = NULL;
    if (!reply.response) {
        dl_request_untimed(r); /* syncing may take long, and is not the client's fault */
        reply = finish(r);
    }
    return queue(r, reply);
}

/* Free all that the request owns. in_flight falls last, because dl_hub_stop may free the hub
 * from then on. */
void dl_request_end(dl_http_request *r, bool whole)
{
    dl_hub *hub = r->hub;
    bool begun = r->begun, answered = r->status && whole;
    if (!answered && r->kind != DL_KIND_EVENTS) /* a stream always ends so */
        atomic_fetch_add(&hub->metrics.cut, 1);
    atomic_fetch_add(&hub->metrics.bytes_out, answered && r->status < 300 ? r->sent : 0);
    dl_log(DILOCO_LOG_DEBUG, "%s %s %u, %llu bytes in, %.1f ms", r->method,
           r->target_status ? "?" : r->target.path, r->status, (unsigned long long)r->body.received,
           1e3 * dl_seconds(dl_clock_now() - r->began));
    set_timeout(r, hub->options.idle);
    dl_upload_discard(&r->body.upload);
    dl_buf_deinit(&r->body.text);
    EVP_MD_CTX_free(r->body.sha256);
    EVP_MD_CTX_free(r->body.md5);
    free(r->body.digest);
    free(r->body.chunks);
    dl_checksum_deinit(&r->body.checksum);
    if (r->held.response) MHD_destroy_response(r->held.response);
    if (r->connection && begun) dl_connection_busy(r->connection, false);
    free(r);
    if (begun) atomic_fetch_sub(&hub->in_flight, 1);
}
