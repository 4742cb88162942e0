/* split.c - see layers.h for the place of each object.
 *
 * Invariants
 *  1. run.json is in coord: the bulk gets a copy of it, whichever replica wrote it.
 *  2. An announced object was published whole before. Announced and gone: collected. An object that
 *     is not
 *     announced is not there, to a listing and to a reader: whose writer was killed in between
 *     puts its own again in its next generation, and must not take this for put (PROTOCOL P15). */
#include "store/wrap/layers.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_MAX = 64 << 20, LISTED_MAX = 1 << 28 };

typedef struct split_store {
    dl_store *bulk, *coord;  /* owned */
    const dl_store *created; /* where the last object's bytes went */
} split_store;

/* ---- the store of a name */

typedef enum route { BULK, COORD, NAMED, BOTH } route;

/* A row is a folder and where its objects are. A new folder of a run goes to the bulk without a
 * row. */
static route route_of(const char *key)
{
    static const struct {
        const char *folder;
        route route;
    } table[] = {{"run.json", BOTH}, {"gen/", COORD}, {"hb/", COORD},
                 {"end/", COORD},    {"log/", COORD}, {"invite/", COORD},
                 {"admit/", COORD},  {"c/", NAMED},   {"x/", NAMED}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strncmp(key, table[i].folder, strlen(table[i].folder))) return table[i].route;
    /* Of a probe: the name that is raced for, not those that are timed. */
    if (!strncmp(key, "probe/", 6)) return strchr(key, '.') ? BULK : COORD;
    return BULK;
}

/* Returns the store that has the object's bytes. */
static dl_store *holder(const split_store *s, const char *key)
{
    const route r = route_of(key);
    return r == COORD || r == BOTH ? s->coord : s->bulk;
}

/* ---- creating */

static diloco_status two_runs(const split_store *s)
{
    return dl_fail(DILOCO_EDIFFERS, "%s and %s hold two different runs", dl_store_url(s->bulk),
                   dl_store_url(s->coord));
}

/* Invariant 1. The bulk's copy shows a reader of the bulk which coordination store the run has. Any
 * process may make the copy, since the bytes are the same. */
static diloco_status copy_run(split_store *s, const char *key, dl_time until)
{
    dl_buf text;
    dl_buf_init(&text, RUN_MAX);
    diloco_status status = dl_store_get(s->coord, &text, key, until);
    const dl_span span = {text.data, text.len};
    if (!status) status = dl_store_create(s->bulk, key, &span, 1, NULL, until);
    dl_buf_deinit(&text);
    if (status == DILOCO_EEXIST) return two_runs(s);
    return status;
}

/* Created only after the bytes exist, so an announcement never precedes its object. */
static diloco_status announce(split_store *s, const char *key, const dl_span *spans, size_t n_spans,
                              dl_time until)
{
    char text[24];
    const size_t total = dl_spans_len(spans, n_spans);
    const dl_span span = {text, (size_t)snprintf(text, sizeof text, "%zu", total)};
    return dl_store_create(s->coord, key, &span, 1, NULL, until);
}

/* An object that is announced is created in the bulk with a comparison, because its writer may have
 * been killed before the announcement. */
static diloco_status split_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                                  bool *taken, dl_time until)
{
    split_store *s = self;
    const route r = route_of(key);
    s->created = r == NAMED || r == BULK ? s->bulk : s->coord;
    switch (r) {
    case BOTH:
        DL_TRY(dl_store_claim(s->coord, key, spans, n_spans, taken, until));
        return copy_run(s, key, until);
    case NAMED:
        DL_TRY(dl_store_create(s->bulk, key, spans, n_spans, taken, until));
        return announce(s, key, spans, n_spans, until);
    case BULK:
    case COORD:
        break;
    }
    return dl_store_claim(holder(s, key), key, spans, n_spans, taken, until);
}

