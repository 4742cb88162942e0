/* store.c - the common part of every store. Opening, over the table of kinds: store_open.c.
 *
 * A call here checks the handle (aborted? too late?) and the key, counts, and hands over to
 * the kind. Results of a kind are checked before they are used:
 *  1. a sink hears the length once, before any byte, and gets exactly that many bytes;
 *  2. a listing has only good keys, under the prefix, after `after`, strictly ascending;
 *  3. "taken" becomes success or DILOCO_EEXIST by comparing the bytes, here. */
#include "store/store.h"

#include "store/store_parts.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPONENT_MAX = 255 }; /* NAME_MAX of every file system we know */

/* ---- keys */

static bool is_good(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '=' || c == '-';
}

/* Returns the length of the component at the beginning of text, or 0 if it is not allowed. */
static size_t component_len(const char *text)
{
    size_t len = 0;
    while (len <= COMPONENT_MAX && is_good(text[len]))
        len++;
    return *text == '.' || len > COMPONENT_MAX ? 0 : len;
}

/* Neither "." nor ".." nor an empty component passes, so a key never leaves its store. A maximum
 * keeps every key within the limits of all kinds. */
bool dl_store_key_ok(const char *key)
{
    const char *at = key;
    for (size_t len; (len = component_len(at)) > 0; at++) {
        at += len;
        if (*at != '/') return !*at && at - key <= DL_KEY_MAX;
    }
    return false;
}

/* A whole folder: "", or a key followed by '/'. */
static bool prefix_ok(const char *prefix)
{
    char key[DL_KEY_MAX + 2];
    size_t len = strnlen(prefix, sizeof key);
    if (len == 0) return true;
    if (len == sizeof key || prefix[len - 1] != '/') return false;
    memcpy(key, prefix, len - 1);
    key[len - 1] = '\0';
    return dl_store_key_ok(key);
}

static diloco_status bad_key(const char *what, const char *key)
{
    return dl_fail(
        DILOCO_EINVAL,
        "\"%.80s\" is not a %s of a store: components of letters, digits and ._=- that do "
        "not begin with a dot, separated by '/'",
        key, what);
}

/* ---- stopping */

/* Called between the steps of a call. `key` is for the text alone. */
diloco_status dl_store_check(const atomic_bool *aborted, dl_time until, const char *key)
{
    if (atomic_load(aborted)) return dl_fail(DILOCO_ECLOSED, "%s: the store was aborted", key);
    if (until != DL_NEVER && dl_clock_now() >= until)
        return dl_fail(DILOCO_ETIMEDOUT, "%s: the store did not finish in the time given", key);
    return DILOCO_OK;
}

diloco_status dl_store_sleep(const atomic_bool *aborted, dl_time until)
{
    for (;;) {
        DL_TRY(dl_store_check(aborted, until, "waiting"));
        dl_time left = until - dl_clock_now();
        if (left > 0) dl_clock_sleep(left < DL_STORE_SLICE ? left : DL_STORE_SLICE);
    }
}

/* The flag is set first, so a kind that wakes its waiting call finds it set. */
void dl_store_abort(dl_store *store)
{
    atomic_store(&store->aborted, true);
    if (store->kind->abort) store->kind->abort(store->self);
}

/* How every call on one key begins. A key may come from another replica's object, so it is checked
 * at every call. */
static diloco_status enter(const dl_store *store, const char *key, dl_time until)
{
    if (!dl_store_key_ok(key)) return bad_key("key", key);
    return dl_store_check(&store->aborted, until, key);
}

void dl_store_close(dl_store *store)
{
    if (!store) return;
    store->kind->close(store->self);
    free(store->url);
    free(store);
}

const char *dl_store_url(const dl_store *store)
{
    return store->url;
}

const dl_store_address *dl_store_address_of(const dl_store *store)
{
    return &store->address;
}

bool dl_store_may_recover(const dl_store *store, diloco_status status)
{
    return status == DILOCO_EUNREACHABLE || status == DILOCO_ETIMEDOUT || status == DILOCO_EFULL ||
           (status == DILOCO_EIO && store->io_may_pass);
}

