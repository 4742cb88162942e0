/* object.c - objects and buckets: GET, HEAD, PUT, DELETE.
 *
 * Existing bytes are never replaced by others, heartbeats apart, and the log is never deleted. A
 * run needs that of its store (P5, P25, P26), and the hub enforces it for every client. A PUT
 * has three steps. dl_object_put checks the headers, request.c writes the body to a temporary
 * file, and put_finish publishes it under its name. */
#include "base/text.h"
#include "hub/s3_api.h"
#include "store/run_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { READ_BLOCK = 64 << 10, HOLD_MAX_S = 30 };

static dl_response refuse_key(dl_http_request *r)
{
    return dl_refuse(r, 400, "InvalidArgument",
                     "that is not the name of an object: 1 to %d bytes in components of letters, "
                     "digits and ._=- that do not begin with a dot",
                     DL_KEY_MAX);
}

/* ---- reading */

/* The tag has the file's inode, time of writing in nanoseconds, and size. An object is a file
 * that is made once, so these change whenever the object does. */
void dl_etag_of(dl_etag out, const struct stat *st)
{
    snprintf(out, sizeof(dl_etag), "\"%jx-%jx%08lx-%jx\"", (uintmax_t)st->st_ino,
             (uintmax_t)st->st_mtim.tv_sec, (unsigned long)st->st_mtim.tv_nsec,
             (uintmax_t)st->st_size);
}

