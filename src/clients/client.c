/* client.c - see client.h; docs/formats.md has the offsets.
 *
 * An object is a header of 256 bytes and the vectors, one after the other. The header has the
 * vectors' digest and, at its end, its own. Everything is checked before a byte is written to a
 * vector, so a state is loaded whole or not at all. */
#include "clients/client.h"

#include "protocol/logical_clients.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes: the header, and the place of its own digest. Spans: the header and 63 vectors. MAX_OLD:
 * states that one call of dl_client_collect() removes; more of them wait for the next call. */
enum { HEADER = 256, AT_SEAL = HEADER - 16, VERSION = 1, MAX_SPANS = 64, MAX_OLD = 64 };

static const char magic[8] = {'D', 'L', 'C', 'L', 'I', 'E', 'N', 'T'};

/* ---- names ------------------------------------------------------------------------------ */

/* All states of a client are below this prefix, which ends with a slash. */
static void folder_of(dl_key out, const dl_client_store *s, uint64_t client)
{
    dl_client_name name;
    dl_client_name_of(name, client);
    snprintf(out, sizeof(dl_key), "st/%s/%s/", s->run, name);
}

/* The entry is padded to ten digits, so that the order of names is the order of entries. */
static void key_of(dl_key out, const dl_client_store *s, const dl_client_facts *f)
{
    char digest[DL_HASH_HEX + 1];
    folder_of(out, s, f->client);
    dl_hash_to_hex(digest, f->body);
    const size_t len = strlen(out);
    snprintf(out + len, sizeof(dl_key) - len, "%010" PRIu64 ".%s", f->entry, digest);
}

/* ---- bytes ------------------------------------------------------------------------------ */

static size_t body_bytes(const dl_client_store *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_vectors; i++)
        n += s->vectors[i].len;
    return n;
}