static diloco_status split_put(void *self, const char *key, const void *data, size_t len,
                               dl_time until)
{
    return dl_store_put(holder(self, key), key, data, len, until);
}

/* The announcement goes first, so no listing shows an object without bytes. */
static diloco_status split_remove(void *self, const char *key, dl_time until)
{
    split_store *s = self;
    const route r = route_of(key);
    if (r != BULK) DL_TRY(dl_store_delete(s->coord, key, until));
    return r == COORD ? DILOCO_OK : dl_store_delete(s->bulk, key, until);
}

/* The announced length: of the bytes, not of the announcement. Returns DILOCO_ENOENT if there is no
 * valid announcement. An invalid one hides its name and stops no replica. */
static diloco_status announced_len(split_store *s, const char *key, size_t *out, dl_time until)
{
    dl_buf text;
    uint64_t len;
    dl_buf_init(&text, 24);
    diloco_status status = dl_store_get(s->coord, &text, key, until);
    if (!status && !dl_text_to_u64(&len, (const char *)text.data, text.len)) status = DILOCO_EPROTO;
    if (status == DILOCO_EPROTO)
        status = dl_fail(DILOCO_ENOENT, "%s in %s is no announcement", key, dl_store_url(s->coord));
    if (!status) *out = (size_t)len;
    dl_buf_deinit(&text);
    return status;
}

/* An object without an announcement does not exist, even if its bytes do (invariant 2). */
static diloco_status split_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    split_store *s = self;
    size_t len;
    if (route_of(key) == NAMED) DL_TRY(announced_len(s, key, &len, until));
    return dl_store_read(holder(s, key), key, sink, until);
}

/* ---- listing */

typedef struct found_key {
    char *key; /* owned */
    size_t len;
} found_key;

typedef struct collection {
    bool of_bulk;
    found_key *at;
    size_t n, cap;
} collection;

/* Keeps the keys of a listing, because `found` may not be called while the lengths are read.
 * LISTED_MAX bounds the memory. */
static diloco_status collect(void *context, const char *key, size_t len)
{
    collection *c = context;
    if (c->of_bulk && route_of(key) != BULK) return DILOCO_OK; /* the coord's listing has it */
    if (c->n == c->cap) {
        const size_t cap = c->cap ? 2 * c->cap : 64;
        found_key *at = cap > LISTED_MAX / sizeof *at ? NULL : realloc(c->at, cap * sizeof *at);
        if (!at) return dl_fail(DILOCO_ENOMEM, "not enough memory to list a store");
        c->at = at;
        c->cap = cap;
    }
    c->at[c->n] = (found_key){strdup(key), len};
    return c->at[c->n++].key ? DILOCO_OK
                             : dl_fail(DILOCO_ENOMEM, "not enough memory to list a store");
}

static void collection_free(collection *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->at[i].key);
    free(c->at);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const found_key *)a)->key, ((const found_key *)b)->key);
}

static diloco_status notify(split_store *s, collection *c, dl_found_fn found, void *context,
                            dl_time until)
{
    for (size_t i = 0; i < c->n; i++) {
        found_key *f = &c->at[i];
        diloco_status status = DILOCO_OK;
        if (route_of(f->key) == NAMED) status = announced_len(s, f->key, &f->len, until);
        if (status == DILOCO_ENOENT) continue; /* collected meanwhile, or hidden */
        DL_TRY(status);
        DL_TRY(found(context, f->key, f->len));
    }
    return DILOCO_OK;
}

/* A prefix that one store has is listed there directly. The whole store is listed in both, and the
 * keys are merged. */