/* The date of RFC 9110 (5.6.7). It is written by hand because strftime follows the locale. */
void dl_http_date(char out[40], int64_t seconds)
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!gmtime_r(&t, &tm)) memset(&tm, 0, sizeof tm);
    snprintf(out, 40, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT", days + 3 * tm.tm_wday,
             (unsigned)tm.tm_mday % 100, months + 3 * tm.tm_mon,
             (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100,
             (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
}

/* A range of a file that is sent by reads. Over TLS the bytes pass through this process, and
 * libmicrohttpd's own reading of a file is by 4 KiB. Without TLS it uses sendfile. */
typedef struct part {
    int fd;         /* owned */
    uint64_t begin; /* of the range, in bytes */
} part;

/* A file that became shorter ends the connection by an error. The client then sees a cut reply,
 * and not a short object that looks whole. */
static ssize_t read_part(void *cls, uint64_t at, char *out, size_t cap)
{
    const part *p = cls;
    ssize_t n;
    while ((n = pread(p->fd, out, cap, (off_t)(p->begin + at))) < 0 && errno == EINTR) {
    }
    return n > 0 ? n : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void free_part(void *cls)
{
    part *p = cls;
    close(p->fd);
    free(p);
}

/* Make a reply of n bytes of the file from `begin` on. It takes the descriptor over, also on
 * failure. */
static struct MHD_Response *respond_with_file(const dl_hub *hub, int fd, uint64_t begin, uint64_t n)
{
    struct MHD_Response *response = NULL;
    if (!hub->tls) {
        response = MHD_create_response_from_fd_at_offset64(n, fd, begin);
    } else {
        part *p = malloc(sizeof *p);
        if (p) *p = (part){fd, begin};
        if (p) response = MHD_create_response_from_callback(n, READ_BLOCK, read_part, p, free_part);
        if (p && !response) free(p);
    }
    if (!response) close(fd);
    return response;
}

/* Apply If-Match and If-None-Match to a read. Returns 412, 304, or 0 to continue. Clients send
 * If-Match with ranges, so pieces of two objects are never joined. */
static unsigned precondition(const dl_http_request *r, const char *etag)
{
    const char *match = dl_request_header(r, "If-Match");
    const char *none = dl_request_header(r, "If-None-Match");
    if (match && strcmp(match, "*") != 0 && !strstr(match, etag)) return 412;
    if (none && (strcmp(none, "*") == 0 || strstr(none, etag))) return 304;
    return 0;
}

static const char *type_of(const char *key)
{
    const char *dot = strrchr(key, '.');
    if (dot && strcmp(dot, ".json") == 0) return "application/json";
    return "application/octet-stream";
}

/* Reply with the object, or with a range of it. Takes the descriptor over. HEAD has the same
 * headers, and libmicrohttpd leaves the body out. */
static dl_response reply_object(dl_http_request *r, int fd, const struct stat *st)
{
    dl_etag etag;
    char date[40], range[96];
    uint64_t begin, n, len = (uint64_t)st->st_size;
    dl_etag_of(etag, st);
    unsigned failed = precondition(r, etag);
    dl_range kind = dl_range_parse(&begin, &n, dl_request_header(r, "Range"), len);
    if (failed || kind == DL_RANGE_BEYOND) {
        close(fd);
        if (failed == 304) return dl_response_empty(304);
        if (failed) return dl_refuse(r, 412, "PreconditionFailed", "the object has another ETag");
        return dl_refuse(r, 416, "InvalidRange", "the object has %" PRIu64 " bytes", len);
    }
    dl_response reply = {kind == DL_RANGE_PART ? 206 : 200, NULL};
    reply.response = respond_with_file(r->hub, fd, begin, n);
    r->sent = strcmp(r->method, "HEAD") ? n : 0;
    dl_http_date(date, st->st_mtim.tv_sec);
    dl_response_header(reply, "ETag", etag);
    dl_response_header(reply, "Last-Modified", date);
    dl_response_header(reply, "Accept-Ranges", "bytes");
    dl_response_header(reply, "Content-Type", type_of(r->key));
    if (kind == DL_RANGE_PART) {
        snprintf(range, sizeof range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, begin,
                 begin + n - 1, len);
        dl_response_header(reply, "Content-Range", range);
    }
    return reply;
}

/* Return the seconds that the client wants to wait for an object (RFC 7240, 4.3), or 0. */
static uint64_t seconds_to_hold(const dl_http_request *r)
{
    static const char word[] = "wait=";
    const char *prefer = dl_request_header(r, "Prefer");
    uint64_t seconds;
    if (!prefer || strncmp(prefer, word, strlen(word)) != 0) return 0;
    prefer += strlen(word);
    if (!dl_text_to_u64(&seconds, prefer, strlen(prefer))) return 0;
    return seconds < HOLD_MAX_S ? seconds : HOLD_MAX_S;
}

/* Open an object of a node, and wait for one that is not there yet if the client prefers that. The
 * node itself reports its objects. So a reader needs one request, however early it asks. Held reads
 * leave a quarter of the connections to other requests. */
static diloco_status open_or_await(dl_http_request *r, int *fd, struct stat *st)
{
    char base[DL_BUCKET_MAX + 2];
    dl_hub *hub = r->hub;
    dl_stream *stream;
    const uint64_t seconds = hub->options.node ? seconds_to_hold(r) : 0;
    const dl_time until = dl_clock_now() + (dl_time)seconds * DL_SECOND;
    diloco_status status = dl_file_store_object(&r->folder, r->key, fd, st);
    if (status != DILOCO_ENOENT || !seconds || dl_hub_is_crowded(hub)) return status;
    snprintf(base, sizeof base, "%s/", r->bucket);
    if (dl_stream_open_awaited(&stream, &hub->events, base, r->key,
                               dl_connection_fd(r->connection)))
        return status;
    atomic_fetch_add(&hub->metrics.held, 1);
    dl_request_untimed(r);
    do
        status = dl_file_store_object(&r->folder, r->key, fd, st);
    while (status == DILOCO_ENOENT && dl_stream_await(stream, until));
    dl_stream_close(stream);
    atomic_fetch_sub(&hub->metrics.held, 1);
    return status;
}

/* The descriptor stays open for the whole reply. So an object that is deleted meanwhile is still
 * sent whole. */
dl_response dl_object_get(dl_http_request *r)
{
    struct stat st;
    int fd;
    r->kind = strcmp(r->method, "HEAD") ? DL_KIND_GET : DL_KIND_HEAD;
    diloco_status status = open_or_await(r, &fd, &st);
    return status ? dl_refuse_failed(r, status) : reply_object(r, fd, &st);
}

/* ---- writing */

/* A conditional PUT gets 412: the client compares the bytes with its own (P5). A plain PUT gets
 * 409. */
static dl_response refuse_taken(dl_http_request *r)
{
    if (r->kind == DL_KIND_CREATE)
        return dl_refuse(r, 412, "PreconditionFailed", "an object of that name exists already");
    return dl_refuse(r, 409, "OperationAborted",
                     "another object of that name exists; only heartbeats (hb/) are replaced");
}

/* Return what kind of key this is for the run that contains it. The bucket, and each folder in
 * it that holds a run.json, may be a run. The first shape that no object can have counts, else
 * that of the bucket. */
static dl_key_shape shape_of(const dl_http_request *r, const char *key)
{
    char path[sizeof r->root + DL_KEY_MAX + sizeof "//run.json"];
    dl_key_shape of_bucket = DL_KEY_FREE;
    struct stat st;
    /* Each turn takes one more folder of the key as the run's place. */
    for (const char *at = key; at; at = strchr(at, '/')) {
        at += at > key;
        snprintf(path, sizeof path, "%s/%.*srun.json", r->root, (int)(at - key), key);
        if (lstat(path, &st) || !S_ISREG(st.st_mode)) continue;
        const dl_key_shape shape = dl_run_key_shape(at);
        if (shape == DL_KEY_FOLDER || shape == DL_KEY_WRONG) return shape;
        if (at == key) of_bucket = shape;
    }
    return of_bucket;
}

/* Walk down the key's folders on the disk. A file in place of a folder, or a folder in place of
 * the object, blocks the key. */
bool dl_object_is_blocked(dl_http_request *r, const char *key, dl_response *refusal)
{
    char path[sizeof r->root + DL_KEY_MAX + 2];
    struct stat st;
    const dl_key_shape shape = shape_of(r, key);
    if (shape == DL_KEY_FOLDER || shape == DL_KEY_WRONG) {
        *refusal = dl_refuse(r, 409, "OperationAborted",
                             "%s: a run keeps no object under that name (docs/formats.md)", key);
        return true;
    }
    /* The store itself makes room in the folders of a run that is a whole bucket. */
    if (shape == DL_KEY_OBJECT) return false;
    snprintf(path, sizeof path, "%s/%s", r->root, key);
    for (char *at = path + strlen(r->root), *slash; at; at = slash) {
        slash = strchr(at + 1, '/');
        if (slash) *slash = '\0';
        if (lstat(path, &st)) return false; /* the rest is free */
        /* The last component must not be a folder; each one before it must be. */
        if (S_ISDIR(st.st_mode) == !slash) {
            *refusal = dl_refuse(r, 409, "OperationAborted",
                                 "%s: a key cannot be both an object and the folder of another",
                                 path + strlen(r->root) + 1);
            return true;
        }
        if (slash) *slash = '/';
    }
    return false;
}

bool dl_object_has_length(dl_http_request *r, dl_response *refusal)
{
    if (dl_request_header(r, "Content-Length") || dl_request_header(r, "Transfer-Encoding"))
        return true;
    *refusal =
        dl_refuse(r, 411, "MissingContentLength", "a PUT of an object needs a Content-Length");
    return false;
}

/* Compare two files by blocks. Neither changes meanwhile: one is published and the other is the
 * caller's. */
static bool same_bytes(int a, int b)
{
    char x[16 << 10], y[sizeof x];
    for (off_t at = 0;; at += (off_t)sizeof x) {
        ssize_t n = pread(a, x, sizeof x, at), m = pread(b, y, sizeof y, at);
        if (n < 0 || n != m || memcmp(x, y, (size_t)n) != 0) return false;
        if (n < (ssize_t)sizeof x) return true; /* files do not end in the middle */
    }
}

/* Compare the upload with the object of that name. *st is of the object that is there, also
 * where the bytes differ. */
bool dl_object_is_the_same(dl_http_request *r, const dl_upload *upload, const char *key,
                           struct stat *st)
{
    int there, ours = openat(upload->dir, upload->name, O_RDONLY | O_CLOEXEC);
    bool same = false;
    if (ours >= 0 && !dl_file_store_object(&r->folder, key, &there, st)) {
        same = same_bytes(ours, there);
        close(there);
    }
    if (ours >= 0) close(ours);
    return same;
}

/* The bytes of the object; -1: no such object. */
static int64_t length_of(dl_http_request *r, const char *key)
{
    struct stat st;
    int fd;
    if (dl_file_store_object(&r->folder, key, &fd, &st)) return -1;
    close(fd);
    return st.st_size;
}

bool dl_object_publish(dl_http_request *r, dl_upload *upload, const char *key, struct stat *st,
                       dl_response *reply)
{
    char path[DL_BUCKET_MAX + DL_KEY_MAX + 2];
    /* Only a heartbeat that is put without a condition replaces (hub.md, Objects). Any other
     * name is created by link(2), so of two writers at once exactly one wins (P26). */
    bool taken = false, replace = r->kind != DL_KIND_CREATE && dl_key_is_heartbeat(key);
    /* The attributes are read before publishing: afterwards the name may be another object's
     * already. */
    if (fstat(upload->fd, st)) memset(st, 0, sizeof *st);
    diloco_status status = upload->fd < 0 ? DILOCO_OK : dl_upload_finish(upload, &r->folder, key);
    const int64_t before = replace ? length_of(r, key) : -1;
    dl_holdings_begin(&r->hub->tally, r->bucket);
    if (!status) status = dl_upload_publish(upload, &r->folder, key, replace ? NULL : &taken);
    const bool published = !status && !taken;
    dl_holdings_end(&r->hub->tally, r->bucket, key, published ? st->st_size : -1,
                    published ? before : -1);
    /* A plain PUT of what is there already has succeeded: tools repeat them. */
    if (!status && taken && r->kind != DL_KIND_CREATE && dl_object_is_the_same(r, upload, key, st))
        return true;
    /* A store error on a blocked key says little, so the cause that the client can act on is
     * looked for first. */
    if (status || taken) {
        if (!dl_object_is_blocked(r, key, reply))
            *reply = status ? dl_refuse_failed(r, status) : refuse_taken(r);
        return false;
    }
    snprintf(path, sizeof path, "%s/%s", r->bucket, key);
    dl_events_report(&r->hub->events, path);
    return true;
}

/* The object is on the disk and reported when the reply is queued; its ETag is that of the
 * published file. */
static dl_response put_finish(dl_http_request *r)
{
    dl_response reply;
    dl_etag etag;
    struct stat st;
    if (!dl_object_publish(r, &r->body.upload, r->key, &st, &reply)) return reply;
    reply = dl_response_empty(r->s3 ? 200 : 201);
    dl_etag_of(etag, &st);
    dl_response_header(reply, "ETag", etag);
    dl_hub_s3_repeat_checksum(r, reply);
    return reply;
}

/* Return false if the disk has no room for len bytes. It spares a client a long upload that must
 * fail; the write itself still decides. */
static bool has_room(const dl_http_request *r, uint64_t len)
{
    struct statvfs fs;
    if (statvfs(r->root, &fs)) return true; /* then the write will show */
    return len / fs.f_frsize < fs.f_bavail;
}

bool dl_object_is_there(dl_http_request *r)
{
    struct stat st;
    int fd;
    if (dl_file_store_object(&r->folder, r->key, &fd, &st)) return false;
    close(fd);
    return true;
}

/* Check everything that the headers show before the first byte of the body is stored. The cheap
 * checks come first, and the temporary file is made last. */
dl_response dl_object_put(dl_http_request *r)
{
    const char *condition = dl_request_header(r, "If-None-Match");
    const char *length = dl_request_header(r, "Content-Length");
    uint64_t len = 0;
    dl_response refusal;
    r->kind = condition ? DL_KIND_CREATE : DL_KIND_PUT;
    if ((condition && strcmp(condition, "*") != 0) || dl_request_header(r, "If-Match"))
        return dl_refuse(r, 400, "InvalidArgument", "the condition of a PUT is If-None-Match: *");
    if (dl_request_header(r, "Content-Encoding") && !r->s3)
        return dl_refuse(r, 400, "", "an object is stored as it is sent: no Content-Encoding");
    if (length && dl_text_to_u64(&len, length, strlen(length)) && len > r->hub->options.max_object)
        return dl_refuse(r, 413, "EntityTooLarge",
                         "the object is longer than the %" PRIu64 " bytes that this hub takes",
                         r->hub->options.max_object);
    if (!has_room(r, len))
        return dl_refuse(r, 507, "InsufficientStorage", "the hub's disk is full");
    /* The name may be taken later too; this only spares the upload of bytes that could not be
     * published. */
    if (condition && dl_object_is_there(r)) return refuse_taken(r);
    if (!dl_object_has_length(r, &refusal)) return refusal;
    if (dl_object_is_blocked(r, r->key, &refusal)) return refusal;
    refusal = dl_hub_s3_prepare_checksum(r);
    if (refusal.response) return refusal;
    diloco_status status = dl_upload_begin(&r->body.upload, &r->folder, r->key);
    if (status) return dl_refuse_failed(r, status);
    r->body.kind = DL_BODY_FILE;
    r->finish = put_finish;
    return (dl_response){0};
}

/* A bucket is opened for each call. A handle is not kept, since requests run on many threads and
 * a handle serves one. */
diloco_status dl_hub_bucket_open(dl_store **out, const dl_http_request *r, bool create)
{
    char url[sizeof "file://" + sizeof r->root];
    snprintf(url, sizeof url, "file://%s", r->root);
    return dl_store_open(out, url, create);
}

/* Deleting an object that is missing succeeds, so clients may repeat it. The log's keys are
 * refused, since a deleted name could be decided twice (P25). */
dl_response dl_object_delete(dl_http_request *r)
{
    char path[DL_BUCKET_MAX + DL_KEY_MAX + 2];
    dl_store *store;
    r->kind = DL_KIND_DELETE;
    if (dl_key_is_kept(r->key))
        return dl_refuse(r, 403, "AccessDenied",
                         "run.json, the log and generations are never "
                         "deleted");
    diloco_status status = dl_hub_bucket_open(&store, r, false);
    if (status) return dl_refuse_failed(r, status);
    const int64_t before = length_of(r, r->key);
    dl_holdings_begin(&r->hub->tally, r->bucket);
    status = dl_store_delete(store, r->key, DL_NEVER);
    dl_holdings_end(&r->hub->tally, r->bucket, r->key, -1, status ? -1 : before);
    dl_store_close(store);
    if (status) return dl_refuse_failed(r, status);
    snprintf(path, sizeof path, "%s/%s", r->bucket, r->key);
    dl_events_report(&r->hub->events, path);
    return dl_response_empty(204);
}

/* ---- a node's hub (hub.h) */

/* Ends the listing by DILOCO_EFULL at the DL_HUB_KNOWN-th name. */
static diloco_status count_key(void *context, const char *key, size_t len)
{
    size_t *n = context;
    (void)key, (void)len;
    return ++*n < DL_HUB_KNOWN ? DILOCO_OK : DILOCO_EFULL;
}

/* A node of a swarm takes heartbeats of a bounded number of others. A known one may always be
 * renewed. */
static bool has_room_for_known(dl_http_request *r)
{
    dl_store *store;
    size_t n = 0;
    if (dl_object_is_there(r)) return true;
    if (dl_hub_bucket_open(&store, r, false)) return false;
    const diloco_status status = dl_store_list(store, "hb/", NULL, count_key, &n, DL_NEVER);
    dl_store_close(store);
    return !status;
}

/* Refuse every write to a node's hub but the heartbeat of another node. Peers are untrusted, so
 * size and number are bounded before anything is stored. */
static bool node_refuses(dl_http_request *r, dl_response *refusal)
{
    const char *length = dl_request_header(r, "Content-Length");
    const bool known = !strncmp(r->key, "hb/", 3) && !strchr(r->key + 3, '/');
    uint64_t len = 0;
    if (strcmp(r->method, "PUT") != 0 || !known || strcmp(r->key + 3, r->hub->options.node) == 0 ||
        dl_request_header(r, "If-None-Match"))
        *refusal = dl_refuse(r, 403, "AccessDenied",
                             "this is the server of a node: its objects can only be read, except "
                             "that other nodes write hb/<name>");
    else if (!length || !dl_text_to_u64(&len, length, strlen(length)) || len > DL_HUB_KNOWN_BYTES)
        *refusal = dl_refuse(r, 413, "EntityTooLarge", "a heartbeat has at most %d bytes",
                             DL_HUB_KNOWN_BYTES);
    else if (!has_room_for_known(r))
        *refusal = dl_refuse(r, 507, "InsufficientStorage",
                             "this node stores no more heartbeats of other nodes");
    else
        return false;
    return true;
}

static bool is_read(const dl_http_request *r)
{
    return !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD");
}

static dl_response refuse_change(dl_http_request *r)
{
    return dl_refuse(r, 403, "AccessDenied", "a member's own files are read-only here");
}

/* Find the handler by the method. Read-only hubs and nodes refuse before the bucket is looked
 * at, for parts of objects as well. */
dl_response dl_object_begin(dl_http_request *r)
{
    dl_response refusal;
    static const struct {
        const char *method;
        dl_handler begin;
    } methods[] = {{"GET", dl_object_get},
                   {"HEAD", dl_object_get},
                   {"PUT", dl_object_put},
                   {"DELETE", dl_object_delete}};
    if (!dl_store_key_ok(r->key)) return refuse_key(r);
    if (r->hub->options.read_only && !is_read(r)) return refuse_change(r);
    if (r->hub->options.node && !is_read(r) && node_refuses(r, &refusal)) return refusal;
    if (dl_hub_is_of_parts(r))
        return dl_hub_bucket_there(r) ? dl_hub_parts_begin(r) : dl_refuse_no_bucket(r);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].method, r->method) == 0)
            return dl_hub_bucket_there(r) ? methods[i].begin(r) : dl_refuse_no_bucket(r);
    dl_response reply =
        dl_refuse(r, 405, "MethodNotAllowed", "an object takes GET, HEAD, PUT, DELETE");
    dl_response_header(reply, "Allow", "GET, HEAD, PUT, DELETE");
    return reply;
}

