/* integers.h - the body of int8.c, int4.c and int2.c, which give the BITS of a code. Blocks of
 * 256 have a scale s and codes -MOST … MOST, MOST = 2^(BITS - 1) - 1: x is about q * s.
 *
 *     s = max|x| / MOST, rounded up to 16 significant bits
 *     q = x * (1 / s) to the nearest integer, ties to even; two's complement
 *
 * |x - q s| is at most s / 2 (and an ulp). Every q s is exact, so decoding rounds nothing and a
 * decoded block encodes to itself. s is below max|x| / MOST by an ulp at most, so q needs no clamp.
 * Numbers below MOST * 2^-126, where s has no inverse, become 0. */
#ifndef DL_CODEC_INTEGERS_H
#define DL_CODEC_INTEGERS_H

#include "codec/blocks.h"
#include "codec/codec_rows.h"

enum { INTEGERS = true };

static inline DL_BODY float scale_of(const float *x, size_t n)
{
    return dl_integer_scale(x, n, (1 << (BITS - 1)) - 1);
}

static inline DL_BODY float factor_of(float s)
{
    return 1 / s;
}

static inline DL_BODY uint32_t code_of(float x, float inverse)
{
    return dl_nearest(x * inverse);
}

static inline DL_BODY float value_of(uint32_t code, float s)
{
    return (float)((int32_t)code >> (32 - BITS)) * s;
}

static const dl_block_rule rule = {BITS, scale_of, factor_of, code_of, value_of};

#endif