static diloco_status split_list(void *self, const char *prefix, const char *after,
                                dl_found_fn found, void *context, dl_time until)
{
    split_store *s = self;
    collection c = {.of_bulk = false};
    const route r = route_of(prefix);
    if (*prefix && r == BULK) return dl_store_list(s->bulk, prefix, after, found, context, until);
    if (r == COORD) return dl_store_list(s->coord, prefix, after, found, context, until);
    diloco_status status = dl_store_list(s->coord, prefix, after, collect, &c, until);
    c.of_bulk = true;
    if (!status && !*prefix) status = dl_store_list(s->bulk, "", after, collect, &c, until);
    if (!status && c.n) qsort(c.at, c.n, sizeof *c.at, by_key);
    if (!status) status = notify(s, &c, found, context, until);
    collection_free(&c);
    return status;
}

/* ---- the rest */

static bool split_vouches(const void *self)
{
    return dl_store_vouches(((const split_store *)self)->created);
}

static diloco_status split_wait(void *self, const char *const *prefixes, size_t n, dl_time until)
{
    split_store *s = self;
    bool all_in_coord = n > 0; /* does the coord hear of all of it? */
    for (size_t i = 0; i < n; i++)
        all_in_coord &= *prefixes[i] && route_of(prefixes[i]) != BULK;
    return dl_store_await(all_in_coord ? s->coord : s->bulk, prefixes, n, until);
}

static void split_traffic(const void *self, dl_store_counters *counts)
{
    const split_store *s = self;
    const dl_store_counters bulk = dl_store_counts(s->bulk), coord = dl_store_counts(s->coord);
    counts->bytes_sent = bulk.bytes_sent + coord.bytes_sent;
    counts->bytes_received = bulk.bytes_received + coord.bytes_received;
    counts->billed_reads = bulk.billed_reads + coord.billed_reads;
    counts->billed_writes = bulk.billed_writes + coord.billed_writes;
}

static void split_abort(void *self)
{
    split_store *s = self;
    dl_store_abort(s->bulk);
    dl_store_abort(s->coord);
}

static void split_close(void *self)
{
    split_store *s = self;
    dl_store_close(s->bulk);
    dl_store_close(s->coord);
}

static const dl_store_kind kind = {
    .scheme = "split", /* has no row in store.c */
    .size = sizeof(split_store),
    .close = split_close,
    .create = split_create,
    .put = split_put,
    .read = split_read,
    .list = split_list,
    .remove = split_remove,
    .vouches = split_vouches,
    .wait = split_wait,
    .traffic = split_traffic,
    .abort = split_abort,
};

/* The run.json of both must be the same; a store without one is accepted. Two stores of different
 * runs would mix their objects, so such a pair is refused at the open. */
static diloco_status compare_runs(split_store *s)
{
    dl_buf bulk, coord;
    dl_buf_init(&bulk, RUN_MAX);
    dl_buf_init(&coord, RUN_MAX);
    diloco_status status = dl_store_get(s->bulk, &bulk, "run.json", DL_NEVER);
    if (!status) status = dl_store_get(s->coord, &coord, "run.json", DL_NEVER);
    if (!status && (bulk.len != coord.len || memcmp(bulk.data, coord.data, bulk.len) != 0))
        status = two_runs(s);
    dl_buf_deinit(&bulk);
    dl_buf_deinit(&coord);
    return status == DILOCO_ENOENT ? DILOCO_OK : status;
}

diloco_status dl_store_split(dl_store **out, dl_store *bulk, dl_store *coord)
{
    void *self;
    const atomic_bool *aborted;
    char url[2 * 4096];
    snprintf(url, sizeof url, "%s with %s", dl_store_url(bulk), dl_store_url(coord));
    const diloco_status status = dl_store_wrap(out, &kind, url, &self, &aborted);
    if (status) {
        dl_store_close(bulk);
        dl_store_close(coord);
        return status;
    }
    dl_store_look_like(*out, bulk);
    *(split_store *)self = (split_store){.bulk = bulk, .coord = coord, .created = coord};
    const diloco_status differ = compare_runs(self);
    if (!differ) return DILOCO_OK;
    dl_store_close(*out);
    *out = NULL;
    return differ;
}