diloco_status dl_store_lasting(diloco_status status)
{
    if (status == DILOCO_ETIMEDOUT)
        return dl_fail(DILOCO_EUNREACHABLE, "%s: raise run.store_timeout if it is only slow",
                       diloco_error_text());
    return status == DILOCO_EIO ? dl_fail(DILOCO_EUNREACHABLE, "%s", diloco_error_text()) : status;
}

size_t dl_store_max_object(const dl_store *store)
{
    return store->max_object;
}

/* A network store replaces the counts by what went over its connections. */
dl_store_counters dl_store_counts(const dl_store *store)
{
    dl_store_counters counts = store->counts;
    counts.billed_reads = counts.n_get;
    counts.billed_writes = counts.n_create + counts.n_put + counts.n_list;
    if (store->kind->traffic) store->kind->traffic(store->self, &counts);
    return counts;
}

void dl_store_count_into(dl_store *store, dl_moved *tally)
{
    store->tally = tally;
}

dl_moved *dl_store_tally(const dl_store *store)
{
    return store->tally;
}

/* End of every call: count its bytes under the kind of its key. Returns `status`. Counters of a
 * handle only grow. Their growth since the last call is added to the tally, which several threads
 * share. */
static diloco_status leave(dl_store *store, const char *key, diloco_status status)
{
    dl_moved *tally = store->tally;
    if (!tally) return status;
    const dl_store_counters now = dl_store_counts(store);
    const unsigned kind = tally->kind_of(key);
    DL_ASSERT(kind < DL_MOVED_KINDS);
    atomic_fetch_add(&tally->sent[kind], now.bytes_sent - store->tallied.bytes_sent);
    atomic_fetch_add(&tally->received[kind], now.bytes_received - store->tallied.bytes_received);
    store->tallied = now;
    if (dl_store_may_recover(store, status)) atomic_fetch_add(&tally->n_failed, 1);
    return status;
}

/* ---- how fast it is */

enum { SMALL_BYTES = 4 << 10, LARGE_BYTES = 256 << 10 };

/* Each new value counts as much as all before, so the mean follows a link that changes. */
static void take_in(double *mean, double value)
{
    *mean = *mean > 0 ? (*mean + value) / 2 : value;
}

/* Small objects measure a request, large ones the link; those in between measure neither well. */
static void note_speed(dl_store *store, double *bps, size_t len, dl_time began)
{
    const double s = dl_seconds(dl_clock_now() - began), request_s = store->speed.request_s;
    if (!(s > 0)) return;
    if (len <= SMALL_BYTES) take_in(&store->speed.request_s, s);
    if (len >= LARGE_BYTES) take_in(bps, 8 * (double)len / (s > 2 * request_s ? s - request_s : s));
}

dl_store_speed dl_store_speed_now(const dl_store *store)
{
    return store->speed;
}

/* ---- reading */

/* Between the kind and the caller's sink: invariant 1. */
/* One read: the announced length, and the bytes so far. */
typedef struct meter {
    dl_store *store;
    const char *key;
    dl_sink sink;
    bool begun;
    size_t len, got;
} meter;

/* A kind that announces a length twice has a bug. */
static diloco_status meter_begin(void *context, size_t len)
{
    meter *m = context;
    DL_ASSERT(!m->begun);
    m->begun = true;
    m->len = len;
    return m->sink.begin ? m->sink.begin(m->sink.context, len) : DILOCO_OK;
}

/* A kind that gives more bytes than it announced is stopped here, before the caller's buffer could
 * overflow. */
static diloco_status meter_piece(void *context, const void *data, size_t len)
{
    meter *m = context;
    DL_ASSERT(m->begun);
    m->store->counts.bytes_received += len;
    if (len > m->len - m->got)
        return dl_fail(DILOCO_EPROTO, "%s in %s is longer than the %zu bytes announced", m->key,
                       m->store->url, m->len);
    m->got += len;
    return m->sink.piece(m->sink.context, data, len);
}

