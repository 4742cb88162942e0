/* contribution.c - a reader that trusts no field before it is checked. contribution_header.c reads
 * the header.
 *
 * An object's bytes arrive in pieces of any size. The checks have this order, and a failed one ends
 * the read:
 *
 * 1. The length is between a header and the most that the expected fragment can need.
 * 2. The header is whole: magic, its own hash, version, well-formed fields.
 * 3. The header has the expected values, and the object exactly the length that it says. In a run
 *    with keys, the key of its replica has signed it.
 * 4. The body arrives in the slot and is hashed on the way; the hash is the header's.
 * 5. A compressed payload is unpacked to the front of the slot. It was received at the slot's end,
 *    for which pack.h shows that there is enough space.
 * 6. Values are replaced by movements, if values are sent. Later code does not know which it was.
 * 7. The codec accepts the payload; booleans are 0 or 1.
 *
 * The body of a sliced contribution is the table of its slices' digests; the readers of the slices
 * do 5 to 7.
 *
 * Step 3 precedes the body, so a foreign or outdated contribution costs a read of 512 bytes. */
#include "log/contribution.h"

#include "log/claims.h"
#include "log/fields.h"

#include <math.h>
#include <string.h>

enum { SIGNED_HEADER = DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF };

/* ---- reading a header alone */

/* Bytes of an object's beginning, as they arrive. `want` is the number to read. */
typedef struct head {
    unsigned char bytes[SIGNED_HEADER];
    size_t len, want;
} head;

static diloco_status take_head(void *context, const void *data, size_t len)
{
    head *h = context;
    const size_t n = dl_size_min(len, h->want - h->len);
    memcpy(h->bytes + h->len, data, n);
    h->len += n;
    /* ECLOSED ends the read when the header is complete; the caller does not see it. */
    return h->len == h->want ? DILOCO_ECLOSED : DILOCO_OK;
}

/* The read is ended once the header has arrived, so a large object costs 512 bytes. Expected values
 * are not checked; the caller does that. */
diloco_status dl_contribution_look(dl_contribution *out, dl_store *store, const char *key,
                                   dl_time until)
{
    head h = {.want = DL_CONTRIBUTION_HEADER};
    const dl_sink sink = {.context = &h, .piece = take_head};
    const diloco_status status = dl_store_read(store, key, sink, until);
    if (status && h.len < h.want) return status;
    return dl_contribution_read_header(out, h.bytes, h.len);
}

/* ---- signed */

/* The kind is part of what is signed, so a signed contribution cannot be presented as a combined
 * update. */
static dl_statement statement_of(const dl_contribution *c)
{
    const bool combined = strcmp(c->codec, DL_CODEC_COMBINED) == 0;
    return (dl_statement){.kind = combined ? "combined" : "contribution",
                          .run = c->run,
                          .entry = c->entry,
                          .fragment = c->fragment,
                          .generation = &c->generation};
}

/* The signature covers the header, and the header has the cryptographic hash of the body. So a
 * reader can check the signature before the body arrives. */
diloco_status dl_contribution_sign(unsigned char out[SIGNED_HEADER], dl_contribution *c,
                                   const dl_signer *signer, const dl_span *body, size_t n)
{
    dl_strong_stream *stream;
    dl_strong hash;
    dl_signature signature;
    unsigned char *proof = out + DL_CONTRIBUTION_HEADER;
    DL_TRY(dl_strong_begin(&stream));
    for (size_t i = 0; i < n; i++)
        dl_strong_add(stream, body[i].data, body[i].len);
    c->strong = dl_strong_end(stream);
    c->is_signed = true;
    dl_contribution_write_header(out, c);
    const dl_statement what = statement_of(c);
    DL_TRY(dl_strong_bytes(&hash, out, DL_CONTRIBUTION_HEADER));
    DL_TRY(dl_statement_sign(&signature, signer, &what, &hash));
    const dl_public *key = dl_signer_public(signer);
    memcpy(proof, key->bytes, sizeof key->bytes);
    memcpy(proof + sizeof key->bytes, signature.bytes, sizeof signature.bytes);
    return DILOCO_OK;
}

/* ---- sizes */

static size_t discrete_bytes(dl_fragment_shape shape)
{
    return shape.n_integers * sizeof(int64_t) + shape.n_booleans;
}

/* `packed` adds the gap that unpacking in place needs (pack.h). */
size_t dl_contribution_body_max(const dl_codec_form *form, dl_fragment_shape shape, bool packed)
{
    return form->bound + (packed ? dl_pack_gap(form->bound) : 0) + discrete_bytes(shape);
}

/* ---- fetching */

