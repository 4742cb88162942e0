/* f16.c - IEEE half precision, rounded to nearest, ties to even, with its denormals. A value that
 * would round to infinity becomes the largest half, 65504 (2407.07852 sends halves and loses
 * nothing).
 *
 * A normal half is a float's size with the exponent rebiased by 112 and 13 bits rounded away. A
 * denormal one counts units of 2^-24: added to 0.5, whose last place is that unit, a small float
 * leaves the count in the low bits, rounded by the sum itself. */
#include "codec/blocks.h"
#include "codec/codec_rows.h"

#define SMALLEST_NORMAL 0x38800000u /* 2^-14 */
#define LARGEST         0x7bffu

static inline DL_BODY void encode_body(unsigned char *codes, const float *x, size_t n)
{
    dl_u16 *out = (dl_u16 *)codes;
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = dl_bits_of(x[i] + 0.0f), size = bits & 0x7fffffff;
        uint32_t small = size < SMALLEST_NORMAL ? size : SMALLEST_NORMAL;
        uint32_t denormal = dl_bits_of(dl_float_of(small) + 0.5f) - 0x3f000000;
        uint32_t normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
        uint32_t half = size < SMALLEST_NORMAL ? denormal : normal;
        half = half < LARGEST ? half : LARGEST;
        out[i] = (uint16_t)(half | (bits >> 16 & 0x8000));
    }
}
DL_KERNEL(encode_blocks, (unsigned char *codes, unsigned char *scales, const float *x, size_t n),
          ((void)scales, encode_body(codes, x, n)))

/* A half's bits at a float's place are the number times 2^-112, denormals too. An untrusted peer's
 * infinities and NaNs stay what they are, for the check to find. */
static inline DL_BODY void decode_body(float *out, const unsigned char *codes, size_t n)
{
    const dl_u16 *in = (const dl_u16 *)codes;
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        uint32_t half = in[i], size = (half & 0x7fff) << 13;
        uint32_t number = dl_bits_of(dl_float_of(size) * 0x1p112f);
        number = size < 31u << 23 ? number : (size | 0x7f800000);
        out[i] = dl_float_of(number | (half & 0x8000) << 16) + 0.0f;
    }
}
DL_KERNEL(decode_blocks,
          (float *out, const unsigned char *codes, const unsigned char *scales, size_t n),
          ((void)scales, decode_body(out, codes, n)))

static const dl_block_kind kind = {.bits = 16, .encode = encode_blocks, .decode = decode_blocks};

const dl_codec dl_codec_f16 = {
    .name = "f16",
    .summary = "2 bytes an element: half precision",
    .width = 2,
    .lossy = true,
    .blocks = &kind,
    .lay_out = dl_blocks_lay_out,
    .encode = dl_blocks_encode,
    .encode_part = dl_blocks_encode_part,
    .check = dl_blocks_check,
    .decode = dl_blocks_decode,
    .ranges = dl_blocks_ranges,
};
