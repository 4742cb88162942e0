/* f32.c - four bytes an element, little-endian, exact. The payload is the vector itself,
 * so where it is aligned it is used in place and never copied. */
#include "codec/rows.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "f32 payloads are little-endian memory; this machine needs a byte-swapping codec"
#endif

static inline DL_BODY void canonical_body(float *out, const float *in, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        out[i] = in[i] + 0.0f; /* PROTOCOL B2: no negative zero */
}
DL_KERNEL(canonical, (float *out, const float *in, size_t n), canonical_body(out, in, n))

static size_t bound(size_t n)
{
    return n * sizeof(float);
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % _Alignof(float) == 0;
}

/* n elements at `in`, in place or by way of room[n]. */
static const float *elements(const unsigned char *in, float *room, size_t n)
{
    if (aligned(in)) return (const float *)(const void *)in;
    memcpy(room, in, n * sizeof *room);
    return room;
}

static void encode(unsigned char *out, size_t *len, const float *g, size_t n)
{
    dl_fp_state saved = dl_fp_enter();
    float room[DL_BLOCK];
    for (size_t i = 0; i < n; i += DL_BLOCK) {
        size_t block = dl_size_min(n - i, DL_BLOCK);
        dl_isa_call(canonical)(room, g + i, block);
        memcpy(out + i * sizeof *room, room, block * sizeof *room);
    }
    *len = n * sizeof *g;
    dl_fp_leave(saved);
}

static diloco_status check(const unsigned char *payload, size_t len, size_t n, float largest,
                           size_t *index, double *norm2)
{
    if (len / sizeof(float) != n || len % sizeof(float))
        return dl_fail(DILOCO_EPROTO, "an f32 payload of %zu elements is not %zu bytes long", n,
                       len);
    dl_fp_state saved = dl_fp_enter();
    float room[DL_BLOCK];
    double sum = 0;
    *index = n;
    for (size_t i = 0; i < n && *index == n; i += DL_BLOCK) {
        size_t block = dl_size_min(n - i, DL_BLOCK);
        const float *g = elements(payload + i * sizeof *g, room, block);
        size_t bad = dl_first_bad(g, block, largest);
        if (bad < block) *index = i + bad;
        sum += dl_block_norm2(g, block);
    }
    dl_fp_leave(saved);
    if (*index < n)
        return dl_fail(DILOCO_ENUMERIC, "element %zu is not a number of size at most %g", *index,
                       (double)largest);
    *norm2 = sum;
    return DILOCO_OK;
}

static void decode(float *out, const unsigned char *payload, size_t len, size_t n_all, size_t first,
                   size_t n)
{
    (void)len, (void)n_all; /* known from the check */
    const unsigned char *in = payload + first * sizeof *out;
    dl_isa_call(canonical)(out, elements(in, out, n), n);
}

static const float *view(const unsigned char *payload, size_t first)
{
    return aligned(payload) ? (const float *)(const void *)payload + first : NULL;
}

const dl_codec dl_codec_f32 = {
    .name = "f32",
    .summary = "4 bytes an element, exact",
    .bound = bound,
    .encode = encode,
    .check = check,
    .decode = decode,
    .view = view,
};
