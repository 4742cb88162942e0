/* sign.c - one bit an element: blocks of 256 with scale s = mean|x|; a set bit is -s, a clear
 * one +s, zeros are +s. The mean is summed in float64, element i in lane i mod 16, the lanes folded
 * pairwise. So it is exact where all |x| are equal, and a decoded block encodes to itself. */
#include "codec/blocks.h"
#include "codec/codec_rows.h"

#include <math.h>

enum { BITS = 1, INTEGERS = false };

static inline DL_BODY double size(float x, float unused)
{
    (void)unused;
    return (double)fabsf(x);
}

static inline DL_BODY float scale_of(const float *x, size_t n)
{
    return (float)(dl_sum_lanes(size, x, x, n) / (double)n);
}

static inline DL_BODY float factor_of(float s)
{
    return s;
}

/* A negative zero is not below 0, so it counts as plus. */
static inline DL_BODY uint32_t code_of(float x, float unused)
{
    (void)unused;
    return x < 0;
}

/* The code is in the highest bit, a float's sign; an encoder's scale is not negative. */
static inline DL_BODY float value_of(uint32_t code, float s)
{
    return dl_float_of(dl_bits_of(s) | code);
}

static const dl_block_rule rule = {BITS, scale_of, factor_of, code_of, value_of};
DL_BLOCKS_CODEC(sign, "1 bit an element, and the mean size of each 256")
