/* blocks.h - shared by the codecs of fixed blocks: bf16, f16, int8, int4, int2, e3m0, sign.
 *
 * A tensor is cut into blocks of DL_CODEC_BLOCK consecutive elements, the last one shorter. The
 * payload is a scale (f32, little-endian) for each block of each tensor, unless the kind has none,
 * and after them the codes of each block, in the same order. 16-bit codes follow each other.
 * Smaller ones share words of 32 bits, little-endian:
 *
 *     a block of c elements with b bits each has h = ceil(c * b / 32) words;
 *     element i + h * k of the block is in the bits from b * k on of its word i
 *
 * so neighbours are in neighbouring words, and vectors of 32-bit lanes pack and unpack without
 * moving anything between lanes. Bits that belong to no element are zero.
 *
 * A row of codec.c names its kind and takes the six functions below as they are. */
#ifndef DL_CODEC_BLOCKS_H
#define DL_CODEC_BLOCKS_H

#include "codec/codec.h"

#include <string.h>

enum { DL_CODEC_BLOCK = 256 };

/* The whole blocks, and at the end perhaps a short one, of n elements; one function for each
 * instruction set. encode writes every byte. */
typedef void (*dl_blocks_encode_fn)(unsigned char *codes, unsigned char *scales, const float *x,
                                    size_t n);
typedef void (*dl_blocks_decode_fn)(float *out, const unsigned char *codes,
                                    const unsigned char *scales, size_t n);

typedef struct dl_block_kind {
    size_t bits; /* of a code: 1, 2, 4, 8 or 16 */
    bool scaled;
    bool integers; /* codes of integers.h, which a card writes as well (nn/movement.h) */
    const dl_blocks_encode_fn *encode; /* [DL_N_ISA] */
    const dl_blocks_decode_fn *decode; /* [DL_N_ISA] */
} dl_block_kind;

diloco_status dl_blocks_lay_out(dl_codec_form *form);
void dl_blocks_encode(const dl_codec_form *form, unsigned char *out, size_t *len, const float *g);
void dl_blocks_encode_part(const dl_codec_form *form, unsigned char *out, const float *g,
                           size_t first, size_t n);
diloco_status dl_blocks_check(const dl_codec_form *form, const unsigned char *payload, size_t len);
void dl_blocks_decode(const dl_codec_form *form, float *out, const unsigned char *payload,
                      size_t len, size_t first, size_t n);

/* The places of a tensor's scales and codes in a payload, in bytes. */
typedef struct dl_blocks_place {
    size_t scales, codes;
} dl_blocks_place;
dl_blocks_place dl_blocks_place_of(const dl_codec_form *form, const dl_codec_tensor *tensor);

size_t dl_blocks_ranges(const dl_codec_form *form, dl_codec_range out[DL_CODEC_RANGES],
                        size_t first, size_t n);

/* ---- for the bodies of kernels ---------------------------------------------------------- */

/* Two and four bytes anywhere. */
typedef uint16_t __attribute__((aligned(1), may_alias)) dl_u16;
typedef uint32_t __attribute__((aligned(1), may_alias)) dl_u32;

