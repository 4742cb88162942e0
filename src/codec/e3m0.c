/* e3m0.c - one sign and three exponent bits (2501.18512; docs/algorithms.md says which choices are
 * ours): blocks of 256 with scale s = max|x|; code 0 is zero, code c of 1 … 7 is s * 2^(c - 7), and
 * the negative ones are their two's complement.
 *
 * The code is the nearest in linear value: with y = |x| * (1 / s), below 1/128 it is 0, else 1, and
 * 1 more for every boundary 1.5 * 2^(c - 7) that y reaches. At a boundary the highest bit of y's
 * mantissa becomes set, so that is y's exponent plus that bit. Blocks below 2^-126, where s has no
 * inverse, become 0. */
#include "codec/blocks.h"
#include "codec/rows.h"

enum { BITS = 4 };

#define LEAST 0x3c000000 /* 1/128 */

static inline DL_BODY uint32_t code_of(float x, float inverse)
{
    int32_t bits = (int32_t)dl_bits_of(x), sign = bits >> 31;
    int32_t y = (int32_t)dl_bits_of(dl_float_of((uint32_t)bits & 0x7fffffff) * inverse) - LEAST;
    int32_t code = (y + 0x400000) >> 23, least = (y >> 31) + 1;
    code = code > least ? code : least;
    return (uint32_t)((code ^ sign) - sign);
}

static inline DL_BODY void encode_block(unsigned char *codes, unsigned char *scale, const float *x,
                                        size_t n)
{
    float s = dl_float_of(dl_block_largest(x, n));
    bool none = s < 0x1p-126f;
    dl_store_f32(scale, none ? 0 : s);
    dl_pack(codes, x, none ? 0 : 1 / s, n, BITS, code_of);
}

static inline DL_BODY float value_of(uint32_t code, float s)
{
    int32_t number = (int32_t)code >> (32 - BITS), size = number < 0 ? -number : number;
    uint32_t power = (uint32_t)(size + 120) << 23;
    return dl_float_of((size ? power : 0) | (code & 0x80000000)) * s;
}

static inline DL_BODY void decode_block(float *out, const unsigned char *codes,
                                        const unsigned char *scale, size_t n)
{
    dl_unpack(out, codes, dl_load_f32(scale), n, BITS, value_of);
}

DL_BLOCKS_CODEC(e3m0, BITS, "4 bits an element, powers of two, and a scale for each 256",
                encode_block, decode_block)
