/* e3m0.c - one sign and three exponent bits (2501.18512; docs/algorithms.md says which choices are
 * ours): blocks of 256 with scale s = max|x|. Code 0 is zero, code c of 1 … 7 is s * 2^(c - 7),
 * and the negative ones are their two's complement.
 *
 * The code is the nearest in linear value: with y = |x| * (1 / s), below 1/128 it is 0, else 1, and
 * 1 more for every boundary 1.5 * 2^(c - 7) that y reaches. At a boundary the highest bit of y's
 * mantissa becomes set, so that is y's exponent plus that bit. Blocks below 2^-126, where s has no
 * inverse, become 0. */
#include "codec/blocks.h"
#include "codec/codec_rows.h"

enum { BITS = 4, INTEGERS = false };

#define LEAST 0x3c000000 /* 1/128 */
#define HALF  0x00400000 /* the highest bit of a mantissa */

static inline DL_BODY float scale_of(const float *x, size_t n)
{
    float s = dl_float_of((uint32_t)dl_largest_size(x, n));
    return s < 0x1p-126f ? 0 : s;
}

static inline DL_BODY float factor_of(float s)
{
    return s > 0 ? 1 / s : 0;
}

static inline DL_BODY uint32_t code_of(float x, float inverse)
{
    uint32_t bits = dl_bits_of(x);
    int32_t y = (int32_t)dl_bits_of(dl_float_of(bits & 0x7fffffff) * inverse);
    int32_t reached = y - LEAST + HALF, one = 2 * HALF;
    int32_t size = y < LEAST ? 0 : (reached > one ? reached : one) >> 23;
    return (uint32_t)((int32_t)bits < 0 ? -size : size);
}

static inline DL_BODY float value_of(uint32_t code, float s)
{
    int32_t number = (int32_t)code >> (32 - BITS), size = number < 0 ? -number : number;
    uint32_t power = (uint32_t)(size + 120) << 23;
    return dl_float_of((size ? power : 0) | (code & 0x80000000)) * s;
}

static const dl_block_rule rule = {BITS, scale_of, factor_of, code_of, value_of};
DL_BLOCKS_CODEC(e3m0, "4 bits an element, powers of two, and a scale for each 256")