/* A read that ended early is an error even if the kind reports none. */
static diloco_status read_object(dl_store *store, const char *key, dl_sink sink, dl_time until)
{
    DL_TRY(enter(store, key, until));
    store->counts.n_get++;
    meter m = {.store = store, .key = key, .sink = sink};
    dl_sink metered = {.context = &m, .begin = meter_begin, .piece = meter_piece};
    const dl_time began = dl_clock_now();
    DL_TRY(store->kind->read(store->self, key, metered, until));
    if (!m.begun || m.got != m.len)
        return dl_fail(DILOCO_EPROTO, "%s in %s ended after %zu of %zu bytes", key, store->url,
                       m.got, m.len);
    note_speed(store, &store->speed.down_bps, m.len, began);
    return DILOCO_OK;
}

diloco_status dl_store_read(dl_store *store, const char *key, dl_sink sink, dl_time until)
{
    return leave(store, key, read_object(store, key, sink, until));
}

bool dl_store_reads_parts(const dl_store *store)
{
    return store->kind->read_part;
}

/* Bytes of a part, which may be no more than were asked for. */
typedef struct part_meter {
    dl_store *store;
    const char *key;
    dl_sink sink;
    size_t most, got;
} part_meter;

static diloco_status part_begin(void *context, size_t len)
{
    part_meter *m = context;
    return m->sink.begin(m->sink.context, len);
}

static diloco_status part_piece(void *context, const void *data, size_t len)
{
    part_meter *m = context;
    m->store->counts.bytes_received += len;
    if (len > m->most - m->got)
        return dl_fail(DILOCO_EPROTO, "%s in %s: more than the %zu bytes of a part came", m->key,
                       m->store->url, m->most);
    m->got += len;
    return m->sink.piece(m->sink.context, data, len);
}

static diloco_status read_part(dl_store *store, const char *key, dl_store_part *part, dl_sink sink,
                               dl_time until)
{
    part_meter m = {store, key, sink, part->end - part->begin, 0};
    const dl_sink metered = {.context = &m, .begin = part_begin, .piece = part_piece};
    DL_TRY(enter(store, key, until));
    store->counts.n_get++;
    return store->kind->read_part(store->self, key, part, metered, until);
}

diloco_status dl_store_read_part(dl_store *store, const char *key, dl_store_part *part,
                                 dl_sink sink, dl_time until)
{
    DL_ASSERT(store->kind->read_part && part->begin < part->end);
    return leave(store, key, read_part(store, key, part, sink, until));
}

typedef struct into_buf {
    dl_buf *out;
    const char *key;
} into_buf;

/* The announced length is compared with the buffer's maximum before memory is taken. */
static diloco_status into_buf_begin(void *context, size_t len)
{
    into_buf *into = context;
    size_t all;
    if (!dl_size_add(&all, into->out->len, len) || all > into->out->max)
        return dl_fail(DILOCO_EPROTO, "%s is %zu bytes long, more than the %zu expected at most",
                       into->key, len, into->out->max - into->out->len);
    return dl_buf_reserve(into->out, all);
}

static diloco_status into_buf_piece(void *context, const void *data, size_t len)
{
    return dl_buf_add(((into_buf *)context)->out, data, len);
}

diloco_status dl_store_get(dl_store *store, dl_buf *out, const char *key, dl_time until)
{
    size_t before = out->len;
    into_buf into = {out, key};
    dl_sink sink = {.context = &into, .begin = into_buf_begin, .piece = into_buf_piece};

    diloco_status status = dl_store_read(store, key, sink, until);
    if (status) out->len = before;
    return status;
}

/* ---- writing */

/* The spans as a sequence of bytes against which a read is held. */
typedef struct comparison {
    const char *key, *url;
    const dl_span *spans;
    size_t total, span, offset;
} comparison;

static diloco_status differs(const comparison *c)
{
    return dl_fail(DILOCO_EEXIST, "%s in %s is taken, by other bytes", c->key, c->url);
}

