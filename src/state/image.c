/* image.c - a state as safetensors, written and read.
 *
 * `parts` lists every tensor of an image with its place in the state. The manifest's tensors have
 * their own names; the outer vectors of a trained one are "diloco.<vector>.<name>". Eight-byte
 * types come first, then four, then one, so every tensor is aligned to its type. Writing makes
 * spans from the list; reading makes targets from the header's order. */
#include "state/image.h"

#include "base/text.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "images are memory as it is");

enum {
    PREFIX = 8,       /* bytes of the header's length */
    PER_TENSOR = 1024 /* more than a tensor's line can have: name, shape, offsets */
};

/* ---- contents of an image */

/* One list serves writing and reading, so both have the same tensors in the same order. The arrays
 * are in the arena, and the data in the state. */
typedef struct parts {
    dl_st_tensor *tensors;
    void **data;
    size_t n;
    dl_arena arena;
} parts;

static size_t max_parts(const dl_state *state)
{
    return state->manifest->n_tensors * (size_t)(1 + state->outer->n_state);
}

size_t dl_state_image_spans(const dl_state *state)
{
    return 1 + max_parts(state);
}

static void add_part(parts *p, const dl_manifest_tensor *t, const char *name, void *data)
{
    dl_st_tensor *to = &p->tensors[p->n];
    *to = (dl_st_tensor){
        .name = name, .dtype = dl_dtype_name(dl_dtype_stored(t->dtype)), .n_dims = t->n_dims};
    memcpy(to->shape, t->shape, sizeof t->shape);
    p->data[p->n++] = data;
}

/* Adds the outer vectors of a tensor, and the memory of their names. */
static void add_outer_vectors(parts *p, const dl_state *state, const dl_manifest_tensor *t)
{
    const dl_fragment_state *now = &state->now[t->fragment];
    for (int k = 0; k < state->outer->n_state; k++) {
        const char *vector = state->outer->state_names[k];
        size_t size = strlen("diloco..") + strlen(vector) + strlen(t->name) + 1;
        char *name = dl_arena_take(&p->arena, size);
        if (!name) continue; /* measures the memory only */
        snprintf(name, size, "diloco.%s.%s", vector, t->name);
        add_part(p, t, name, now->outer[k] + t->offset);
    }
}

static void *place_of(const dl_state *state, const dl_manifest_tensor *t)
{
    const dl_fragment_state *now = &state->now[t->fragment];
    if (t->dtype == DILOCO_I64) return now->integers + t->offset;
    if (t->dtype == DILOCO_BOOL) return now->booleans + t->offset;
    return now->theta + t->offset;
}

/* Called twice: the first call, without memory, only measures names and arrays. */
static void lay_out(parts *p, const dl_state *state)
{
    static const diloco_dtype order[] = {DILOCO_I64, DILOCO_F32, DILOCO_BOOL};
    p->tensors = DL_ARENA_ARRAY(&p->arena, dl_st_tensor, max_parts(state));
    p->data = DL_ARENA_ARRAY(&p->arena, void *, max_parts(state));
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        for (size_t i = 0; i < state->manifest->n_tensors; i++) {
            const dl_manifest_tensor *t = &state->manifest->tensors[i];
            if (dl_dtype_stored(t->dtype) != order[k]) continue;
            if (p->tensors) add_part(p, t, t->name, place_of(state, t));
            if (t->region == DL_TRAINED) add_outer_vectors(p, state, t);
        }
    }
}

/* After an error nothing is allocated. Release p->arena otherwise. */
static diloco_status parts_init(parts *p, const dl_state *state)
{
    parts measured = {.n = 0};
    lay_out(&measured, state);
    *p = (parts){.n = 0};
    DL_TRY(dl_arena_init(&p->arena, measured.arena.used));
    lay_out(p, state);
    return DILOCO_OK;
}

/* The element's size comes from the stored type, which is f32 for a narrower tensor. */
static size_t part_len(const parts *p, size_t i)
{
    size_t len = dl_st_dtype_size(p->tensors[i].dtype);
    for (int d = 0; d < p->tensors[i].n_dims; d++)
        len *= p->tensors[i].shape[d]; /* no overflow: it is in memory */
    return len;
}

/* ---- writing */

/* The three options decide the length of the outer vectors, for a run that continues from this
 * state (continuation.h). */
static diloco_status put_header(dl_buf *header, const parts *p, const dl_config *config)
{
    char steps[24], lr[32], mu[32];
    const dl_st_meta meta[] = {{"format", "diloco"},
                               {"version", "1"},
                               {"local_steps_per_round", steps},
                               {"outer_learning_rate", lr},
                               {"outer_momentum", mu}};
    snprintf(steps, sizeof steps, "%" PRId64, config->local_steps);
    dl_text_from_f64(lr, config->outer_lr);
    dl_text_from_f64(mu, config->outer_mu);
    dl_buf_clear(header);
    return dl_st_header(header, p->tensors, p->n, meta, sizeof meta / sizeof *meta);
}