typedef struct reader {
    const dl_contribution_expect *expect;
    unsigned char *base; /* of the slot, which has space for it */
    size_t room;
    const char *reason;
    size_t total;    /* bytes of the object, from the store */
    size_t received; /* header and body */
    size_t at;       /* of the body in the slot: a compressed one ends at the slot's end */
    size_t head;     /* bytes of header and proof */
    unsigned char header[SIGNED_HEADER];
    dl_contribution facts; /* valid once the header was read */
    dl_digest_stream digest;
    dl_strong_stream *strong; /* NULL: contributions are not signed */
} reader;

static size_t body_max(const dl_contribution_expect *e)
{
    if (e->slices) return (size_t)e->slices * sizeof(dl_hash);
    return dl_contribution_body_max(e->form, e->shape, e->packer != NULL);
}

/* Fail with DILOCO_EPROTO and a reason for the record. */
#define REJECT(r, word, ...) ((r)->reason = (word), dl_fail(DILOCO_EPROTO, __VA_ARGS__))

/* The object's length is known before any byte of it. It is checked here, so nothing is allocated
 * or written for an object that is too long. */
static diloco_status on_begin(void *context, size_t len)
{
    reader *r = context;
    size_t most = body_max(r->expect);
    DL_ASSERT(most <= r->room);
    if (len < r->head) return REJECT(r, "truncated", "%zu bytes are no contribution", len);
    if (len - r->head > most)
        return REJECT(r, "shape", "%zu bytes after the header; the fragment needs at most %zu",
                      len - r->head, most);
    r->total = len;
    return DILOCO_OK;
}

/* Refuses what belongs to another run, model, name or base. The words "foreign" and "base" separate
 * them in the record. A late replica's contribution fails at the base. */
static diloco_status check_origin(reader *r, const dl_contribution_expect *e)
{
    const dl_contribution *f = &r->facts;
    if (strcmp(f->run, e->run) != 0)
        return REJECT(r, "foreign", "it belongs to run %s, this is run %s", f->run, e->run);
    if (!dl_hash_equal(f->manifest, e->manifest))
        return REJECT(r, "foreign", "it was made for another model");
    const bool empty = dl_contribution_is_empty(f);
    if (!dl_generation_equal(&f->generation, &e->generation) || f->entry != e->entry ||
        (f->fragment != e->fragment && !empty))
        return REJECT(r, "foreign",
                      "it is %s.%04u's for entry %llu, fragment %u: it is stored under another "
                      "name",
                      f->generation.replica, (unsigned)f->generation.number,
                      (unsigned long long)f->entry, (unsigned)f->fragment);
    /* An announcement is made before the fragment and the state of its entry are known (P9), and
     * moves nothing. */
    if (empty) return DILOCO_OK;
    if (!e->any_base && !dl_hash_equal(f->base, e->base) && !dl_hash_equal(f->base, e->also_base)) {
        char theirs[DL_HASH_HEX + 1], ours[DL_HASH_HEX + 1];
        dl_hash_to_hex(theirs, f->base);
        dl_hash_to_hex(ours, e->base);
        return REJECT(r, "base", "it started from state %s, the log is at %s", theirs, ours);
    }
    return DILOCO_OK;
}

static diloco_status check_empty(reader *r)
{
    const dl_contribution *f = &r->facts;
    const bool has_something = f->n_floats || f->n_integers || f->n_booleans || f->payload_len ||
                               f->unpacked_len || f->slices || r->total != r->head;
    return has_something ? REJECT(r, "shape", "it reports no samples, and has a body") : DILOCO_OK;
}

/* Each size is compared with the expected one before it is added to another. All numbers of the
 * header are untrusted. Afterwards the sum of the parts equals the object's length, and each part
 * fits the slot. */
