/* blocks.c - see blocks.h. Kernels take whole runs of blocks; a block of which decode wants only
 * a part is decoded aside and copied. */
#include "codec/blocks.h"

#include <string.h>

static size_t blocks_of(size_t n)
{
    return (n + DL_CODEC_BLOCK - 1) / DL_CODEC_BLOCK;
}

/* Bytes of the codes of the first n elements of a tensor, when a block ends there. */
static size_t code_bytes(const dl_block_kind *kind, size_t n)
{
    return kind->bits == 16 ? 2 * n
                            : (n * kind->bits + 31) / 32 * 4; /* whole blocks, whole words */
}

/* All scales precede the codes, so this is also where the codes begin. */
static size_t scale_bytes(const dl_codec_form *form)
{
    return form->codec->blocks->scaled ? form->n_units * sizeof(float) : 0;
}

diloco_status dl_blocks_lay_out(dl_codec_form *form)
{
    for (size_t i = 0; i < form->n_tensors; i++) {
        dl_codec_tensor *t = &form->tensors[i];
        t->units = form->n_units;
        t->at = form->end;
        form->n_units += blocks_of(t->count);
        form->end += code_bytes(form->codec->blocks, t->count);
    }
    form->bound = form->room = scale_bytes(form) + form->end;
    return DILOCO_OK;
}

bool dl_codec_has_integers(const dl_codec *codec)
{
    return codec->blocks && codec->blocks->integers;
}

dl_blocks_place dl_blocks_place_of(const dl_codec_form *form, const dl_codec_tensor *t)
{
    return (dl_blocks_place){t->units * sizeof(float), scale_bytes(form) + t->at};
}

/* Where the first block begins, from element i of the array on, that is the tensor's. */
static size_t block_from(const dl_codec_tensor *t, size_t i)
{
    const size_t into = i > t->begin ? i - t->begin : 0;
    return dl_size_min(t->count, dl_size_round_up(into, DL_CODEC_BLOCK));
}

/* A block that crosses `first` belongs to the part before. So each block is written by one thread,
 * and its scale sees all of its elements. */
void dl_blocks_encode_part(const dl_codec_form *form, unsigned char *out, const float *g,
                           size_t first, size_t n)
{
    const dl_block_kind *kind = form->codec->blocks;
    unsigned char *codes = out + scale_bytes(form);
    dl_fp_state saved = dl_fp_enter();
    for (size_t i = 0; i < form->n_tensors; i++) {
        const dl_codec_tensor *t = &form->tensors[i];
        const size_t from = block_from(t, first), to = block_from(t, first + n);
        if (from == to) continue;
        dl_isa_call(kind->encode)(codes + t->at + code_bytes(kind, from),
                                  out + (t->units + from / DL_CODEC_BLOCK) * sizeof(float),
                                  g + t->begin + from, to - from);
    }
    dl_fp_leave(saved);
}

void dl_blocks_encode(const dl_codec_form *form, unsigned char *out, size_t *len, const float *g)
{
    dl_blocks_encode_part(form, out, g, 0, form->n);
    *len = form->bound;
}

/* ---- decoding: a tensor's codes and scales, and elements [from, to) of it */

typedef struct reader {
    dl_blocks_decode_fn decode;
    const dl_block_kind *kind;
    const unsigned char *codes, *scales;
    size_t count; /* elements of the tensor */
} reader;

static void whole_blocks(const reader *r, float *out, size_t from, size_t to)
{
    r->decode(out, r->codes + code_bytes(r->kind, from),
              r->scales + from / DL_CODEC_BLOCK * sizeof(float), to - from);
}

/* [from, to) is in one block. */
static void part_of_block(const reader *r, float *out, size_t from, size_t to)
{
    float room[DL_CODEC_BLOCK];
    size_t begin = from - from % DL_CODEC_BLOCK;
    whole_blocks(r, room, begin, dl_size_min(r->count, begin + DL_CODEC_BLOCK));
    memcpy(out, room + (from - begin), (to - from) * sizeof *out);
}

/* At most three pieces: the rest of a block, whole blocks, and the begin of a block. A tensor's
 * short last block counts as whole where it is wanted to its end. */
static void decode_range(const reader *r, float *out, size_t from, size_t to)
{
    size_t head = dl_size_min(to, dl_size_round_up(from, DL_CODEC_BLOCK));
    size_t tail = to == r->count ? to : dl_size_max(head, to - to % DL_CODEC_BLOCK);
    if (from < head) part_of_block(r, out, from, head);
    if (head < tail) whole_blocks(r, out + (head - from), head, tail);
    if (tail < to) part_of_block(r, out + (tail - from), tail, to);
}

/* A range may span several tensors; each has its own reader. */
void dl_blocks_decode(const dl_codec_form *form, float *out, const unsigned char *payload,
                      size_t len, size_t first, size_t n)
{
    (void)len; /* known from the check */
    const dl_block_kind *kind = form->codec->blocks;
    const unsigned char *codes = payload + scale_bytes(form);
    const dl_codec_tensor *t = dl_codec_tensor_of(form, first);
    for (size_t at = first; at < first + n; t++) {
        size_t end = dl_size_min(first + n, t->begin + t->count);
        reader r = {.decode = dl_isa_call(kind->decode),
                    .kind = kind,
                    .codes = codes + t->at,
                    .scales = payload + t->units * sizeof(float),
                    .count = t->count};
        decode_range(&r, out + (at - first), at - t->begin, end - t->begin);
        at = end;
    }
}

