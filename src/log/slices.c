/* slices.c - see slices.h.
 *
 * Adjacent slices of a payload may share the bytes of a block that crosses the cut. A reader of a
 * whole contribution compares the digests after all slices are read. So it finds shared bytes that
 * differ, and every reader decodes the same. */
#include "log/slices.h"

#include "log/layout.h"

#include <string.h>

static size_t discrete_bytes(dl_fragment_shape shape)
{
    return shape.n_integers * sizeof(int64_t) + shape.n_booleans;
}

/* Options that agree decide the number of slices, so every replica cuts alike. */
dl_slicing dl_slicing_of(const dl_codec_form *form, dl_fragment_shape shape, size_t n_replicas)
{
    return (dl_slicing){form, shape, dl_cut_count(form->n, n_replicas)};
}

void dl_slice_floats(size_t *first, size_t *count, const dl_slicing *s, size_t i)
{
    size_t end;
    dl_cut_range(first, &end, s->form->n, s->n, i);
    *count = end - *first;
}

size_t dl_slice_owner(size_t i, size_t nth, uint64_t entry, size_t n_members)
{
    return (i + nth + (size_t)(entry % n_members)) % n_members;
}

/* Adds integers and booleans after the parts of slice 0. */
static size_t add_discrete(dl_slice_part *out, size_t n, const dl_slicing *s, size_t i,
                           unsigned char *discrete)
{
    if (i == 0 && discrete_bytes(s->shape))
        out[n++] = (dl_slice_part){discrete, discrete_bytes(s->shape)};
    return n;
}

/* The codec says which bytes of its payload a range of elements needs. These may be several ranges,
 * for example scales and values. */
size_t dl_slice_parts(dl_slice_part out[DL_SLICE_SPANS], const dl_slicing *s, size_t i,
                      unsigned char *payload, unsigned char *discrete)
{
    dl_codec_range ranges[DL_CODEC_RANGES];
    size_t first, count, n = 0;
    dl_slice_floats(&first, &count, s, i);
    if (count) n = s->form->codec->ranges(s->form, ranges, first, count);
    for (size_t k = 0; k < n; k++)
        out[k] = (dl_slice_part){payload + ranges[k].begin, ranges[k].end - ranges[k].begin};
    return add_discrete(out, n, s, i, discrete);
}

/* G is float32, so a slice of it is one range. */
size_t dl_slice_combined(dl_slice_part out[DL_SLICE_SPANS], const dl_slicing *s, size_t i, float *g,
                         unsigned char *discrete)
{
    size_t first, count;
    dl_slice_floats(&first, &count, s, i);
    out[0] = (dl_slice_part){(unsigned char *)(g + first), count * sizeof *g};
    return add_discrete(out, 1, s, i, discrete);
}

dl_hash dl_slice_digest(const dl_slice_part *parts, size_t n)
{
    dl_digest_stream digest;
    dl_digest_begin(&digest);
    for (size_t k = 0; k < n; k++)
        dl_digest_add(&digest, parts[k].data, parts[k].len);
    return dl_digest_end(&digest);
}

static size_t sum(const dl_slice_part *parts, size_t n)
{
    size_t all = 0;
    for (size_t k = 0; k < n; k++)
        all += parts[k].len;
    return all;
}

uint64_t dl_slices_bytes(const dl_slicing *s)
{
    dl_codec_range ranges[DL_CODEC_RANGES];
    uint64_t all = discrete_bytes(s->shape);
    for (size_t i = 0; i < s->n; i++) {
        size_t first, count;
        dl_slice_floats(&first, &count, s, i);
        for (size_t n = count ? s->form->codec->ranges(s->form, ranges, first, count) : 0; n--;)
            all += ranges[n].end - ranges[n].begin;
    }
    return all;
}

/* The slot is laid out as a whole contribution is: payload up to its bound, then integers and
 * booleans. */
dl_contribution_data dl_slices_data(const dl_slicing *s, unsigned char *base)
{
    const unsigned char *integers = base + s->form->bound;
    return (dl_contribution_data){.payload = base,
                                  .len = s->form->bound,
                                  .integers = integers,
                                  .booleans = integers + s->shape.n_integers * sizeof(int64_t)};
}

