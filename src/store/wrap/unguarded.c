/* unguarded.c - see layers.h. */
#include "store/wrap/layers.h"

#include <stdio.h>
#include <string.h>

enum { READ_BACK = 64 << 10 }; /* the longest object that is read back */

typedef struct unguarded {
    dl_store *inner; /* owned */
    bool refuses;    /* it will not hear of a condition */
} unguarded;

/* ---- creating */

/* A reader that only wants to know whether there is something. */
static diloco_status note_there(void *context, size_t len)
{
    (void)len;
    *(bool *)context = true;
    return DILOCO_ECLOSED; /* enough */
}

static diloco_status pass(void *context, const void *data, size_t len)
{
    (void)context, (void)data, (void)len;
    return DILOCO_OK;
}

/* The read ends as soon as the length is known. */
static diloco_status look(unguarded *u, const char *key, bool *there, dl_time until)
{
    const dl_sink sink = {.context = there, .begin = note_there, .piece = pass};
    *there = false;
    const diloco_status status = dl_store_read(u->inner, key, sink, until);
    return *there || status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* Did another writer come after us? *taken is set if other bytes are there now: another writer came
 * after this one. */
static diloco_status read_back(unguarded *u, const char *key, const dl_buf *mine, bool *taken,
                               dl_time until)
{
    dl_buf there;
    dl_buf_init(&there, mine->len);
    const diloco_status status = dl_store_get(u->inner, &there, key, until);
    *taken = status == DILOCO_EPROTO ||
             (!status && (there.len != mine->len || memcmp(there.data, mine->data, mine->len)));
    dl_buf_deinit(&there);
    return *taken ? DILOCO_OK : status;
}

/* A create, which says more than a put where the store half understands it; it may refuse. A store
 * that refuses the condition is remembered, so it is asked only once. */
static diloco_status create_or_put(unguarded *u, const char *key, const dl_buf *mine, bool *taken,
                                   dl_time until)
{
    const dl_span span = {mine->data, mine->len};
    diloco_status status = DILOCO_EREFUSED;
    if (!u->refuses) status = dl_store_claim(u->inner, key, &span, 1, taken, until);
    if (status != DILOCO_EREFUSED) return status;
    u->refuses = true;
    return dl_store_put(u->inner, key, mine->data, mine->len, until);
}

static diloco_status write(unguarded *u, const char *key, const dl_buf *mine, bool *taken,
                           dl_time until)
{
    DL_TRY(create_or_put(u, key, mine, taken, until));
    if (*taken) return DILOCO_OK;
    return mine->len && mine->len <= READ_BACK ? read_back(u, key, mine, taken, until) : DILOCO_OK;
}

/* A reader between look and write may see the old state, and two writers may both succeed. P26
 * allows only one committer for that reason. */
static diloco_status unguarded_create(void *self, const char *key, const dl_span *spans,
                                      size_t n_spans, bool *taken, dl_time until)
{
    unguarded *u = self;
    dl_buf whole;
    DL_TRY(look(u, key, taken, until));
    if (*taken) return DILOCO_OK; /* store.c compares the bytes */
    diloco_status status = DILOCO_OK;
    dl_buf_init(&whole, SIZE_MAX / 2);
    for (size_t i = 0; i < n_spans && !status; i++)
        status = dl_buf_add(&whole, spans[i].data, spans[i].len);
    if (!status) status = write(u, key, &whole, taken, until);
    dl_buf_deinit(&whole);
    return status;
}

/* ---- the rest is passed through */

static diloco_status unguarded_put(void *self, const char *key, const void *data, size_t len,
                                   dl_time until)
{
    return dl_store_put(((unguarded *)self)->inner, key, data, len, until);
}

static diloco_status unguarded_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    return dl_store_read(((unguarded *)self)->inner, key, sink, until);
}

static diloco_status unguarded_list(void *self, const char *prefix, const char *after,
                                    dl_found_fn found, void *context, dl_time until)
{
    return dl_store_list_unchecked(((unguarded *)self)->inner, prefix, after, found, context,
                                   until);
}

static diloco_status unguarded_remove(void *self, const char *key, dl_time until)
{
    return dl_store_delete(((unguarded *)self)->inner, key, until);
}

static diloco_status unguarded_wait(void *self, const char *const *prefixes, size_t n,
                                    dl_time until)
{
    return dl_store_await(((unguarded *)self)->inner, prefixes, n, until);
}

static bool unguarded_vouches(const void *self)
{
    return dl_store_vouches(((const unguarded *)self)->inner);
}

static void unguarded_traffic(const void *self, dl_store_counters *counts)
{
    const dl_store_counters c = dl_store_counts(((const unguarded *)self)->inner);
    counts->bytes_sent = c.bytes_sent;
    counts->bytes_received = c.bytes_received;
    counts->billed_reads = c.billed_reads;
    counts->billed_writes = c.billed_writes;
}

static void unguarded_abort(void *self)
{
    dl_store_abort(((unguarded *)self)->inner);
}

static void unguarded_close(void *self)
{
    dl_store_close(((unguarded *)self)->inner);
}

static const dl_store_kind kind = {
    .scheme = "unguarded", /* has no row in store.c */
    .size = sizeof(unguarded),
    .close = unguarded_close,
    .create = unguarded_create,
    .put = unguarded_put,
    .read = unguarded_read,
    .list = unguarded_list,
    .remove = unguarded_remove,
    .vouches = unguarded_vouches,
    .wait = unguarded_wait,
    .traffic = unguarded_traffic,
    .abort = unguarded_abort,
};

/* Pauses, sizes and errors are those of the inner store. */
diloco_status dl_store_unguarded(dl_store **out, dl_store *inner)
{
    void *self;
    const atomic_bool *aborted;
    char url[4096];
    snprintf(url, sizeof url, "%s unguarded", dl_store_url(inner));
    const diloco_status status = dl_store_wrap(out, &kind, url, &self, &aborted);
    if (status) {
        dl_store_close(inner);
        return status;
    }
    dl_store_look_like(*out, inner);
    ((unguarded *)self)->inner = inner;
    return DILOCO_OK;
}
