/* bucket_bulk.c - objects too big for one conditional PUT, below the interface.
 *
 * A big object is uploaded in parts under a name that no other writer uses, .b/<key>/<random>. One
 * small conditional PUT at its key *publishes* it: a pointer of 128 bytes with its length, digest
 * and name. The end of a multipart upload is never the publication, because some
 * services (Ceph RGW 16) ignore its condition. Hence
 *
 *  1. at a key there is at any moment nothing, a small object, or a pointer whose object is
 *     whole and never changes;
 *  2. a pointer leads only to .b/<its own key>/, whichever writer made it; one that leads to
 *     nothing is damage, because it is created last and removed first;
 *  3. bytes that would be taken for a pointer are themselves stored by pointer;
 *  4. a listing shows the keys, with the true lengths, and never .b/ (no key begins with a dot);
 *  5. below log/ there are no pointers: entries are short, and a pointer's bytes there are junk.
 *     Otherwise another writer could create the object after some replicas had read the entry as
 *     unreadable, which is final for them (P7.9), and before the others read it.
 *
 * Where the store shows objects that are still being written (option halves), every created object
 * is published this way, however small. 128 bytes, or fewer that may become a pointer, count as
 * absent until they are one. Replacing objects (heartbeats) may be seen in halves there, which does
 * no harm.
 *
 * A writer that loses the race removes its upload. If a writer dies before publishing, a later open
 * removes the upload after a day. */
#include "store/http/bucket_bulk.h"

#include "base/log.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC  "DLBULKP1"
#define FOLDER ".b/"
#define BEHIND ".b0" /* '0' follows '/' */

enum {
    VERSION = 1,
    AT_VERSION = 8,
    AT_BYTES = 12,
    AT_LEN = 16,
    AT_DIGEST = 24,
    AT_ID = 40,
    AT_ZEROS = 56,
    AT_HASH = 112,
    SIZES = 1024,     /* remembered lengths of big objects */
    SWEEP_MAX = 1000, /* candidates looked at in one sweep */
    READS_MAX = 4,    /* of an object that is replaced while it is read */
    NAME_MAX_BYTES = 3 + DL_KEY_MAX + 1 + 2 * DL_POINTER_ID + 1
};

/* ---- pointers */

static void put_le(unsigned char *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get_le(const unsigned char *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)in[i] << 8 * i;
    return value;
}

void dl_pointer_write(unsigned char out[DL_POINTER_BYTES], const dl_pointer *pointer)
{
    memset(out, 0, DL_POINTER_BYTES);
    memcpy(out, MAGIC, 8);
    put_le(out + AT_VERSION, VERSION, 4);
    put_le(out + AT_BYTES, DL_POINTER_BYTES, 4);
    put_le(out + AT_LEN, pointer->len, 8);
    memcpy(out + AT_DIGEST, pointer->digest.bytes, sizeof pointer->digest.bytes);
    memcpy(out + AT_ID, pointer->id, DL_POINTER_ID);
    dl_hash hash = dl_hash_bytes(out, AT_HASH);
    memcpy(out + AT_HASH, hash.bytes, sizeof hash.bytes);
}

/* The bytes may be anything. The hash, the version and the zeros are checked, so no other object
 * passes for a pointer. */
bool dl_pointer_read(dl_pointer *out, const void *data, size_t len)
{
    const unsigned char *in = data;
    dl_hash hash;
    if (len != DL_POINTER_BYTES || memcmp(in, MAGIC, 8) != 0) return false;
    memcpy(hash.bytes, in + AT_HASH, sizeof hash.bytes);
    if (!dl_hash_equal(hash, dl_hash_bytes(in, AT_HASH))) return false;
    if (get_le(in + AT_VERSION, 4) != VERSION || get_le(in + AT_BYTES, 4) != DL_POINTER_BYTES)
        return false;
    for (int i = AT_ZEROS; i < AT_HASH; i++)
        if (in[i]) return false;
    out->len = get_le(in + AT_LEN, 8);
    memcpy(out->digest.bytes, in + AT_DIGEST, sizeof out->digest.bytes);
    memcpy(out->id, in + AT_ID, DL_POINTER_ID);
    return true;
}