static diloco_status check_sizes(reader *r, const dl_contribution_expect *e)
{
    const dl_contribution *f = &r->facts;
    const char *codec = e->codec ? e->codec : e->form->codec->name;
    if (strcmp(f->codec, codec) != 0)
        return REJECT(r, "codec", "it is encoded as %s, the run uses %s", f->codec, codec);
    if (dl_contribution_is_empty(f)) return check_empty(r);
    if (f->n_floats != e->form->n || f->n_integers != e->shape.n_integers ||
        f->n_booleans != e->shape.n_booleans)
        return REJECT(r, "shape",
                      "its numbers of floats, integers and booleans are another model's");
    if (f->packing != (e->packer ? DL_PACKING_ZSTD : DL_PACKING_NONE))
        return REJECT(r, "codec", "its payload is %scompressed, the run's are %s",
                      f->packing ? "" : "not ", e->packer ? "so" : "not");
    if (f->slices != e->slices)
        return REJECT(r, "shape", "it is in %llu slices, not %llu", (unsigned long long)f->slices,
                      (unsigned long long)e->slices);
    const size_t discrete = e->slices ? 0 : discrete_bytes(e->shape);
    size_t most = body_max(e) - discrete;
    if (e->slices && f->payload_len != most)
        return REJECT(r, "shape", "its table of digests has %llu bytes, not %zu",
                      (unsigned long long)f->payload_len, most);
    if (f->payload_len > most || f->unpacked_len > e->form->bound)
        return REJECT(r, "codec", "a payload of %llu bytes; %s needs at most %zu",
                      (unsigned long long)dl_size_max(f->payload_len, f->unpacked_len), codec,
                      most);
    size_t need = r->head + (size_t)f->payload_len + discrete;
    if (need != r->total)
        return REJECT(r, r->total < need ? "truncated" : "shape",
                      "it has %zu bytes, its header says %zu", r->total, need);
    return DILOCO_OK;
}

/* If the run assigns no data, the header must name none. */
static diloco_status check_assigned(reader *r, const dl_contribution_expect *e)
{
    const char *why = NULL;
    if (e->ledger) why = e->refuses(e->ledger, &r->facts);
    if (!e->ledger && r->facts.assigned.n) why = "it names dealt samples, and this run deals none";
    return why ? REJECT(r, "dealt", "%s", why) : DILOCO_OK;
}

static diloco_status check_claims(reader *r, const dl_contribution_expect *e)
{
    const char *why = dl_claims_refuse(&r->facts, &e->claims);
    return why ? REJECT(r, "claim", "%s", why) : DILOCO_OK;
}

/* Checks that the proof after a header signs the header's facts. `by`: the key that signed. */
static diloco_status check_signature(const unsigned char *header, const dl_contribution *facts,
                                     dl_public *by)
{
    const unsigned char *proof = header + DL_CONTRIBUTION_HEADER;
    dl_signature signature;
    dl_strong hash;
    memcpy(by->bytes, proof, sizeof by->bytes);
    memcpy(signature.bytes, proof + sizeof by->bytes, sizeof signature.bytes);
    const dl_statement what = statement_of(facts);
    DL_TRY(dl_strong_bytes(&hash, header, DL_CONTRIBUTION_HEADER));
    return dl_statement_holds(&signature, by, &what, &hash)
               ? DILOCO_OK
               : dl_fail(DILOCO_EPROTO, "its signature does not match its bytes");
}

/* Unreadable objects give *out = false: they are not this replica's doing. Only a store that does
 * not answer is an error. */
diloco_status dl_contribution_is_by(bool *out, dl_store *store, const char *run, uint64_t entry,
                                    const dl_generation *generation, const dl_public *key,
                                    dl_time until)
{
    head h = {.want = SIGNED_HEADER};
    const dl_sink sink = {.context = &h, .piece = take_head};
    dl_contribution c;
    dl_public by;
    dl_key name;
    *out = false;
    dl_key_contribution(name, entry, generation);
    const diloco_status status = dl_store_read(store, name, sink, until);
    if (h.len < h.want)
        return status == DILOCO_EPROTO || status == DILOCO_ENOENT ? DILOCO_OK : status;
    if (dl_contribution_read_header(&c, h.bytes, h.len) || !c.is_signed) return DILOCO_OK;
    if (check_signature(h.bytes, &c, &by) || !dl_public_equal(&by, key)) return DILOCO_OK;
    *out =
        !strcmp(c.run, run) && c.entry == entry && dl_generation_equal(&c.generation, generation);
    return DILOCO_OK;
}

/* Checks that the key of its replica has signed it. */
static diloco_status check_proof(reader *r, const dl_contribution_expect *e)
{
    const unsigned char *proof = r->header + DL_CONTRIBUTION_HEADER;
    dl_public by;
    if (r->facts.is_signed != (e->key != NULL))
        return REJECT(r, "signature", "it is %ssigned, the run's are %s", e->key ? "not " : "",
                      e->key ? "so" : "not");
    if (!e->key) return DILOCO_OK;
    memcpy(by.bytes, proof, sizeof by.bytes);
    if (!dl_public_equal(&by, e->key))
        return REJECT(r, "signature", "it is signed with another key than %s's",
                      e->generation.replica);
    if (check_signature(r->header, &r->facts, &by))
        return REJECT(r, "signature", "its signature does not match its bytes and %s's key",
                      e->generation.replica);
    return DILOCO_OK;
}

