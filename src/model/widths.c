/* widths.c - bf16 is the upper half of a float. A half is one too, with 5 bits of exponent: scaled
 * by 2^112 its bits lie where a float's do, and the product makes a denormal what it is. */
#include "model/widths.h"

#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    if ((h & 0x7c00) == 0x7c00) return float_of(sign | 0x7f800000 | rest); /* infinite, NaN */
    return float_of(sign | bits_of(float_of(rest) * 0x1p112f));
}

/* bits / 2^drop, to nearest, ties to even. */
static uint32_t rounded(uint32_t bits, unsigned drop)
{
    uint32_t half = (UINT32_C(1) << (drop - 1)) - 1;
    return (bits + half + (bits >> drop & 1)) >> drop;
}

static uint16_t to_half(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);  /* NaN */
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to 65536 or is beyond */
    if (rest >= 0x38800000) return (uint16_t)(sign | rounded(rest - 0x38000000, 13));
    float denormal = float_of(rest) + 0.5f; /* its last bit is worth 2^-24: the sum rounds */
    return (uint16_t)(sign | (bits_of(denormal) - bits_of(0.5f)));
}

static uint16_t to_bf16(float x)
{
    uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)rounded(bits, 16);
}

typedef enum width { F32, F16, BF16, NONE } width;

static width width_of(const char *dtype)
{
    static const char *const names[NONE] = {"F32", "F16", "BF16"};
    width w = F32;
    while (w < NONE && strcmp(names[w], dtype) != 0)
        w++;
    return w;
}

bool dl_width_known(const char *dtype)
{
    return width_of(dtype) != NONE;
}

void dl_widen(float *to, const unsigned char *from, size_t n, const char *dtype)
{
    width w = width_of(dtype);
    if (w == F32) memcpy(to, from, n * sizeof *to);
    for (size_t i = 0; w != F32 && i < n; i++) {
        uint16_t half = (uint16_t)(from[2 * i] | from[2 * i + 1] << 8);
        to[i] = w == F16 ? from_half(half) : float_of((uint32_t)half << 16);
    }
}

void dl_narrow(unsigned char *to, const float *from, size_t n, const char *dtype)
{
    width w = width_of(dtype);
    if (w == F32) memcpy(to, from, n * sizeof *from);
    for (size_t i = 0; w != F32 && i < n; i++) {
        uint16_t half = w == F16 ? to_half(from[i]) : to_bf16(from[i]);
        to[2 * i] = (unsigned char)half;
        to[2 * i + 1] = (unsigned char)(half >> 8);
    }
}
