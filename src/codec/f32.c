/* f32.c - four bytes an element, little-endian, exact. The payload is the vector itself,
 * so where it is aligned it is used in place and never copied. */
#include "codec/codec_rows.h"

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

static diloco_status lay_out(dl_codec_form *form)
{
    form->bound = form->room = form->n * sizeof(float);
    return DILOCO_OK;
}

/* A payload inside a larger object may begin at any byte. */
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

/* A block at a time goes by way of `room`, since `out` may be unaligned and memcpy has no
 * demands. */
static void encode(const dl_codec_form *form, unsigned char *out, size_t *len, const float *g)
{
    dl_fp_state saved = dl_fp_enter();
    float room[DL_BLOCK];
    for (size_t i = 0; i < form->n; i += DL_BLOCK) {
        size_t block = dl_size_min(form->n - i, DL_BLOCK);
        dl_isa_call(canonical)(room, g + i, block);
        memcpy(out + i * sizeof *room, room, block * sizeof *room);
    }
    *len = form->bound;
    dl_fp_leave(saved);
}

/* Any four bytes are a float. dl_codec_check refuses the infinite ones and those that are not
 * numbers. */
static diloco_status check(const dl_codec_form *form, const unsigned char *payload, size_t len)
{
    (void)payload;
    if (len != form->bound)
        return dl_fail(DILOCO_EPROTO, "an f32 payload of %zu elements is not %zu bytes long",
                       form->n, len);
    return DILOCO_OK;
}

/* The unaligned bytes are copied into `out` itself and made canonical there. */
static void decode(const dl_codec_form *form, float *out, const unsigned char *payload, size_t len,
                   size_t first, size_t n)
{
    (void)form, (void)len; /* known from the check */
    const unsigned char *in = payload + first * sizeof *out;
    dl_isa_call(canonical)(out, elements(in, out, n), n);
}

/* The view may hold negative zeros, as codec.h says: a combiner adds 0.0f to each element. */
static const float *view(const unsigned char *payload, size_t first)
{
    return aligned(payload) ? (const float *)(const void *)payload + first : NULL;
}

static size_t ranges(const dl_codec_form *form, dl_codec_range out[DL_CODEC_RANGES], size_t first,
                     size_t n)
{
    (void)form;
    out[0] = (dl_codec_range){first * sizeof(float), (first + n) * sizeof(float)};
    return 1;
}

const dl_codec dl_codec_f32 = {
    .name = "f32",
    .summary = "4 bytes an element, exact",
    .width = 4,
    .lay_out = lay_out,
    .encode = encode,
    .check = check,
    .decode = decode,
    .view = view,
    .ranges = ranges,
};