static void put_u64(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get_u64(const unsigned char *at)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static dl_hash digest_vectors(const dl_client_store *s)
{
    dl_digest_stream d;
    dl_digest_begin(&d);
    for (size_t i = 0; i < s->n_vectors; i++)
        dl_digest_add(&d, s->vectors[i].data, s->vectors[i].len);
    return dl_digest_end(&d);
}

enum { /* offsets */
       AT_VERSION = 8,
       AT_RUN = 16,
       AT_CLIENT = 48,
       AT_ENTRY = 56,
       AT_BODY = 64,
       AT_LAYOUT = 80,
       AT_STEPS = 96,
       AT_NEXT = 104,
       AT_BYTES = 112,
       AT_DIGEST = 120
};

static void write_header(unsigned char *out, const dl_client_store *s, const dl_client_facts *f)
{
    const dl_hash digest = digest_vectors(s);
    memset(out, 0, HEADER);
    memcpy(out, magic, sizeof magic);
    put_u64(out + AT_VERSION, VERSION);
    memcpy(out + AT_RUN, s->run, DL_HASH_HEX);
    put_u64(out + AT_CLIENT, f->client);
    put_u64(out + AT_ENTRY, f->entry);
    memcpy(out + AT_BODY, f->body.bytes, sizeof f->body.bytes);
    memcpy(out + AT_LAYOUT, s->layout.bytes, sizeof s->layout.bytes);
    put_u64(out + AT_STEPS, f->steps);
    put_u64(out + AT_NEXT, f->next_sample);
    put_u64(out + AT_BYTES, body_bytes(s));
    memcpy(out + AT_DIGEST, digest.bytes, sizeof digest.bytes);
    const dl_hash seal = dl_hash_bytes(out, AT_SEAL);
    memcpy(out + AT_SEAL, seal.bytes, sizeof seal.bytes);
}

/* Returns true if the header is there and undamaged. Its other fields are then as written. */
static bool is_whole(const dl_buf *object)
{
    if (object->len < HEADER || memcmp(object->data, magic, sizeof magic) != 0) return false;
    const dl_hash seal = dl_hash_bytes(object->data, AT_SEAL);
    return memcmp(object->data + AT_SEAL, seal.bytes, sizeof seal.bytes) == 0;
}

/* Returns true if the header names the state that the key names. They differ if an object was
 * copied under another name. */
static bool is_asked_for(const dl_client_store *s, const dl_client_facts *f)
{
    const unsigned char *h = s->object.data;
    return memcmp(h + AT_RUN, s->run, DL_HASH_HEX) == 0 && get_u64(h + AT_CLIENT) == f->client &&
           get_u64(h + AT_ENTRY) == f->entry &&
           memcmp(h + AT_BODY, f->body.bytes, sizeof f->body.bytes) == 0;
}

/* Compares the object that was read with the requested state. Errors as of dl_client_load. */
static diloco_status check(const dl_client_store *s, const dl_client_facts *f, const char *key)
{
    const dl_buf *o = &s->object;
    if (!is_whole(o)) return dl_fail(DILOCO_EPROTO, "%s is truncated or damaged", key);
    if (get_u64(o->data + AT_VERSION) != VERSION)
        return dl_fail(DILOCO_EDIFFERS, "%s is of format version %" PRIu64 ", not %d", key,
                       get_u64(o->data + AT_VERSION), VERSION);
    if (!is_asked_for(s, f))
        return dl_fail(DILOCO_EPROTO, "%s is the state of another client", key);
    if (memcmp(o->data + AT_LAYOUT, s->layout.bytes, sizeof s->layout.bytes) != 0)
        return dl_fail(DILOCO_EDIFFERS,
                       "%s is of another model, optimizer or schedule than this run has", key);
    if (get_u64(o->data + AT_BYTES) != body_bytes(s) || o->len != HEADER + body_bytes(s))
        return dl_fail(DILOCO_EPROTO, "%s is truncated", key);
    dl_digest_stream d;
    dl_digest_begin(&d);
    dl_digest_add(&d, o->data + HEADER, o->len - HEADER);
    const dl_hash digest = dl_digest_end(&d);
    if (memcmp(o->data + AT_DIGEST, digest.bytes, sizeof digest.bytes) != 0)
        return dl_fail(DILOCO_EPROTO, "%s is damaged", key);
    return DILOCO_OK;
}

/* ---- the calls -------------------------------------------------------------------------- */

dl_hash dl_client_layout(const dl_config *config, dl_hash manifest, const dl_private *vectors,
                         size_t n)
{
    dl_digest_stream d;
    dl_digest_begin(&d);
    dl_digest_add(&d, manifest.bytes, sizeof manifest.bytes);
    dl_digest_add(&d, config->optimizer, strlen(config->optimizer) + 1);
    dl_digest_add(&d, config->lr_scheduler, strlen(config->lr_scheduler) + 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char len[8];
        put_u64(len, vectors[i].len);
        dl_digest_add(&d, vectors[i].name, strlen(vectors[i].name) + 1);
        dl_digest_add(&d, len, sizeof len);
    }
    return dl_digest_end(&d);
}

void dl_client_store_init(dl_client_store *out, dl_store *store, const char *run, dl_hash layout,
                          const dl_private *vectors, size_t n_vectors)
{
    *out = (dl_client_store){
        .store = store, .layout = layout, .vectors = vectors, .n_vectors = n_vectors};
    snprintf(out->run, sizeof out->run, "%s", run);
    dl_buf_init(&out->object, HEADER + body_bytes(out));
}

void dl_client_store_deinit(dl_client_store *s)
{
    dl_buf_deinit(&s->object);
}

static diloco_status read_object(dl_client_store *s, const dl_client_facts *f, dl_time until)
{
    dl_key key;
    key_of(key, s, f);
    dl_buf_clear(&s->object);
    DL_TRY(dl_store_get(s->store, &s->object, key, until));
    return check(s, f, key);
}

/* Handles a name that exists already. A valid object is this state as another worker made it, and
 * is kept. A damaged one is replaced. */
static diloco_status replace_damaged(dl_client_store *s, const dl_client_facts *f, const char *key,
                                     const dl_span *spans, size_t n, dl_time until)
{
    const diloco_status there = read_object(s, f, until);
    if (there != DILOCO_EPROTO) return there;
    DL_TRY(dl_store_delete(s->store, key, until));
    return dl_store_create(s->store, key, spans, n, NULL, until);
}

diloco_status dl_client_save(dl_client_store *s, const dl_client_facts *f, dl_time until)
{
    unsigned char header[HEADER];
    dl_span spans[MAX_SPANS] = {{header, HEADER}};
    dl_key key;
    DL_ASSERT(s->n_vectors < MAX_SPANS);
    write_header(header, s, f);
    for (size_t i = 0; i < s->n_vectors; i++)
        spans[i + 1] = (dl_span){s->vectors[i].data, s->vectors[i].len};
    key_of(key, s, f);
    const size_t n = s->n_vectors + 1;
    const diloco_status status = dl_store_create(s->store, key, spans, n, NULL, until);
    return status == DILOCO_EEXIST ? replace_damaged(s, f, key, spans, n, until) : status;
}

diloco_status dl_client_load(dl_client_store *s, dl_client_facts *f, dl_time until)
{
    DL_TRY(read_object(s, f, until));
    const unsigned char *at = s->object.data;
    f->steps = get_u64(at + AT_STEPS);
    f->next_sample = get_u64(at + AT_NEXT);
    at += HEADER;
    for (size_t i = 0; i < s->n_vectors; at += s->vectors[i++].len)
        memcpy(s->vectors[i].data, at, s->vectors[i].len);
    return DILOCO_OK;
}

/* The states to remove. They are listed first, since a listing must not change while it is read. */
typedef struct old {
    const char *keep; /* the valid state's key */
    dl_key keys[MAX_OLD];
    size_t n;
} old;

/* Notes a state of the kept one's entry or an earlier one. A state of a later entry may belong to a
 * contribution that the log has yet to count, so it stays. */
static diloco_status found(void *context, const char *key, size_t len)
{
    old *o = context;
    const size_t entry_ends = strlen(o->keep) - DL_HASH_HEX;
    (void)len;
    if (strncmp(key, o->keep, entry_ends) > 0 || !strcmp(key, o->keep)) return DILOCO_OK;
    if (o->n < MAX_OLD) snprintf(o->keys[o->n++], sizeof(dl_key), "%s", key);
    return DILOCO_OK;
}

diloco_status dl_client_collect(dl_client_store *s, const dl_client_facts *f, dl_time until)
{
    dl_key folder, keep;
    folder_of(folder, s, f->client);
    key_of(keep, s, f);
    old *o = calloc(1, sizeof *o);
    if (!o) return dl_fail(DILOCO_ENOMEM, "not enough memory to list a client's states");
    o->keep = keep;
    diloco_status status = dl_store_list(s->store, folder, NULL, found, o, until);
    for (size_t i = 0; !status && i < o->n; i++)
        status = dl_store_delete(s->store, o->keys[i], until);
    free(o);
    return status;
}