/* The order: identity, signature, sizes, then claims. A compressed body is placed at the slot's
 * end, and any other at its beginning. */
static diloco_status check_header(reader *r)
{
    if (dl_contribution_read_header(&r->facts, r->header, DL_CONTRIBUTION_HEADER)) {
        r->reason = "header";
        return DILOCO_EPROTO;
    }
    DL_TRY(check_origin(r, r->expect));
    DL_TRY(check_proof(r, r->expect));
    DL_TRY(check_sizes(r, r->expect));
    DL_TRY(check_assigned(r, r->expect));
    DL_TRY(check_claims(r, r->expect));
    dl_digest_begin(&r->digest);
    r->at = r->expect->packer ? r->room - (r->total - r->head) : 0;
    return DILOCO_OK;
}

/* Takes pieces of any size: first the header, then the body. The body is copied only after every
 * check of the header has passed. */
static diloco_status on_piece(void *context, const void *data, size_t len)
{
    reader *r = context;
    const unsigned char *from = data;
    if (len > r->total - r->received)
        return REJECT(r, "truncated", "the object grew while it was read");
    if (r->received < r->head) {
        size_t n = dl_size_min(len, r->head - r->received);
        memcpy(r->header + r->received, from, n);
        r->received += n;
        from += n;
        len -= n;
        if (r->received < r->head) return DILOCO_OK;
        DL_TRY(check_header(r));
    }
    if (len == 0) return DILOCO_OK;
    memcpy(r->base + r->at + (r->received - r->head), from, len);
    dl_digest_add(&r->digest, from, len);
    if (r->strong) dl_strong_add(r->strong, from, len);
    r->received += len;
    return DILOCO_OK;
}

/* Names the element that the codec refused. The payload's form was right, so it can be decoded. */
diloco_status dl_contribution_bad_element(const char **reason, const dl_contribution_expect *e,
                                          const dl_contribution_data *data, size_t index)
{
    size_t in_tensor, first = index / DL_BLOCK * DL_BLOCK;
    float block[DL_BLOCK];
    dl_fp_state fp = dl_fp_enter();
    e->form->codec->decode(e->form, block, data->payload, data->len, first,
                           dl_size_min(DL_BLOCK, e->form->n - first));
    dl_fp_leave(fp);
    float value = block[index - first];
    const dl_manifest_tensor *tensor =
        dl_manifest_locate(e->tensors, (int)e->fragment, index, &in_tensor);
    *reason = isfinite(value) ? "bound" : "non-finite";
    return dl_fail(DILOCO_ENUMERIC, "element %zu of %s moved by %g; at most %g may be", in_tensor,
                   tensor->name, (double)value, (double)e->bound);
}

/* Decodes nothing: the codec checks the payload's form and its elements in one pass, and measures
 * its norm. */
static diloco_status check_payload(reader *r, dl_contribution_data *data)
{
    const dl_contribution_expect *e = r->expect;
    size_t index;
    diloco_status status =
        dl_codec_check(e->form, data->payload, data->len, e->bound, &index, &data->norm2);
    if (status == DILOCO_ENUMERIC)
        status = dl_contribution_bad_element(&r->reason, r->expect, data, index);
    if (status == DILOCO_EPROTO) r->reason = "codec";
    return status;
}

/* Replaces the values in the slot by g = before - after, with the bits that the sender would have
 * computed. */
static diloco_status make_movement(reader *r, const dl_contribution_data *data)
{
    const dl_contribution_expect *e = r->expect;
    if (!e->before) return DILOCO_OK;
    if (data->len != e->form->n * sizeof(float))
        return REJECT(r, "codec", "%zu bytes are not the values of %zu elements", data->len,
                      e->form->n);
    float *values = (void *)r->base;
    dl_fp_state fp = dl_fp_enter();
    dl_delta(values, e->before, values, e->form->n);
    dl_fp_leave(fp);
    return DILOCO_OK;
}

static diloco_status unpack(reader *r, const unsigned char *body)
{
    const dl_contribution_expect *e = r->expect;
    if (!e->packer) return DILOCO_OK;
    diloco_status status = dl_pack_open(e->packer, r->base, (size_t)r->facts.unpacked_len, body,
                                        (size_t)r->facts.payload_len, e->form->codec->width);
    if (status) r->reason = "codec";
    return status;
}

/* Checks the body, which is complete in the slot. The digest comes first: a damaged body is
 * reported as damage and not as a wrong codec. Integers and booleans follow the payload as it
 * arrived, so their address is taken before the payload is unpacked. */
