/* widths.c - bf16 is the upper half of a float. A half is one too, with 5 bits of exponent: scaled
 * by 2^112 its bits have a float's positions, and the product gives a denormal its value. The other
 * way a denormal half counts units of 2^-24. Added to 0.5, whose last bit is one such unit, a small
 * float leaves the count in the low bits, rounded by the sum itself. No branches, so that compilers
 * make vectors of them (isa.h). */
#include "tensor/widths.h"

#include "base/size.h"
#include "tensor/isa.h"
#include "tensor/kernels.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "two bytes are an integer as they are");

typedef uint16_t __attribute__((aligned(1), may_alias)) u16;
typedef float __attribute__((aligned(1), may_alias)) f32;

static inline DL_BODY uint32_t from_half(uint32_t h)
{
    const uint32_t sign = (h & 0x8000) << 16, rest = (h & 0x7fff) << 13;
    const uint32_t number = dl_bits_of(dl_float_of(rest) * 0x1p112f);
    return sign | ((h & 0x7c00) == 0x7c00 ? 0x7f800000 | rest : number); /* infinite, NaN */
}

/* bits / 2^drop, to nearest, ties to even. */
static inline DL_BODY uint32_t rounded(uint32_t bits, unsigned drop)
{
    const uint32_t half = (UINT32_C(1) << (drop - 1)) - 1;
    return (bits + half + (bits >> drop & 1)) >> drop;
}

/* 0x38800000 is 2^-14, the smallest normal half; 0x38000000 is the difference of the biases, 112,
 * in a float's exponent field. 0x477ff000 is 65520, halfway from the largest half to 65536. */
static inline DL_BODY uint32_t to_half(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    const uint32_t small = rest < 0x38800000 ? rest : 0x38800000; /* 2^-14, the smallest normal */
    const uint32_t denormal = dl_bits_of(dl_float_of(small) + 0.5f) - 0x3f000000;
    uint32_t half = rest < 0x38800000 ? denormal : rounded(rest - 0x38000000, 13);
    half = rest < 0x477ff000 ? half : 0x7c00; /* rounds to 65536 or is beyond */
    half = rest > 0x7f800000 ? 0x7e00 : half; /* NaN */
    return sign | half;
}

/* A NaN keeps its upper bits and becomes quiet: rounding could carry it into an infinity. */
static inline DL_BODY uint32_t to_bf16(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded(bits, 16);
}

static inline DL_BODY void widen_half_body(f32 *to, const u16 *from, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        to[i] = dl_float_of(from_half(from[i]));
}
DL_KERNEL(widen_half, (f32 * to, const u16 *from, size_t n), widen_half_body(to, from, n))

static inline DL_BODY void widen_bf16_body(f32 *to, const u16 *from, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        to[i] = dl_float_of((uint32_t)from[i] << 16);
}
DL_KERNEL(widen_bf16, (f32 * to, const u16 *from, size_t n), widen_bf16_body(to, from, n))

static inline DL_BODY void narrow_half_body(u16 *to, const f32 *from, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        to[i] = (uint16_t)to_half(dl_bits_of(from[i]));
}
DL_KERNEL(narrow_half, (u16 * to, const f32 *from, size_t n), narrow_half_body(to, from, n))

static inline DL_BODY void narrow_bf16_body(u16 *to, const f32 *from, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        to[i] = (uint16_t)to_bf16(dl_bits_of(from[i]));
}
DL_KERNEL(narrow_bf16, (u16 * to, const f32 *from, size_t n), narrow_bf16_body(to, from, n))

/* NONE is both the number of known widths and the answer for an unknown one. */
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
    const width w = width_of(dtype);
    if (w == F32) memcpy(to, from, n * sizeof *to);
    if (w == F16) dl_isa_call(widen_half)(to, (const u16 *)from, n);
    if (w == BF16) dl_isa_call(widen_bf16)(to, (const u16 *)from, n);
}

void dl_narrow(unsigned char *to, const float *from, size_t n, const char *dtype)
{
    const width w = width_of(dtype);
    if (w == F32) memcpy(to, from, n * sizeof *from);
    if (w == F16) dl_isa_call(narrow_half)((u16 *)to, from, n);
    if (w == BF16) dl_isa_call(narrow_bf16)((u16 *)to, from, n);
}

/* In blocks, through a buffer on the stack of 8 KiB, so that it allocates nothing. */
void dl_round_to(float *to, const float *from, size_t n, const char *dtype)
{
    unsigned char narrow[2 * DL_BLOCK];
    const bool wide = width_of(dtype) == F32;
    if (wide && to != from) memcpy(to, from, n * sizeof *to);
    for (size_t i = 0; i < n && !wide; i += DL_BLOCK) {
        const size_t m = dl_size_min(n - i, DL_BLOCK);
        dl_narrow(narrow, from + i, m, dtype);
        dl_widen(to + i, narrow, m, dtype);
    }
}
