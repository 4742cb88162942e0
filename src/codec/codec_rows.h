/* codec_rows.h - one row a codec: its own file defines it, codec.c lists it. */
#ifndef DL_CODEC_CODEC_ROWS_H
#define DL_CODEC_CODEC_ROWS_H

#include "codec/codec.h"

extern const dl_codec dl_codec_f32, dl_codec_bf16, dl_codec_f16, dl_codec_int8, dl_codec_int4,
    dl_codec_int2, dl_codec_e3m0, dl_codec_topk, dl_codec_sign, dl_codec_prune;

#endif
