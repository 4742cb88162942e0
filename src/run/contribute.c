/* contribute.c - a replica's own contribution: form g, check it, encode it, put it.
 *
 * g is formed in the copy of the state that is free between entries; the tensors do not change
 * while an ask is open, so an ask that is carried out again gives the same bytes. */
#include "run/exec_parts.h"

#include <math.h>
#include <string.h>

/* g of the whole fragment into the free copy's theta: how far the tensors moved, or gradients. */
static float *form_g(dl_exec *x)
{
    float *g = x->state.next[0].theta;
    const float *theta = x->state.now[0].theta;
    dl_fp_state fp = dl_fp_enter();
    for (size_t i = 0; i < x->a.n_tensors; i++) {
        const dl_local_tensor *t = &x->local[i];
        if (t->region == DL_INTEGERS || t->region == DL_BOOLEANS) continue;
        if (x->a.gradients && x->a.gradients[i])
            memcpy(g + t->begin, x->a.gradients[i], t->count * sizeof *g);
        else
            dl_delta(g + t->begin, theta + t->begin, t->data, t->count);
    }
    dl_fp_leave(fp);
    return g;
}

static diloco_status check_g(const dl_exec *x, const float *g, size_t n)
{
    const size_t bad = dl_first_bad(g, n, DL_ELEMENT_BOUND);
    if (bad == n) return DILOCO_OK;
    size_t index;
    const dl_manifest_tensor *t = dl_manifest_locate(&x->a.run->manifest, 0, bad, &index);
    return dl_fail(DILOCO_ENUMERIC,
                   "the movement of %s[%zu] since entry %llu is %g: this replica's parameters are "
                   "not usable; remove its state folder to join again from the shared model",
                   t->name, index, (unsigned long long)x->state.control.entry, (double)g[bad]);
}

/* The object's spans: header, payload, then integers and booleans where they lie. */
static size_t contribution_spans(dl_exec *x, const unsigned char *header, size_t payload_len)
{
    size_t n = 0;
    x->spans[n++] = (dl_span){header, DL_CONTRIBUTION_HEADER};
    x->spans[n++] = (dl_span){x->payload, payload_len};
    for (int region = DL_INTEGERS; region <= DL_BOOLEANS; region++)
        for (size_t i = 0; i < x->a.n_tensors; i++)
            if (x->local[i].region == (dl_region)region)
                x->spans[n++] = (dl_span){x->local[i].data,
                                          x->local[i].count * (region == DL_INTEGERS ? 8 : 1)};
    return n;
}

static dl_contribution describe(const dl_exec *x, uint64_t entry, size_t payload_len)
{
    const dl_fragment_shape *s = &x->a.run->manifest.fragments[0];
    dl_contribution c = {.life = x->a.self,
                         .entry = entry,
                         .position = x->work.position,
                         .step = x->work.step,
                         .steps = x->work.steps,
                         .samples = x->work.samples,
                         .tokens = x->work.tokens,
                         .shard = x->work.shard,
                         .first_sample = x->work.first_sample,
                         .end_sample = x->work.end_sample,
                         .loss = x->work.loss,
                         .norm = x->facts.norm,
                         .base = x->state.now[0].digest,
                         .manifest = x->a.run->manifest.digest,
                         .n_floats = s->n_trained + s->n_averaged,
                         .n_integers = s->n_integers,
                         .n_booleans = s->n_booleans,
                         .payload_len = payload_len};
    memcpy(c.run, x->a.run->id, sizeof c.run);
    const char *codec = x->forms[0].codec->name;
    memcpy(c.codec, codec, strlen(codec) + 1);
    return c;
}

typedef struct header_sink {
    unsigned char bytes[DL_CONTRIBUTION_HEADER];
    size_t len;
} header_sink;

static diloco_status take_header(void *context, const void *data, size_t len)
{
    header_sink *h = context;
    const size_t want = dl_size_min(len, sizeof h->bytes - h->len);
    memcpy(h->bytes + h->len, data, want);
    h->len += want;
    /* ECLOSED ends the read once there is enough; nobody sees it. */
    return h->len == sizeof h->bytes ? DILOCO_ECLOSED : DILOCO_OK;
}

/* P15: did a former life of ours put the same contribution already? Asked at the first of this
 * life; none of its lives can have an older one open behind that. */
static diloco_status find_former(dl_exec *x, uint64_t entry, const dl_contribution *ours,
                                 dl_event *event, dl_time until)
{
    for (uint32_t g = x->a.self.generation; g-- > 0 && !event->taken;) {
        dl_life life = x->a.self;
        life.generation = g;
        dl_key key;
        dl_key_contribution(key, entry, &life);
        header_sink h = {.len = 0};
        dl_contribution c;
        const dl_sink sink = {.context = &h, .piece = take_header};
        const diloco_status status = dl_store_read(x->a.store, key, sink, until);
        if (status == DILOCO_EUNREACHABLE || status == DILOCO_ETIMEDOUT) return status;
        if (dl_contribution_read_header(&c, h.bytes, h.len)) continue;
        event->taken = dl_hash_equal(c.body, ours->body) && dl_hash_equal(c.base, ours->base);
        event->takes_over = life;
    }
    return DILOCO_OK;
}

diloco_status dl_exec_contribute(dl_exec *x, const dl_ask *ask, dl_event *event, dl_time until)
{
    const dl_fragment_shape *s = &x->a.run->manifest.fragments[0];
    const size_t n = s->n_trained + s->n_averaged;
    const dl_time began = dl_clock_now();
    float *g = form_g(x);
    DL_TRY(check_g(x, g, n));
    dl_fp_state fp = dl_fp_enter();
    x->facts.norm = sqrt(dl_norm2(g, n));
    size_t payload_len;
    x->forms[0].codec->encode(&x->forms[0], x->payload, &payload_len, g);
    dl_fp_leave(fp);

    unsigned char header[DL_CONTRIBUTION_HEADER];
    const size_t n_spans = contribution_spans(x, header, payload_len);
    dl_contribution c = describe(x, ask->entry, payload_len);
    dl_digest_stream digest;
    dl_digest_begin(&digest);
    x->facts.bytes = DL_CONTRIBUTION_HEADER;
    for (size_t i = 1; i < n_spans; i++) {
        dl_digest_add(&digest, x->spans[i].data, x->spans[i].len);
        x->facts.bytes += x->spans[i].len;
    }
    c.body = dl_digest_end(&digest);
    dl_contribution_write_header(header, &c);
    const dl_time encoded = dl_clock_now();
    x->facts.encode_s = dl_seconds(encoded - began);
    if (!x->contributed) DL_TRY(find_former(x, ask->entry, &c, event, until));
    x->contributed = true;
    if (event->taken) return DILOCO_OK;

    dl_key key;
    dl_key_contribution(key, ask->entry, &x->a.self);
    diloco_status status = dl_store_create(x->a.store, key, x->spans, n_spans, NULL, until);
    if (status == DILOCO_EEXIST) /* what was read back to compare may have been damaged */
        status = dl_store_create(x->a.store, key, x->spans, n_spans, NULL, until);
    x->facts.put_s = dl_seconds(dl_clock_now() - encoded);
    if (status == DILOCO_EEXIST)
        return dl_fail(DILOCO_EFENCED,
                       "%s holds other bytes: another process lives as %s; stop one", key,
                       x->a.self.replica);
    return status;
}