/* The spans refer to the state's memory, so the state must not change before they are written. */
diloco_status dl_state_image(dl_buf *header, dl_span *spans, size_t cap, size_t *n_spans,
                             const dl_state *state, const dl_config *config)
{
    parts p;
    DL_ASSERT(cap >= dl_state_image_spans(state));
    DL_TRY(parts_init(&p, state));
    diloco_status status = put_header(header, &p, config);
    if (!status) {
        spans[0] = (dl_span){header->data, header->len};
        for (size_t i = 0; i < p.n; i++)
            spans[1 + i] = (dl_span){p.data[i], part_len(&p, i)};
        *n_spans = 1 + p.n;
    }
    dl_arena_deinit(&p.arena);
    return status ? dl_fail_context(status, "state image") : DILOCO_OK;
}

/* ---- reading */

/* The header's maximum follows from the run's own tensors. So a hostile length cannot make it
 * allocate more. */
void dl_image_reader_init(dl_image_reader *r, dl_state *state)
{
    *r = (dl_image_reader){.state = state};
    dl_buf_init(&r->header, (max_parts(state) + 2) * PER_TENSOR);
    dl_digest_begin(&r->digest);
}

void dl_image_reader_deinit(dl_image_reader *r)
{
    dl_strong_drop(r->strong);
    r->strong = NULL;
    dl_buf_deinit(&r->header);
    free(r->targets);
    *r = (dl_image_reader){0};
}

static bool same_shape(const dl_st_tensor *a, const dl_st_tensor *b)
{
    return strcmp(a->dtype, b->dtype) == 0 && a->n_dims == b->n_dims &&
           memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof *a->shape) == 0;
}

/* Finds part i among the header's tensors: at the same index if we wrote the image, else by a
 * search. */
static const dl_st_tensor *find_part(const dl_st *st, const parts *p, size_t i)
{
    if (strcmp(st->tensors[i].name, p->tensors[i].name) == 0) return &st->tensors[i];
    return dl_st_find(st, p->tensors[i].name);
}

/* Names are unique on both sides, so equal numbers and all parts found means the same set. Returns
 * DILOCO_EPROTO if a tensor is missing, unknown, or of another type or shape. targets has the order
 * of the file, so the data can be copied as it arrives. */
static diloco_status make_targets(dl_image_reader *r, const dl_st *st, const parts *p)
{
    char format[16] = "", version[16] = "";
    DL_TRY(dl_json_read_str(format, sizeof format, st->metadata, "format"));
    DL_TRY(dl_json_read_str(version, sizeof version, st->metadata, "version"));
    if (strcmp(format, "diloco") != 0 || strcmp(version, "1") != 0)
        return dl_fail(DILOCO_EPROTO, "format %s, version %s is not diloco, version %d", format,
                       version, DL_FORMAT_VERSION);
    if (st->n != p->n)
        return dl_fail(DILOCO_EPROTO, "it has %zu tensors, the run's state has %zu", st->n, p->n);
    r->targets = calloc(p->n, sizeof *r->targets);
    if (!r->targets) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", p->n);
    r->n_targets = p->n;
    for (size_t i = 0; i < p->n; i++) {
        const dl_st_tensor *found = find_part(st, p, i);
        if (!found) return dl_fail(DILOCO_EPROTO, "tensor %s is missing", p->tensors[i].name);
        if (!same_shape(found, &p->tensors[i]))
            return dl_fail(DILOCO_EPROTO, "tensor %s is of another type or shape", found->name);
        r->targets[found - st->tensors] = (dl_image_target){p->data[i], part_len(p, i)};
    }
    return DILOCO_OK;
}

static diloco_status read_header(dl_image_reader *r)
{
    dl_st st;
    parts p;
    /* dl_st_open reads no byte after the header, and compares sizes with the total */
    DL_TRY(dl_st_open(&st, r->header.data, r->total));
    diloco_status status = parts_init(&p, r->state);
    if (!status) {
        status = make_targets(r, &st, &p);
        dl_arena_deinit(&p.arena);
    }
    dl_st_close(&st);
    return status;
}

/* Reads the header's length, whose 8 bytes have arrived. */
static diloco_status read_header_len(dl_image_reader *r)
{
    uint64_t len = 0;
    for (int i = 0; i < PREFIX; i++)
        len |= (uint64_t)r->header.data[i] << 8 * i;
    if (len > r->total - PREFIX || len > r->header.max - PREFIX)
        return dl_fail(DILOCO_EPROTO, "a header of %llu bytes is longer than the run's can be",
                       (unsigned long long)len);
    r->header_len = PREFIX + (size_t)len;
    return DILOCO_OK;
}