/* May these bytes, too few, still become a pointer? */
static bool may_become_pointer(const void *data, size_t len)
{
    const size_t seen = dl_size_min(len, sizeof MAGIC - 1);
    return len < DL_POINTER_BYTES && (seen == 0 || memcmp(data, MAGIC, seen) == 0);
}

/* The name is made of the key, so a pointer cannot lead to another key's object. */
static void name_of(char name[NAME_MAX_BYTES], const char *key, const dl_pointer *pointer)
{
    size_t at = (size_t)sprintf(name, FOLDER "%.*s/", DL_KEY_MAX, key);
    for (int i = 0; i < DL_POINTER_ID; i++)
        at += (size_t)sprintf(name + at, "%02x", pointer->id[i]);
}

/* Where the store shows halves, entries are published by pointers, too. */
static bool has_pointers(const dl_bucket *b, const char *key)
{
    return b->halves || strncmp(key, "log/", 4) != 0;
}

/* ---- looking at what is at a key */

/* The total length comes with the range, so an object that only begins like a pointer is
 * recognised. */
static diloco_status looked(void *context, dl_bucket *b, dl_web_exchange *x)
{
    dl_bulk_look *look = context;
    unsigned long long total = x->text.len;
    *look = (dl_bulk_look){0};
    if (x->status == 404 && !dl_bucket_is_missing(x)) return DILOCO_OK;
    look->there = x->status == 200 || x->status == 206 || x->status == 416; /* 416: it is empty */
    if (!look->there) return dl_bucket_refusal(b, x);
    const char *range = dl_web_response_header(x, "Content-Range");
    if (x->status == 206 && (!range || sscanf(range, "bytes %*u-%*u/%llu", &total) != 1))
        return dl_fail(DILOCO_EPROTO, "%s: a part came without its place", x->what);
    look->is_pointer = x->status != 416 && total == x->text.len &&
                       dl_pointer_read(&look->pointer, x->text.data, x->text.len);
    look->half = b->halves && (x->status == 416 || (total == x->text.len &&
                                                    may_become_pointer(x->text.data, x->text.len)));
    return DILOCO_OK;
}

/* Where halves are shown, the objects at keys are pointers or heartbeats, so the whole is read.
 * s3rver promises a byte for a range of an empty object, which never comes. */
diloco_status dl_bulk_look_at(dl_bucket *b, const char *key, dl_bulk_look *out, dl_time until)
{
    dl_bucket_request r = {.method = "GET", .name = key};
    if (!b->halves) dl_bucket_header(&r, "Range", "bytes=0-127");
    return dl_bucket_send_request(b, &r, looked, out, 0, until);
}

/* ---- publishing */

static bool is_long(const dl_bucket *b, size_t len)
{
    return len > 2 * b->part_bytes;
}

bool dl_bulk_is(const dl_bucket *b, const char *key, const dl_span *spans, size_t n_spans)
{
    size_t total = dl_spans_len(spans, n_spans);
    unsigned char bytes[DL_POINTER_BYTES];
    dl_pointer pointer;
    if (!has_pointers(b, key)) return false;
    if (total != DL_POINTER_BYTES) return is_long(b, total);
    for (size_t i = 0, at = 0; i < n_spans; at += spans[i++].len)
        if (spans[i].len) memcpy(bytes + at, spans[i].data, spans[i].len);
    return dl_pointer_read(&pointer, bytes, sizeof bytes);
}

/* Hashes the object, and draws a random name that no other writer has. */
static diloco_status describe(dl_pointer *out, const dl_span *spans, size_t n_spans)
{
    dl_digest_stream digest;
    dl_digest_begin(&digest);
    for (size_t i = 0; i < n_spans; i++)
        dl_digest_add(&digest, spans[i].data, spans[i].len);
    *out = (dl_pointer){.len = dl_spans_len(spans, n_spans), .digest = dl_digest_end(&digest)};
    return dl_random_bytes(out->id, sizeof out->id);
}

