/* int8.c - blocks of 256 with a scale s and codes -127 … 127: x is about q * s.
 *
 *     s = max|x| / 127, rounded up to 16 significant bits
 *     q = x * (1 / s) to the nearest integer, ties to even; two's complement
 *
 * |x - q s| is at most s / 2 (and an ulp). Every q s is exact, so decoding rounds nothing and a
 * decoded block encodes to itself. s is below max|x| / 127 by an ulp at most, so q needs no clamp.
 * Numbers below 127 * 2^-126, where s has no inverse, become 0. */
#include "codec/blocks.h"
#include "codec/rows.h"

enum { BITS = 8 };

static inline DL_BODY uint32_t code_of(float x, float inverse)
{
    return dl_nearest(x * inverse);
}

static inline DL_BODY void encode_block(unsigned char *codes, unsigned char *scale, const float *x,
                                        size_t n)
{
    float s = dl_integer_scale(dl_block_largest(x, n), 127);
    dl_store_f32(scale, s);
    dl_pack(codes, x, 1 / s, n, BITS, code_of);
}
DL_BLOCKS_ENCODE(encode_blocks, encode_block, BITS)

static inline DL_BODY float value_of(uint32_t code, float s)
{
    return (float)((int32_t)code >> (32 - BITS)) * s;
}

static inline DL_BODY void decode_block(float *out, const unsigned char *codes,
                                        const unsigned char *scale, size_t n)
{
    dl_unpack(out, codes, dl_load_f32(scale), n, BITS, value_of);
}
DL_BLOCKS_DECODE(decode_blocks, decode_block, BITS)

static const dl_block_kind kind = {
    .bits = BITS, .scaled = true, .encode = encode_blocks, .decode = decode_blocks};

const dl_codec dl_codec_int8 = {
    .name = "int8",
    .summary = "1 byte an element, and a scale for each 256",
    .width = 1,
    .lossy = true,
    .blocks = &kind,
    .lay_out = dl_blocks_lay_out,
    .encode = dl_blocks_encode,
    .check = dl_blocks_check,
    .decode = dl_blocks_decode,
};