static diloco_status compare_begin(void *context, size_t len)
{
    comparison *c = context;
    return len == c->total ? DILOCO_OK : differs(c);
}

/* Compares with the spans as if they were adjacent. */
static diloco_status compare_piece(void *context, const void *data, size_t len)
{
    comparison *c = context;
    for (const unsigned char *at = data; len > 0;) {
        const dl_span *span = &c->spans[c->span]; /* the meter stops what is too long */
        size_t n = dl_size_min(len, span->len - c->offset);
        if (n && memcmp(at, (const unsigned char *)span->data + c->offset, n)) return differs(c);
        at += n, len -= n, c->offset += n;
        if (c->offset == span->len) c->span++, c->offset = 0;
    }
    return DILOCO_OK;
}

/* P5.3: an own create whose answer was lost finds its own bytes, and succeeds. */
static diloco_status compare(dl_store *store, const char *key, const dl_span *spans, size_t n_spans,
                             dl_time until)
{
    comparison c = {key, store->url, spans, dl_spans_len(spans, n_spans), 0, 0};
    dl_sink sink = {.context = &c, .begin = compare_begin, .piece = compare_piece};

    diloco_status status = dl_store_read(store, key, sink, until);
    if (status == DILOCO_ENOENT) /* deleted since, or a store that shows its objects late */
        return dl_fail(DILOCO_EUNREACHABLE, "%s in %s is taken, but cannot be read; try again", key,
                       store->url);
    return status == DILOCO_EPROTO ? differs(&c) : status; /* it is damaged, or no object */
}

/* The kind decides whether the name was free. Speed and bytes count only for a create that
 * wrote. */
static diloco_status claim_name(dl_store *store, const char *key, const dl_span *spans,
                                size_t n_spans, bool *taken, dl_time until)
{
    *taken = store->vouched = false;
    DL_TRY(enter(store, key, until));
    store->counts.n_create++;
    const dl_time began = dl_clock_now();
    DL_TRY(store->kind->create(store->self, key, spans, n_spans, taken, until));
    if (*taken) return DILOCO_OK;
    store->vouched = store->kind->vouches && store->kind->vouches(store->self);
    store->counts.bytes_sent += dl_spans_len(spans, n_spans);
    note_speed(store, &store->speed.up_bps, dl_spans_len(spans, n_spans), began);
    return DILOCO_OK;
}

diloco_status dl_store_claim(dl_store *store, const char *key, const dl_span *spans, size_t n_spans,
                             bool *taken, dl_time until)
{
    return leave(store, key, claim_name(store, key, spans, n_spans, taken, until));
}

/* An object that was compared is confirmed, too: its bytes were read back. */
diloco_status dl_store_create(dl_store *store, const char *key, const dl_span *spans,
                              size_t n_spans, bool *taken, dl_time until)
{
    bool there;
    const diloco_status status = dl_store_claim(store, key, spans, n_spans, &there, until);
    if (taken) *taken = there;
    DL_TRY(status);
    if (there) DL_TRY(compare(store, key, spans, n_spans, until));
    store->vouched |= there;
    return DILOCO_OK;
}

bool dl_store_vouches(const dl_store *store)
{
    return store->vouched;
}

static diloco_status put_object(dl_store *store, const char *key, const void *data, size_t len,
                                dl_time until)
{
    DL_TRY(enter(store, key, until));
    store->counts.n_put++;
    const dl_time began = dl_clock_now();
    DL_TRY(store->kind->put(store->self, key, data, len, until));
    store->counts.bytes_sent += len;
    note_speed(store, &store->speed.up_bps, len, began);
    return DILOCO_OK;
}

diloco_status dl_store_put(dl_store *store, const char *key, const void *data, size_t len,
                           dl_time until)
{
    return leave(store, key, put_object(store, key, data, len, until));
}

diloco_status dl_store_delete(dl_store *store, const char *key, dl_time until)
{
    const diloco_status status = enter(store, key, until);
    if (status) return leave(store, key, status);
    store->counts.n_delete++;
    return leave(store, key, store->kind->remove(store->self, key, until));
}

