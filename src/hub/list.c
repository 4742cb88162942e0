/* list.c - the keys under a prefix (/list), and changes there (/events).
 *
 * Both name a run by ?run=bucket[/more], and give keys without it. A listing is lines of
 * "<bytes> <key>", at most a page of them, and a last one: "more" (continue with after=<last key>)
 * or "end". */
#include "base/text.h"
#include "hub/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Each page reads all names of a folder, so the program asks for more keys than the default. A line
 * has a key, its length, a space and a newline. */
enum { MOST_KEYS = 10000, PAGE_MAX_BYTES = MOST_KEYS * (DL_KEY_MAX + 24) + 64 };

/* Read ?run=bucket[/more] into the request and *base, which is "more/" or "". Returns false and
 * sets *refusal if no run is named or the bucket is missing. */
static bool find_run(dl_http_request *r, char base[DL_KEY_MAX + 2], dl_response *refusal)
{
    const char *run = dl_target_param(&r->target, "run"), *rest = "";
    bool ok = run && dl_request_bucket(r, run, &rest) && (!*rest || dl_store_key_ok(rest));
    if (!ok) {
        *refusal = dl_refuse(r, 400, "", "%s?run=RUN names a run: RUN is the path in its URL",
                             r->target.path);
        return false;
    }
    snprintf(base, DL_KEY_MAX + 2, "%s%s", rest, *rest ? "/" : "");
    if (dl_hub_bucket_there(r)) return true;
    *refusal = dl_refuse_no_bucket(r);
    return false;
}

/* ---- listing */

/* The page in progress. `base_len` bytes of each key are left out of it. */
typedef struct page {
    dl_buf lines;              /* the reply */
    size_t base_len, n, limit; /* of the run's part of a key; keys so far; keys at most */
} page;

/* Returns DILOCO_ECLOSED to end the walk once the page is full. So the last line can say "more"
 * without counting what follows. */
static diloco_status add_line(void *context, const char *key, size_t len)
{
    page *p = context;
    if (p->n == p->limit) return DILOCO_ECLOSED; /* there is more */
    p->n++;
    return dl_buf_addf(&p->lines, "%zu %s\n", len, key + p->base_len);
}

/* Fill the page from the bucket's store, in byte order. `after` NULL begins at the first key. */
static diloco_status fill_page(const dl_http_request *r, page *p, const char *prefix,
                               const char *after)
{
    dl_store *store;
    DL_TRY(dl_hub_bucket_open(&store, r, false));
    diloco_status status = dl_store_list(store, prefix, after, add_line, p, DL_NEVER);
    dl_store_close(store);
    if (status && status != DILOCO_ECLOSED) return status;
    return dl_buf_addf(&p->lines, status ? "more\n" : "end\n");
}

static const char *text_param(const dl_http_request *r, const char *name)
{
    const char *value = dl_target_param(&r->target, name);
    return value ? value : "";
}

dl_response dl_list_begin(dl_http_request *r)
{
    char base[DL_KEY_MAX + 2], prefix[2 * DL_KEY_MAX + 4], after[2 * DL_KEY_MAX + 4];
    const char *limit = text_param(r, "limit");
    uint64_t n = DL_LIST_PAGE;
    dl_response refusal;
    if (!find_run(r, base, &refusal)) return refusal;
    if (*limit && (!dl_text_to_u64(&n, limit, strlen(limit)) || n == 0))
        return dl_refuse(r, 400, "", "limit is a number of keys, at least 1");
    /* Two texts of the query are joined, so each buffer has room for two keys, and a longer
     * result is refused instead of cut. */
    int prefix_len = snprintf(prefix, sizeof prefix, "%s%s", base, text_param(r, "prefix"));
    int after_len = snprintf(after, sizeof after, "%s%s", base, text_param(r, "after"));
    if ((size_t)prefix_len >= sizeof prefix || (size_t)after_len >= sizeof after)
        return dl_refuse(r, 400, "", "prefix or after is longer than a key");
    page p = {.base_len = strlen(base), .limit = n < MOST_KEYS ? n : MOST_KEYS};
    dl_buf_init(&p.lines, PAGE_MAX_BYTES);
    diloco_status status = fill_page(r, &p, prefix, *text_param(r, "after") ? after : NULL);
    dl_response reply = status ? dl_refuse_failed(r, status)
                               : dl_response_text(200, "text/plain", p.lines.data, p.lines.len);
    dl_buf_deinit(&p.lines);
    return reply;
}

/* ---- events */

/* libmicrohttpd's reader of an event stream. It may block: each connection has a thread of its
 * own. */
static ssize_t read_stream(void *cls, uint64_t at, char *out, size_t cap)
{
    (void)at;
    size_t n = dl_stream_read(cls, out, cap);
    return n ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

static void free_stream(void *cls)
{
    dl_stream_close(cls);
}

/* The reply has no length and ends with the connection. Without memory the response is NULL, and
 * the connection is closed. */
dl_response dl_events_begin(dl_http_request *r)
{
    char base[DL_BUCKET_MAX + DL_KEY_MAX + 4], inner[DL_KEY_MAX + 2];
    const char *prefixes[DL_STREAM_PREFIXES];
    size_t n = 0;
    dl_stream *stream;
    dl_response reply = {200, NULL};
    if (!find_run(r, inner, &reply)) return reply;
    for (size_t i = 0; i < r->target.n_params; i++) {
        if (strcmp(r->target.params[i].name, "prefix") != 0) continue;
        if (n == DL_STREAM_PREFIXES)
            return dl_refuse(r, 400, "", "at most %d prefixes", DL_STREAM_PREFIXES);
        prefixes[n++] = r->target.params[i].value;
    }
    snprintf(base, sizeof base, "%s/%s", r->bucket, inner);
    if (dl_stream_open(&stream, &r->hub->events, base, prefixes, n,
                       dl_connection_fd(r->connection)))
        return dl_refuse(r, 503, "", "%s", diloco_error_text());
    reply.response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, stream, free_stream);
    if (!reply.response) dl_stream_close(stream);
    dl_response_header(reply, "Content-Type", "text/event-stream");
    dl_response_header(reply, "Cache-Control", "no-store");
    dl_response_header(reply, "X-Accel-Buffering", "no"); /* a proxy in between must not wait */
    return reply;
}
