/* int4.c - int8.c with codes -7 … 7, two's complement in 4 bits. */
#include "codec/blocks.h"
#include "codec/rows.h"

enum { BITS = 4 };

static inline DL_BODY uint32_t code_of(float x, float inverse)
{
    return dl_nearest(x * inverse);
}

static inline DL_BODY void encode_block(unsigned char *codes, unsigned char *scale, const float *x,
                                        size_t n)
{
    float s = dl_integer_scale(dl_block_largest(x, n), 7);
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

const dl_codec dl_codec_int4 = {
    .name = "int4",
    .summary = "4 bits an element, evenly spaced, and a scale for each 256",
    .width = 1,
    .lossy = true,
    .blocks = &kind,
    .lay_out = dl_blocks_lay_out,
    .encode = dl_blocks_encode,
    .check = dl_blocks_check,
    .decode = dl_blocks_decode,
};
