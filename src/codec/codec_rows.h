/* codec_rows.h - the list of codecs. A new one is a file that defines dl_codec_<name>, and its line
 * here; tests, fuzzing and benchmarks walk the list (dl_codec_at). */
#ifndef DL_CODEC_CODEC_ROWS_H
#define DL_CODEC_CODEC_ROWS_H

#include "codec/codec.h"

// clang-format off
#define DL_CODECS(X) \
    X(f32) \
    X(bf16) \
    X(f16) \
    X(int8) \
    X(int4) \
    X(int2) \
    X(e3m0) \
    X(topk) \
    X(sign) \
    X(prune)
// clang-format on

#define DL_DECLARE(name) extern const dl_codec dl_codec_##name;
DL_CODECS(DL_DECLARE)
#undef DL_DECLARE

#endif