/* ---- listing and waiting */

/* Between the kind and the caller's `found`: invariant 2. */
typedef struct listing {
    const char *url, *prefix;
    size_t prefix_len;
    dl_found_fn found;
    void *context;
    char last[DL_KEY_MAX + 1]; /* the key before, or `after`; "" before any */
} listing;

/* A listing comes from a server. A key that is malformed, out of order or outside the prefix ends
 * it, since callers rely on the order. */
static diloco_status listed(void *context, const char *key, size_t len)
{
    listing *l = context;
    if (!dl_store_key_ok(key) || strncmp(key, l->prefix, l->prefix_len) ||
        strcmp(key, l->last) <= 0)
        return dl_fail(DILOCO_EPROTO, "store %s lists \"%.80s\" under %s after \"%s\"", l->url, key,
                       l->prefix, l->last);
    strcpy(l->last, key);
    return l->found(l->context, key, len);
}

diloco_status dl_store_list(dl_store *store, const char *prefix, const char *after,
                            dl_found_fn found, void *context, dl_time until)
{
    if (!prefix_ok(prefix)) return bad_key("folder (a key and '/')", prefix);
    if (after && !dl_store_key_ok(after)) return bad_key("key", after);
    listing l = {.url = store->url,
                 .prefix = prefix,
                 .prefix_len = strlen(prefix),
                 .found = found,
                 .context = context};
    if (after) strcpy(l.last, after);
    return dl_store_list_unchecked(store, prefix, after, listed, &l, until);
}

diloco_status dl_store_list_unchecked(dl_store *store, const char *prefix, const char *after,
                                      dl_found_fn found, void *context, dl_time until)
{
    diloco_status status = dl_store_check(&store->aborted, until, prefix);
    if (status) return leave(store, prefix, status);
    store->counts.n_list++;
    status = store->kind->list(store->self, prefix, after, found, context, until);
    return leave(store, prefix, status);
}

void dl_store_look_like(dl_store *store, const dl_store *inner)
{
    store->least = inner->least;
    store->most = inner->most;
    store->max_object = inner->max_object;
    store->io_may_pass = inner->io_may_pass;
    store->address = inner->address;
}

diloco_status dl_store_await(dl_store *store, const char *const *prefixes, size_t n, dl_time until)
{
    if (!store->kind->wait) return dl_store_sleep(&store->aborted, until);
    return leave(store, n ? prefixes[0] : "", store->kind->wait(store->self, prefixes, n, until));
}

/* Twice the last one; up to a quarter less, so that replicas do not all look at once. */
static void pause_again(dl_store *store)
{
    dl_time pause = 2 * store->pause;
    if (pause < store->least) pause = store->least;
    if (pause > store->most) pause = store->most;
    const dl_time now = dl_clock_now();
    store->pause = pause;
    store->look_at = dl_time_after(now, pause - pause / 4 * (now / 1000 % 1000) / 1000);
}

/* The kind may wake it early. Without events it returns at the end of a pause, and the caller
 * looks. The pause doubles while nothing happens, and continues over calls that ended at
 * `until`. */
diloco_status dl_store_wait(dl_store *store, const char *const *prefixes, size_t n_prefixes,
                            bool progress, dl_time until)
{
    for (size_t i = 0; i < n_prefixes; i++)
        if (!prefix_ok(prefixes[i])) return bad_key("folder (a key and '/')", prefixes[i]);
    DL_TRY(dl_store_check(&store->aborted, until, "waiting"));

    if (progress) store->pause = store->look_at = 0;
    if (!store->look_at) pause_again(store);
    const bool last = until <= store->look_at;
    const diloco_status status =
        dl_store_await(store, prefixes, n_prefixes, last ? until : store->look_at);
    if (status == DILOCO_ETIMEDOUT && last) return status; /* the pause continues */
    store->look_at = 0;
    return status == DILOCO_ETIMEDOUT ? DILOCO_OK : status;
}