/* Takes bytes of the header from this piece. Sets *taken. The 8 bytes of the length come first and
 * then decide how much more belongs to the header. */
static diloco_status take_header(dl_image_reader *r, size_t *taken, const unsigned char *from,
                                 size_t len)
{
    size_t want = r->header_len ? r->header_len : PREFIX;
    *taken = dl_size_min(len, want - r->header.len);
    DL_TRY(dl_buf_add(&r->header, from, *taken));
    if (r->header.len < want) return DILOCO_OK;
    if (!r->header_len) return read_header_len(r);
    return read_header(r);
}

/* Copies to the current target and moves on at its end. The targets cover exactly the bytes that
 * the header announced, so no copy leaves a tensor. */
static size_t take_data(dl_image_reader *r, const unsigned char *from, size_t len)
{
    dl_image_target *t = &r->targets[r->target];
    size_t n = dl_size_min(len, t->len - r->at);
    memcpy(t->to + r->at, from, n);
    r->at += n;
    if (r->at == t->len) r->target++, r->at = 0;
    return n;
}

static diloco_status on_begin(void *context, size_t len)
{
    dl_image_reader *r = context;
    if (len < PREFIX) return dl_fail(DILOCO_EPROTO, "%zu bytes are no safetensors", len);
    r->total = len;
    return DILOCO_OK;
}

/* Takes a piece of any length. The store may send more than it announced, hence the first check.
 * Every byte is hashed in the order of the file. */
static diloco_status on_piece(void *context, const void *data, size_t len)
{
    dl_image_reader *r = context;
    const unsigned char *from = data;
    if (len > r->total - r->received) return dl_fail(DILOCO_EPROTO, "it grew while it was read");
    dl_digest_add(&r->digest, data, len);
    if (r->strong) dl_strong_add(r->strong, data, len);
    r->received += len;
    while (len > 0) {
        size_t taken;
        if (!r->targets)
            DL_TRY(take_header(r, &taken, from, len));
        else
            taken = take_data(r, from, len);
        from += taken;
        len -= taken;
    }
    return DILOCO_OK;
}

dl_sink dl_image_sink(dl_image_reader *r)
{
    return (dl_sink){r, on_begin, on_piece};
}

/* Names the tensor of the first value that is not finite. A NaN in the state would spread to every
 * replica that adopts it. */
static diloco_status check_floats(const dl_state *state, int fragment, const float *x, size_t n,
                                  const char *what)
{
    dl_fp_state fp = dl_fp_enter();
    size_t in_tensor, bad = dl_first_bad(x, n, FLT_MAX);
    dl_fp_leave(fp);
    if (bad == n) return DILOCO_OK;
    const dl_manifest_tensor *t = dl_manifest_locate(state->manifest, fragment, bad, &in_tensor);
    return dl_fail(DILOCO_EPROTO, "element %zu of %s%s is not finite", in_tensor, what, t->name);
}

/* The region of theta has its trained and averaged floats, and the outer vectors the trained ones
 * alone. */
static diloco_status check_fragment(const dl_state *state, int f)
{
    const dl_fragment_shape *shape = &state->manifest->fragments[f];
    const dl_fragment_state *now = &state->now[f];
    DL_TRY(check_floats(state, f, now->theta, shape->n_trained + shape->n_averaged, ""));
    for (int k = 0; k < state->outer->n_state; k++)
        DL_TRY(check_floats(state, f, now->outer[k], shape->n_trained, "an outer vector of "));
    for (size_t i = 0; i < shape->n_booleans; i++)
        if (now->booleans[i] > 1)
            return dl_fail(DILOCO_EPROTO, "a boolean is %u", (unsigned)now->booleans[i]);
    return DILOCO_OK;
}

diloco_status dl_image_reader_end(dl_image_reader *r, dl_hash *digest)
{
    if (!r->targets || r->received != r->total)
        return dl_fail(DILOCO_EPROTO, "truncated: %zu of %zu bytes", r->received, r->total);
    DL_ASSERT(r->target == r->n_targets); /* the header's sizes were checked with the total */
    for (int f = 0; f < r->state->manifest->n_fragments; f++)
        DL_TRY(check_fragment(r->state, f));
    *digest = dl_digest_end(&r->digest);
    return DILOCO_OK;
}

diloco_status dl_state_load_image(dl_state *state, const void *bytes, size_t len, dl_pool *pool)
{
    dl_image_reader r;
    dl_hash digest;
    dl_image_reader_init(&r, state);
    diloco_status status = on_begin(&r, len);
    if (!status) status = on_piece(&r, bytes, len);
    if (!status) status = dl_image_reader_end(&r, &digest);
    dl_image_reader_deinit(&r);
    if (status) return dl_fail_context(status, "state image");
    dl_state_rehash(state, pool);
    return DILOCO_OK;
}