/* ---- buckets */

/* Make the bucket with all that a folder store has, and sync it to the disk. 201: it is new;
 * 200: it was there, or the client speaks S3. */
dl_response dl_hub_bucket_make(dl_http_request *r)
{
    dl_store *store;
    r->kind = DL_KIND_BUCKET;
    bool there = dl_hub_bucket_there(r);
    diloco_status status = dl_hub_bucket_open(&store, r, true);
    if (status) return dl_refuse_failed(r, status);
    dl_store_close(store);
    if (!there) dl_holdings_made(&r->hub->tally, r->bucket);
    return dl_response_empty(there || r->s3 ? 200 : 201);
}

/* A bucket is made only by a PUT of its own path: no PUT of an object makes one, so a misspelt
 * run is an error. */
dl_response dl_hub_bucket_begin(dl_http_request *r)
{
    r->kind = DL_KIND_BUCKET;
    if (r->hub->options.read_only && !is_read(r)) return refuse_change(r);
    if (r->hub->options.node && !is_read(r))
        return dl_refuse(r, 403, "AccessDenied",
                         "this is the server of a node: its run can only be read");
    if (strcmp(r->method, "PUT") == 0) {
        r->finish = dl_hub_bucket_make;
        return (dl_response){0};
    }
    if (strcmp(r->method, "HEAD") == 0 || strcmp(r->method, "GET") == 0)
        return dl_hub_bucket_there(r) ? dl_response_empty(200) : dl_refuse_no_bucket(r);
    dl_response reply = dl_refuse(r, 405, "MethodNotAllowed",
                                  "a run takes PUT and HEAD; "
                                  "/list?run=RUN lists it");
    dl_response_header(reply, "Allow", "GET, HEAD, PUT");
    return reply;
}