/* The key is taken: by our own pointer, whose PUT was cut and tried again? */
static diloco_status settle_race(dl_bucket *b, const char *key, const char *name,
                                 const dl_pointer *mine, bool *taken, dl_time until)
{
    dl_bulk_look look;
    DL_TRY(dl_bulk_look_at(b, key, &look, until));
    *taken = !look.is_pointer || memcmp(look.pointer.id, mine->id, sizeof mine->id) != 0;
    return *taken ? dl_bucket_delete(b, name, until) : DILOCO_OK;
}

/* The object is whole before its pointer exists. A crash in between leaves an object without a
 * pointer, which a sweep removes. */
diloco_status dl_bulk_publish(dl_bucket *b, const char *key, const dl_span *spans, size_t n_spans,
                              bool *taken, dl_time until)
{
    char name[NAME_MAX_BYTES];
    unsigned char bytes[DL_POINTER_BYTES];
    dl_pointer pointer;
    dl_bulk_look look;
    if (taken) { /* spares the loser of a race the upload; the PUT decides */
        DL_TRY(dl_bulk_look_at(b, key, &look, until));
        /* Half a pointer may be of a writer that died, and then no other would ever replace it. */
        if ((*taken = look.there && !look.half)) return DILOCO_OK;
    }
    DL_TRY(describe(&pointer, spans, n_spans));
    name_of(name, key, &pointer);
    DL_TRY(is_long(b, pointer.len) ? b->dialect->upload(b, name, spans, n_spans, until)
                                   : dl_bucket_put_small(b, name, spans, n_spans, NULL, until));
    dl_pointer_write(bytes, &pointer);
    DL_TRY(dl_bucket_put_small(b, key, &(dl_span){bytes, sizeof bytes}, 1, taken, until));
    return taken && *taken ? settle_race(b, key, name, &pointer, taken, until) : DILOCO_OK;
}

diloco_status dl_bulk_remove(dl_bucket *b, const char *key, const dl_pointer *pointer,
                             dl_time until)
{
    char name[NAME_MAX_BYTES];
    name_of(name, key, pointer);
    return dl_bucket_delete(b, name, until);
}

/* ---- parts */

void dl_bucket_cut_up(dl_bucket_cut *cut, const dl_bucket *b, const dl_span *spans, size_t n_spans,
                      size_t max_parts)
{
    size_t total = dl_spans_len(spans, n_spans), least = total / max_parts + 1;
    cut->spans = spans;
    cut->n_spans = n_spans;
    cut->part_bytes = dl_size_max(b->part_bytes, dl_size_round_up(least, 1 << 20));
    cut->n_parts = total / cut->part_bytes + (total % cut->part_bytes != 0);
}

typedef struct sending {
    dl_bucket *b;
    const dl_bucket_cut *cut;
    const char *name;
    size_t *left;   /* parts to send: the k-th exchange's is left[k]; */
    bool *sent;     /* whether it arrived */
    dl_span *lanes; /* n_spans for each exchange at once */
    char what[DL_BUCKET_NAME + NAME_MAX_BYTES + 8];
} sending;

/* Each exchange has its own lane of spans, since several parts are in flight. */
static diloco_status prepare_part(void *context, dl_web_exchange *x)
{
    sending *s = context;
    const dl_bucket_cut *cut = s->cut;
    dl_span *lane = s->lanes + x->index % DL_WEB_WIDTH * cut->n_spans;
    const size_t part = s->left[x->index];
    dl_bucket_request r = {.name = s->name, .body = lane, .bulk = true};
    r.n_body =
        dl_spans_cut(lane, cut->spans, cut->n_spans, part * cut->part_bytes, cut->part_bytes);
    DL_TRY(cut->request(cut->context, part, &r));
    x->method = r.method;
    x->what = s->what;
    x->body = r.body;
    x->n_body = r.n_body;
    return s->b->dialect->dress(s->b, x, &r);
}

