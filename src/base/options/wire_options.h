/* wire_options.h - options of codec and exchange in [server.diloco]: what travels, and how. */
#ifndef DL_BASE_OPTIONS_WIRE_OPTIONS_H
#define DL_BASE_OPTIONS_WIRE_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_CODEC_VALUES(X) \
    X(DL_CODEC_VALUES_F32, "f32") \
    X(DL_CODEC_VALUES_INT8, "int8") \
    X(DL_CODEC_VALUES_2BIT, "2bit")

#define DL_COMPRESSIONS(X) \
    X(DL_COMPRESSION_NONE, "none") \
    X(DL_COMPRESSION_ZSTD, "zstd")

#define DL_EXCHANGES(X) \
    X(DL_EXCHANGE_AUTO, "auto") \
    X(DL_EXCHANGE_ALLGATHER, "allgather") \
    X(DL_EXCHANGE_LEADER, "leader") \
    X(DL_EXCHANGE_SHARDED, "sharded")

#define DL_WIRE_CHOICES(X) \
    X(dl_codec_values_choice, DL_CODEC_VALUES) \
    X(dl_compression_choice, DL_COMPRESSIONS) \
    X(dl_exchange_choice, DL_EXCHANGES)
// clang-format on

DL_WIRE_CHOICES(DL_CHOICE)

#endif