static diloco_status check_body(reader *r, dl_contribution_data *data)
{
    const dl_contribution_expect *e = r->expect;
    if (!dl_hash_equal(dl_digest_end(&r->digest), r->facts.body))
        return REJECT(r, "checksum", "its body is damaged: the digest is not the header's");
    if (r->strong) {
        const dl_strong hash = dl_strong_end(r->strong);
        r->strong = NULL;
        if (memcmp(hash.bytes, r->facts.strong.bytes, sizeof hash.bytes) != 0)
            return REJECT(r, "signature", "its body is not the one that was signed");
    }
    if (dl_contribution_is_empty(&r->facts)) return DILOCO_OK;
    if (e->slices) return DILOCO_OK; /* the body is a table */
    const unsigned char *body = r->base + r->at;
    data->payload = r->base;
    data->len = (size_t)(e->packer ? r->facts.unpacked_len : r->facts.payload_len);
    data->integers = body + r->facts.payload_len;
    data->booleans = data->integers + e->shape.n_integers * sizeof(int64_t);
    for (size_t i = 0; i < e->shape.n_booleans; i++)
        if (data->booleans[i] > 1)
            return REJECT(r, "codec", "boolean %zu is %u", i, (unsigned)data->booleans[i]);
    DL_TRY(unpack(r, body));
    DL_TRY(make_movement(r, data));
    return check_payload(r, data);
}

/* A source of the whole object, which it gives to `sink`. */
typedef struct source {
    diloco_status (*give)(const struct source *s, dl_sink sink);
    dl_store *store;
    const char *key;
    dl_time until;
    const dl_span *spans;
    size_t n_spans;
} source;

/* Reads and checks an object from any source. *reason is set also after an error; *facts and *data
 * only on success. */
static diloco_status take_all(dl_contribution *facts, dl_contribution_data *data,
                              const char **reason, dl_slot *slot, const source *from,
                              const dl_contribution_expect *expect)
{
    reader r = {.expect = expect,
                .base = dl_slot_bytes(slot),
                .room = dl_slot_size(slot),
                .reason = "",
                .head = expect->key ? SIGNED_HEADER : DL_CONTRIBUTION_HEADER};
    dl_contribution_data got = {.len = 0};
    if (expect->key) DL_TRY(dl_strong_begin(&r.strong));
    diloco_status status = from->give(from, (dl_sink){&r, on_begin, on_piece});
    if (!status && r.received != r.total)
        status = dl_fail(DILOCO_EPROTO, "%zu of %zu bytes arrived", r.received, r.total);
    if (status == DILOCO_EPROTO && !*r.reason) r.reason = "truncated"; /* found by the store */
    if (!status) status = check_body(&r, &got);
    dl_strong_drop(r.strong);
    dl_slot_let_go(slot, &got);
    *reason = r.reason;
    if (status) return status;
    *facts = r.facts;
    facts->bulk = expect->bulk;
    *data = got;
    return DILOCO_OK;
}

static diloco_status give_stored(const source *s, dl_sink sink)
{
    return dl_store_read(s->store, s->key, sink, s->until);
}

/* The object is given in the pieces that it has in memory. It takes the same path as one from a
 * store, so it passes the same checks. */
static diloco_status give_spans(const source *s, dl_sink sink)
{
    DL_TRY(sink.begin(sink.context, dl_spans_len(s->spans, s->n_spans)));
    for (size_t i = 0; i < s->n_spans; i++)
        DL_TRY(sink.piece(sink.context, s->spans[i].data, s->spans[i].len));
    return DILOCO_OK;
}

diloco_status dl_contribution_fetch(dl_contribution *facts, dl_contribution_data *data,
                                    const char **reason, dl_slot *slot, dl_store *store,
                                    const char *key, const dl_contribution_expect *expect,
                                    dl_time until)
{
    const source from = {.give = give_stored, .store = store, .key = key, .until = until};
    const diloco_status status = take_all(facts, data, reason, slot, &from, expect);
    return status ? dl_fail_context(status, "%s", key) : DILOCO_OK;
}

diloco_status dl_contribution_read(dl_contribution *facts, dl_contribution_data *data,
                                   const char **reason, dl_slot *slot, const dl_span *spans,
                                   size_t n, const dl_contribution_expect *expect)
{
    const source from = {.give = give_spans, .spans = spans, .n_spans = n};
    return take_all(facts, data, reason, slot, &from, expect);
}

bool dl_contribution_is_damage(const char *reason)
{
    return !strcmp(reason, "truncated") || !strcmp(reason, "checksum") || !strcmp(reason, "header");
}

bool dl_contribution_is_junk(const char *reason)
{
    return !strcmp(reason, "truncated") || !strcmp(reason, "header") || !strcmp(reason, "foreign");
}