/* The scales and the codes of all blocks that have some of the elements. */
size_t dl_blocks_ranges(const dl_codec_form *form, dl_codec_range out[DL_CODEC_RANGES],
                        size_t first, size_t n)
{
    const dl_block_kind *kind = form->codec->blocks;
    const dl_codec_tensor *a = dl_codec_tensor_of(form, first);
    const dl_codec_tensor *b = dl_codec_tensor_of(form, first + n - 1);
    const size_t from = (first - a->begin) / DL_CODEC_BLOCK;
    const size_t to = blocks_of(first + n - b->begin);
    const size_t behind = dl_size_min(to * DL_CODEC_BLOCK, b->count), codes = scale_bytes(form);
    size_t n_ranges = 0;
    if (kind->scaled)
        out[n_ranges++] =
            (dl_codec_range){(a->units + from) * sizeof(float), (b->units + to) * sizeof(float)};
    out[n_ranges++] = (dl_codec_range){codes + a->at + code_bytes(kind, from * DL_CODEC_BLOCK),
                                       codes + b->at + code_bytes(kind, behind)};
    return n_ranges;
}

/* ---- codes that no encoder makes */

/* Does one of the words hold the code whose highest bit alone is set? With `high` the highest bits
 * of all codes, t = word ^ high is zero there, and adding all the lower bits to t's carries into
 * the highest unless they are zero. */
static inline DL_BODY void find_lowest_body(uint32_t *found, const unsigned char *p, size_t n,
                                            uint32_t high)
{
    const dl_u32 *words = (const dl_u32 *)p;
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t t = words[i] ^ high;
        any |= ~(((t & ~high) + ~high) | t) & high;
    }
    *found = any;
}
DL_KERNEL(find_lowest, (uint32_t * found, const unsigned char *p, size_t n, uint32_t high),
          find_lowest_body(found, p, n, high))

/* As unsigned numbers, the bits of negative floats, infinities and NaNs are all above those of the
 * largest finite float. */
static inline DL_BODY void count_bad_scales_body(size_t *found, const unsigned char *p, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += dl_bits_of(dl_load_f32(p + i * sizeof(float))) > 0x7f7fffff;
    *found = sum;
}
DL_KERNEL(count_bad_scales, (size_t * found, const unsigned char *p, size_t n),
          count_bad_scales_body(found, p, n))

/* Are the bits after the last element of a tensor's short block zero? No encoder writes other bits
 * there, and decode ignores them. */
static bool rest_is_zero(const dl_block_kind *kind, const unsigned char *codes, size_t count)
{
    size_t n = count % DL_CODEC_BLOCK, h = code_bytes(kind, n) / 4;
    const dl_u32 *words = (const dl_u32 *)(codes + code_bytes(kind, count - n));
    for (size_t i = 0; i < h; i++)
        for (size_t k = 0; k < 32 / kind->bits; k++)
            if (i + h * k >= n && words[i] >> kind->bits * k) return false;
    return true;
}

/* Codes are signed: -2^(bits - 1) is one that no encoder makes. */
static bool codes_are_sound(const dl_block_kind *kind, const unsigned char *codes, size_t len)
{
    uint32_t found = 0;
    if (kind->bits == 8) dl_isa_call(find_lowest)(&found, codes, len / 4, 0x80808080);
    if (kind->bits == 4) dl_isa_call(find_lowest)(&found, codes, len / 4, 0x88888888);
    if (kind->bits == 2) dl_isa_call(find_lowest)(&found, codes, len / 4, 0xaaaaaaaa);
    return !found;
}

/* The length decides first: every later read is within it. Codes of 16 bits need no check, since
 * their values are tested when they are decoded. */
diloco_status dl_blocks_check(const dl_codec_form *form, const unsigned char *payload, size_t len)
{
    const dl_block_kind *kind = form->codec->blocks;
    const char *name = form->codec->name;
    const unsigned char *codes = payload + scale_bytes(form);
    size_t n_bad = 0;
    if (len != form->bound)
        return dl_fail(DILOCO_EPROTO, "%s needs %zu bytes for these tensors, the payload has %zu",
                       name, form->bound, len);
    if (kind->scaled) dl_isa_call(count_bad_scales)(&n_bad, payload, form->n_units);
    if (n_bad)
        return dl_fail(DILOCO_EPROTO, "%zu scales are negative, infinite or not numbers", n_bad);
    if (!codes_are_sound(kind, codes, form->end))
        return dl_fail(DILOCO_EPROTO, "the payload holds a code that %s does not use", name);
    for (size_t i = 0; i < form->n_tensors && kind->bits < 16; i++)
        if (!rest_is_zero(kind, codes + form->tensors[i].at, form->tensors[i].count))
            return dl_fail(DILOCO_EPROTO, "bits after the last element of a tensor are not zero");
    return DILOCO_OK;
}