static diloco_status finish_part(void *context, dl_web_exchange *x)
{
    sending *s = context;
    if (x->status < 200 || x->status > 299) {
        if (dl_bucket_mends(s->b, x)) return DILOCO_OK;
        dl_bucket_has_expired(s->b, x);
        return dl_bucket_refusal(s->b, x);
    }
    dl_bucket_took(s->b, x);
    s->sent[x->index] = true;
    return s->cut->answer ? s->cut->answer(s->cut->context, s->left[x->index], x) : DILOCO_OK;
}

static size_t drop_sent(sending *s, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++)
        if (!s->sent[i]) s->left[left++] = s->left[i];
    memset(s->sent, 0, n * sizeof *s->sent);
    return left;
}

/* Credentials may expire on the way: the parts that did not arrive are sent with new ones, as often
 * as some do arrive. */
static diloco_status send_parts(sending *s, dl_time until)
{
    dl_bucket *b = s->b;
    dl_web_batch batch = {.n = s->cut->n_parts,
                          .width = b->parallel,
                          .context = s,
                          .prepare = prepare_part,
                          .finish = finish_part};
    for (bool again = false;; again = true) {
        DL_TRY(dl_bucket_renew(b, until));
        const diloco_status status = dl_web_run(b->web, &batch, until);
        if (!status || !b->stale || !b->dialect->renew) return status;
        const size_t left = drop_sent(s, batch.n);
        if (again && left == batch.n) return status;
        batch.n = left;
    }
}

/* Memory is taken for the tables alone; the parts are sent from the caller's spans. */
diloco_status dl_bucket_send(dl_bucket *b, const char *name, const dl_bucket_cut *cut,
                             dl_time until)
{
    sending s = {.b = b, .cut = cut, .name = name};
    snprintf(s.what, sizeof s.what, "%s in %s", name, b->label);
    s.left = calloc(cut->n_parts, sizeof *s.left);
    s.sent = calloc(cut->n_parts, sizeof *s.sent);
    s.lanes = calloc(DL_WEB_WIDTH * cut->n_spans, sizeof *s.lanes);
    for (size_t i = 0; s.left && i < cut->n_parts; i++)
        s.left[i] = i;
    const diloco_status status =
        s.left && s.sent && s.lanes
            ? send_parts(&s, until)
            : dl_fail(DILOCO_ENOMEM, "%s: not enough memory to upload it", s.what);
    free(s.left);
    free(s.sent);
    free(s.lanes);
    return status;
}

/* ---- reading */

/* Holds back what is as long as a pointer until it is seen not to be one. */
typedef struct sniffer {
    dl_sink sink;
    bool halves, holds;
    unsigned char held[DL_POINTER_BYTES];
    size_t n;
} sniffer;

/* Only an object of a pointer's length can be one, so all others pass through directly. */
static diloco_status sniff_begin(void *context, size_t len)
{
    sniffer *s = context;
    s->holds = len == DL_POINTER_BYTES || (s->halves && len < DL_POINTER_BYTES);
    return s->holds ? DILOCO_OK : s->sink.begin(s->sink.context, len);
}

static diloco_status sniff_piece(void *context, const void *data, size_t len)
{
    sniffer *s = context;
    if (!s->holds) return s->sink.piece(s->sink.context, data, len);
    if (len > sizeof s->held - s->n)
        return dl_fail(DILOCO_EPROTO, "an object is longer than the server said");
    memcpy(s->held + s->n, data, len);
    s->n += len;
    return DILOCO_OK;
}

/* Holds a big object against its pointer. */
typedef struct checker {
    dl_sink sink;
    const dl_pointer *pointer;
    const char *key;
    dl_digest_stream digest;
} checker;

static diloco_status check_begin(void *context, size_t len)
{
    checker *c = context;
    if (len != c->pointer->len)
        return dl_fail(DILOCO_EPROTO, "%s: its bulk is %zu bytes, not %llu", c->key, len,
                       (unsigned long long)c->pointer->len);
    return c->sink.begin(c->sink.context, len);
}

static diloco_status check_piece(void *context, const void *data, size_t len)
{
    checker *c = context;
    dl_digest_add(&c->digest, data, len);
    return c->sink.piece(c->sink.context, data, len);
}