/* ---- reading ---------------------------------------------------------------------------- */

/* Where the bytes of one object go: the parts, filled in order. */
typedef struct scatter {
    const dl_slice_part *parts;
    size_t n, at, total; /* bytes received, of `total` */
    const char *reason;
} scatter;

static diloco_status on_begin(void *context, size_t len)
{
    scatter *s = context;
    if (len == s->total) return DILOCO_OK;
    s->reason = len < s->total ? "truncated" : "shape";
    return dl_fail(DILOCO_EPROTO, "%zu bytes are not a slice of %zu", len, s->total);
}

/* A piece may span several parts. */
static diloco_status on_piece(void *context, const void *data, size_t len)
{
    scatter *s = context;
    size_t before = 0;
    const unsigned char *from = data;
    if (len > s->total - s->at) {
        s->reason = "truncated";
        return dl_fail(DILOCO_EPROTO, "the slice grew while it was read");
    }
    for (size_t k = 0; k < s->n && len; before += s->parts[k++].len) {
        if (s->at - before >= s->parts[k].len) continue;
        const size_t here = dl_size_min(len, s->parts[k].len - (s->at - before));
        memcpy(s->parts[k].data + (s->at - before), from, here);
        s->at += here;
        from += here;
        len -= here;
    }
    return DILOCO_OK;
}

static diloco_status read_parts(const dl_slice_part *parts, size_t n, const char **reason,
                                dl_store *store, const char *key, dl_time until)
{
    scatter s = {.parts = parts, .n = n, .total = sum(parts, n), .reason = ""};
    diloco_status status = dl_store_read(store, key, (dl_sink){&s, on_begin, on_piece}, until);
    if (!status && s.at != s.total)
        status = dl_fail(DILOCO_EPROTO, "%zu of %zu bytes arrived", s.at, s.total);
    if (status == DILOCO_EPROTO && !*s.reason) s.reason = "truncated";
    *reason = s.reason;
    return status ? dl_fail_context(status, "%s", key) : DILOCO_OK;
}

/* With `want` NULL the object itself ends with its digest. That finds damage, and not forgery; the
 * entry's digest does that. */
diloco_status dl_slice_read(const dl_slice_part *parts, size_t n, const dl_hash *want, dl_hash *got,
                            const char **reason, dl_store *store, const char *key, dl_time until)
{
    dl_slice_part all[DL_SLICE_SPANS + 1];
    dl_hash behind;
    memcpy(all, parts, n * sizeof *parts);
    all[n] = (dl_slice_part){behind.bytes, sizeof behind.bytes};
    DL_TRY(read_parts(all, want ? n : n + 1, reason, store, key, until));
    *got = dl_slice_digest(parts, n);
    if (dl_hash_equal(*got, want ? *want : behind)) return DILOCO_OK;
    *reason = "checksum";
    return dl_fail(DILOCO_EPROTO, "%s is damaged: its digest is another", key);
}

/* All digests are compared again after the last slice has arrived. A later slice may have
 * overwritten shared bytes of an earlier one. */
diloco_status dl_slices_read(const dl_slicing *s, unsigned char *payload, const dl_hash *table,
                             uint64_t entry, const dl_generation *generation, const char **reason,
                             dl_store *store, dl_time until)
{
    dl_slice_part parts[DL_SLICE_SPANS];
    unsigned char *discrete = payload + s->form->bound;
    dl_hash got;
    for (size_t i = 0; i < s->n; i++) {
        dl_key key;
        const size_t n = dl_slice_parts(parts, s, i, payload, discrete);
        dl_key_slice(key, entry, i, generation);
        DL_TRY(dl_slice_read(parts, n, &table[i], &got, reason, store, key, until));
    }
    for (size_t i = 0; i < s->n; i++) {
        const size_t n = dl_slice_parts(parts, s, i, payload, discrete);
        if (dl_hash_equal(dl_slice_digest(parts, n), table[i])) continue;
        *reason = "codec";
        return dl_fail(DILOCO_EPROTO, "slices of %s for entry %llu do not fit together",
                       generation->replica, (unsigned long long)entry);
    }
    return DILOCO_OK;
}