/* Payloads have no alignment; compilers make a single load of the memcpy. */
static inline DL_BODY float dl_load_f32(const unsigned char *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline DL_BODY void dl_store_f32(unsigned char *p, float x)
{
    memcpy(p, &x, sizeof x);
}

/* The scale of integers -most … most: max|x| / most, rounded up to 16 significant bits, so that
 * q * scale is exact for each of them and a decoded block encodes to itself. 1, which makes all of
 * them 0, where that has no inverse (max|x| < most * 2^-126). */
static inline DL_BODY float dl_integer_scale(const float *x, size_t n, float most)
{
    float largest = dl_float_of((uint32_t)dl_largest_size(x, n));
    uint32_t bits = (dl_bits_of(largest / most) + 0xff) & ~(uint32_t)0xff;
    return bits >= 0x00800000 ? dl_float_of(bits) : 1.0f;
}

/* x, at most 2^21 in size, rounded to the nearest integer, ties to even: its low 22 bits, in two's
 * complement, are the low ones of this sum, whose last place is 1. */
static inline DL_BODY uint32_t dl_nearest(float x)
{
    return dl_bits_of(x + 0x1.8p23f);
}

/* The parts of a codec with scales. */
typedef struct dl_block_rule {
    size_t bits;
    float (*scale)(const float *x, size_t n);   /* of a block: the number in the payload */
    float (*factor)(float scale);               /* the argument of `code` */
    uint32_t (*code)(float x, float factor);    /* the low bits count */
    float (*value)(uint32_t code, float scale); /* the code in the high bits, below them zeros */
} dl_block_rule;

/* Write the codes of a block. */
static inline DL_BODY void dl_pack(unsigned char *codes, const float *x, float factor, size_t n,
                                   const dl_block_rule *rule)
{
    uint32_t words[DL_CODEC_BLOCK / 4] = {0}, mask = (1u << rule->bits) - 1;
    size_t h = (n * rule->bits + 31) / 32;
    for (size_t k = 0; k * h < n; k++) {
        size_t n_here = n - k * h < h ? n - k * h : h;
        DL_EACH
        for (size_t i = 0; i < n_here; i++)
            words[i] |= (rule->code(x[k * h + i], factor) & mask) << k * rule->bits;
    }
    memcpy(codes, words, h * sizeof *words);
}

/* The reverse. */
static inline DL_BODY void dl_unpack(float *out, const unsigned char *codes, float scale, size_t n,
                                     const dl_block_rule *rule)
{
    const dl_u32 *words = (const dl_u32 *)codes;
    size_t bits = rule->bits, h = (n * bits + 31) / 32;
    uint32_t mask = ~(~(uint32_t)0 >> bits);
    for (size_t k = 0; k * h < n; k++) {
        size_t n_here = n - k * h < h ? n - k * h : h;
        DL_EACH
        for (size_t i = 0; i < n_here; i++)
            out[k * h + i] = rule->value((words[i] << (32 - bits - k * bits)) & mask, scale) + 0.0f;
    }
}

/* Four blocks' scales, then their codes. Maxima and divisions of one block do not wait for those
 * of another, and the four are read from memory once (a page; with more, less is read ahead). */
enum { DL_BLOCKS_AT_ONCE = 4 };

/* Blocks of n elements each. */
static inline DL_BODY void dl_encode_few(unsigned char *codes, unsigned char *scales,
                                         const float *x, size_t n_blocks, size_t n,
                                         const dl_block_rule *rule)
{
    for (size_t i = 0; i < n_blocks; i++)
        dl_store_f32(scales + i * sizeof(float), rule->scale(x + i * DL_CODEC_BLOCK, n));
    for (size_t i = 0; i < n_blocks; i++)
        dl_pack(codes + i * DL_CODEC_BLOCK / 8 * rule->bits, x + i * DL_CODEC_BLOCK,
                rule->factor(dl_load_f32(scales + i * sizeof(float))), n, rule);
}

/* In the two below the count of a whole block is a constant. */
static inline DL_BODY void dl_encode_blocks(unsigned char *codes, unsigned char *scales,
                                            const float *x, size_t n, const dl_block_rule *rule)
{
    while (n >= DL_CODEC_BLOCK) {
        size_t few = dl_size_min(n / DL_CODEC_BLOCK, DL_BLOCKS_AT_ONCE);
        dl_encode_few(codes, scales, x, few, DL_CODEC_BLOCK, rule);
        codes += few * DL_CODEC_BLOCK / 8 * rule->bits;
        scales += few * sizeof(float);
        x += few * DL_CODEC_BLOCK;
        n -= few * DL_CODEC_BLOCK;
    }
    if (n) dl_encode_few(codes, scales, x, 1, n, rule);
}

static inline DL_BODY void dl_decode_blocks(float *out, const unsigned char *codes,
                                            const unsigned char *scales, size_t n,
                                            const dl_block_rule *rule)
{
    for (; n >= DL_CODEC_BLOCK; n -= DL_CODEC_BLOCK) {
        dl_unpack(out, codes, dl_load_f32(scales), DL_CODEC_BLOCK, rule);
        codes += DL_CODEC_BLOCK / 8 * rule->bits;
        scales += sizeof(float);
        out += DL_CODEC_BLOCK;
    }
    if (n) dl_unpack(out, codes, dl_load_f32(scales), n, rule);
}

/* The rest of a codec with scales, from what its file calls `rule`, BITS and INTEGERS. */
#define DL_BLOCKS_CODEC(codec, what)                                                               \
    DL_KERNEL(encode_blocks,                                                                       \
              (unsigned char *codes, unsigned char *scales, const float *x, size_t n),             \
              dl_encode_blocks(codes, scales, x, n, &rule))                                        \
    DL_KERNEL(decode_blocks,                                                                       \
              (float *out, const unsigned char *codes, const unsigned char *scales, size_t n),     \
              dl_decode_blocks(out, codes, scales, n, &rule))                                      \
    static const dl_block_kind kind = {.bits = BITS,                                               \
                                       .scaled = true,                                             \
                                       .integers = INTEGERS,                                       \
                                       .encode = encode_blocks,                                    \
                                       .decode = decode_blocks};                                   \
    const dl_codec dl_codec_##codec = {                                                            \
        .name = #codec,                                                                            \
        .summary = what,                                                                           \
        .width = 1,                                                                                \
        .lossy = true,                                                                             \
        .blocks = &kind,                                                                           \
        .lay_out = dl_blocks_lay_out,                                                              \
        .encode = dl_blocks_encode,                                                                \
        .encode_part = dl_blocks_encode_part,                                                      \
        .check = dl_blocks_check,                                                                  \
        .decode = dl_blocks_decode,                                                                \
        .ranges = dl_blocks_ranges,                                                                \
    };

#endif