/* The object that a pointer names does not exist. A writer creates the pointer after the object and
 * removes it before, so one that is still there is damaged, or any writer's junk. If it counted as
 * absent, no reader would have it and no writer could create its name. If the key has another
 * object by now, the function sets *replaced, and the caller reads again. An absent object may be
 * final for a reader: a replica whose contribution is gone rejoins. */
static diloco_status leads_nowhere(dl_bucket *b, const char *key, const dl_pointer *pointer,
                                   bool *replaced, dl_time until)
{
    dl_bulk_look now;
    DL_TRY(dl_bulk_look_at(b, key, &now, until));
    if (!now.there || now.half) return dl_fail(DILOCO_ENOENT, "%s is not in %s", key, b->label);
    *replaced = !now.is_pointer || memcmp(now.pointer.id, pointer->id, sizeof pointer->id) != 0;
    if (*replaced) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "%s in %s: its pointer names an object that does not exist", key,
                   b->label);
}

/* The digest is known only at the end, after the caller has the bytes. A mismatch is an error of
 * the whole read. If *replaced is set, the caller has none. */
static diloco_status read_bulk(dl_bucket *b, const char *key, const dl_pointer *pointer,
                               bool *replaced, dl_sink sink, dl_time until)
{
    char name[NAME_MAX_BYTES];
    checker c = {.sink = sink, .pointer = pointer, .key = key};
    dl_sink checked = {&c, check_begin, check_piece};
    name_of(name, key, pointer);
    dl_digest_begin(&c.digest);
    const diloco_status status = dl_bucket_read_plain(b, name, NULL, checked, until);
    if (status == DILOCO_ENOENT) return leads_nowhere(b, key, pointer, replaced, until);
    DL_TRY(status);
    if (!dl_hash_equal(dl_digest_end(&c.digest), pointer->digest))
        return dl_fail(DILOCO_EPROTO, "%s in %s: its bulk does not have the digest of its pointer",
                       key, b->label);
    return DILOCO_OK;
}

static diloco_status read_once(dl_bucket *b, const char *key, bool *replaced, dl_sink sink,
                               dl_time until)
{
    sniffer s = {.sink = sink, .halves = b->halves};
    dl_sink sniffed = {&s, sniff_begin, sniff_piece};
    dl_pointer pointer;
    *replaced = false;
    DL_TRY(dl_bucket_read_plain(b, key, NULL, sniffed, until));
    if (!s.holds) return DILOCO_OK;
    if (dl_pointer_read(&pointer, s.held, s.n))
        return read_bulk(b, key, &pointer, replaced, sink, until);
    if (b->halves && may_become_pointer(s.held, s.n))
        return dl_fail(DILOCO_ENOENT, "%s is not in %s yet", key, b->label);
    DL_TRY(sink.begin(sink.context, s.n));
    return sink.piece(sink.context, s.held, s.n);
}

diloco_status dl_bulk_read(dl_bucket *b, const char *key, dl_sink sink, dl_time until)
{
    bool replaced = true;
    if (!has_pointers(b, key)) return dl_bucket_read_plain(b, key, NULL, sink, until);
    for (int i = 0; i < READS_MAX && replaced; i++)
        DL_TRY(read_once(b, key, &replaced, sink, until));
    if (!replaced) return DILOCO_OK;
    return dl_fail(DILOCO_EUNREACHABLE, "%s in %s is replaced again and again: try again", key,
                   b->label);
}

/* ---- lengths in listings */

typedef struct dl_bucket_sizes {
    struct {
        dl_hash of; /* key and tag; zero: none */
        size_t size;
    } known[SIZES];
} dl_bucket_sizes;

static dl_hash hash_of(const char *key, dl_hash tag)
{
    unsigned char text[DL_KEY_MAX + sizeof tag.bytes];
    size_t len = strlen(key);
    memcpy(text, tag.bytes, sizeof tag.bytes);
    memcpy(text + sizeof tag.bytes, key, len);
    return dl_hash_bytes(text, sizeof tag.bytes + len);
}

