/* bf16.c - the upper half of a float, rounded to nearest, ties to even. A value that would
 * round to infinity becomes the largest bf16. */
#include "codec/blocks.h"
#include "codec/codec_rows.h"

/* The bias is just below half of the last place kept, plus that place's own bit: so halves go to
 * the even neighbour. The carry may run into the exponent, which is right; only past the largest
 * finite value is it cut. */
static inline DL_BODY void encode_body(unsigned char *codes, const float *x, size_t n)
{
    dl_u16 *out = (dl_u16 *)codes;
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = dl_bits_of(x[i] + 0.0f), size = bits & 0x7fffffff;
        uint32_t rounded = (size + 0x7fff + (size >> 16 & 1)) >> 16;
        rounded = rounded < 0x7f7f ? rounded : 0x7f7f;
        out[i] = (uint16_t)(rounded | (bits >> 16 & 0x8000));
    }
}
DL_KERNEL(encode_blocks, (unsigned char *codes, unsigned char *scales, const float *x, size_t n),
          ((void)scales, encode_body(codes, x, n)))

/* The lower half becomes zero. The sum with 0.0f turns a negative zero into a positive one
 * (PROTOCOL B2). */
static inline DL_BODY void decode_body(float *out, const unsigned char *codes, size_t n)
{
    const dl_u16 *in = (const dl_u16 *)codes;
    DL_EACH
    for (size_t i = 0; i < n; i++)
        out[i] = dl_float_of((uint32_t)in[i] << 16) + 0.0f;
}
DL_KERNEL(decode_blocks,
          (float *out, const unsigned char *codes, const unsigned char *scales, size_t n),
          ((void)scales, decode_body(out, codes, n)))

/* There are no scales; the shared code of blocks.c then lays out codes alone. */
static const dl_block_kind kind = {.bits = 16, .encode = encode_blocks, .decode = decode_blocks};

const dl_codec dl_codec_bf16 = {
    .name = "bf16",
    .summary = "2 bytes an element: the upper half of a float, rounded",
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