/* Each object that may be a pointer is looked at once, and its length is remembered by key and
 * ETag. A collision of places only costs another look. */
diloco_status dl_bulk_size(dl_bucket *b, const char *key, dl_hash tag, size_t *size, bool *there,
                           dl_time until)
{
    dl_bulk_look look;
    dl_hash of = hash_of(key, tag);
    size_t place = (of.bytes[0] | (size_t)of.bytes[1] << 8) % SIZES;
    if (!b->sizes && !(b->sizes = calloc(1, sizeof *b->sizes)))
        return dl_fail(DILOCO_ENOMEM, "%s: not enough memory to list", b->label);
    *there = true;
    if (!has_pointers(b, key)) return DILOCO_OK;
    if (dl_hash_equal(b->sizes->known[place].of, of)) {
        *size = b->sizes->known[place].size;
        return DILOCO_OK;
    }
    DL_TRY(dl_bulk_look_at(b, key, &look, until));
    *there = look.there && !look.half; /* deleted since, or not there yet: not shown */
    if (look.half) return DILOCO_OK;
    if (look.is_pointer) *size = look.pointer.len;
    b->sizes->known[place].of = of;
    b->sizes->known[place].size = *size;
    return DILOCO_OK;
}

const char *dl_bulk_skip(const char *prefix, const char *last)
{
    const bool of_it = !strncmp(prefix, FOLDER, strlen(FOLDER));
    return of_it || strncmp(last, FOLDER, strlen(FOLDER)) != 0 ? last : BEHIND;
}

/* ---- leftovers */

/* Of those that are a day old or more, SWEEP_MAX by chance: where most are published, every open
 * looks at others. */
typedef struct candidates {
    char (*names)[NAME_MAX_BYTES];
    size_t n, seen;
    dl_rng rng;
} candidates;

/* Reservoir sampling: each candidate is kept with the same probability, in bounded memory. */
static diloco_status note_candidate(void *context, dl_bucket *b, const char *name,
                                    const dl_bucket_entry *entry, dl_time until)
{
    candidates *c = context;
    (void)b, (void)until;
    if (!entry->old || strlen(name) >= NAME_MAX_BYTES) return DILOCO_OK;
    const uint64_t at = c->n < SWEEP_MAX ? c->n++ : dl_rng_below(&c->rng, c->seen + 1);
    c->seen++;
    if (at < SWEEP_MAX) strcpy(c->names[at], name);
    return DILOCO_OK;
}

/* Is .b/<key>/<id> published? */
static diloco_status sweep_one(dl_bucket *b, const char *name, dl_time until)
{
    char key[NAME_MAX_BYTES], published[NAME_MAX_BYTES];
    dl_bulk_look look;
    snprintf(key, sizeof key, "%s", name + strlen(FOLDER));
    char *slash = strrchr(key, '/');
    if (!slash) return DILOCO_OK; /* not ours */
    *slash = '\0';
    if (!dl_store_key_ok(key)) return DILOCO_OK;
    DL_TRY(dl_bulk_look_at(b, key, &look, until));
    if (look.is_pointer) name_of(published, key, &look.pointer);
    if (look.is_pointer && !strcmp(published, name)) return DILOCO_OK;
    dl_log(DILOCO_LOG_INFO, "%s: removing %s, an upload that was not published within a day",
           b->label, name);
    return dl_bucket_delete(b, name, until);
}

diloco_status dl_bulk_sweep(dl_bucket *b, dl_time until)
{
    candidates c = {.names = calloc(SWEEP_MAX, sizeof *c.names)};
    if (!c.names)
        return dl_fail(DILOCO_ENOMEM, "%s: not enough memory to look for leftovers", b->label);
    dl_rng_init(&c.rng, (uint64_t)dl_clock_now(), 0, 0);
    diloco_status status = dl_bucket_walk(b, FOLDER, NULL, note_candidate, &c, until);
    for (size_t i = 0; i < c.n && !status; i++)
        status = sweep_one(b, c.names[i], until);
    free(c.names);
    return status;
}
