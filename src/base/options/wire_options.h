/* wire_options.h - options of codec and exchange in [server.diloco]. */
#ifndef DL_BASE_OPTIONS_WIRE_OPTIONS_H
#define DL_BASE_OPTIONS_WIRE_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* The encoding of the values that topk keeps (codec/topk.c). */
#define DL_CODEC_VALUES(X) \
    X(DL_CODEC_VALUES_F32, "f32") \
    X(DL_CODEC_VALUES_INT8, "int8") \
    X(DL_CODEC_VALUES_2BIT, "2bit")

/* Lossless compression of payloads, piece by piece (log/pack.c). */
#define DL_COMPRESSIONS(X) \
    X(DL_COMPRESSION_NONE, "none") \
    X(DL_COMPRESSION_ZSTD, "zstd")

/* P19: how contributions become one update. `auto` chooses by the bytes that each replica reads
 * (protocol/topology.c). */
#define DL_EXCHANGES(X) \
    X(DL_EXCHANGE_AUTO, "auto") \
    X(DL_EXCHANGE_ALLGATHER, "allgather") \
    X(DL_EXCHANGE_LEADER, "leader") \
    X(DL_EXCHANGE_SHARDED, "sharded")

#define DL_WIRE_CHOICES(X) \
    X(dl_codec_values_choice, DL_CODEC_VALUES) \
    X(dl_compression_choice, DL_COMPRESSIONS) \
    X(dl_exchange_choice, DL_EXCHANGES)

/* The form of contributions between replicas: codec, error feedback, compression, exchange
 * topology. */
#define DL_WIRE_OPTIONS(X) \
    X(NAME, codec, "server.diloco.codec", "f32", "", DL_OPTION_AGREE, \
      "Encoding of a contribution on the wire. Default: four bytes for each parameter.", \
      .alias = "codec", \
      .example = "int4") \
    X(REAL(0.000244140625, 1), codec_keep, "server.diloco.codec_keep", "0.015625", "", DL_OPTION_AGREE, \
      "Share of each chunk that topk sends; 64 of 4096 in 2508.15706.") \
    X(CHOICE(dl_codec_values_choice), codec_values, "server.diloco.codec_values", "f32", "", DL_OPTION_AGREE, \
      "Encoding of the values that topk sends.") \
    X(REAL(0, 0.999), codec_prune, "server.diloco.codec_prune", "0.5", "", DL_OPTION_AGREE, \
      "Share of each neuron's row that prune leaves out.") \
    X(CHOICE(dl_compression_choice), compression, "server.diloco.compression", "none", "", DL_OPTION_AGREE, \
      "Lossless compression of contributions on the wire.", \
      .alias = "compression", \
      .needs = "swarm.consensus = log") \
    X(CHOICE(dl_exchange_choice), exchange, "server.diloco.exchange", "auto", "", DL_OPTION_AGREE, \
      "Exchange topology: every replica reads every contribution (allgather), one combines for all (leader), or each combines a slice (sharded). auto: the fewest bytes.", \
      .alias = "exchange", \
      .needs = "swarm.consensus = log") \
    X(INT(0, 65536), slice_owners, "server.diloco.slice_owners", "0", "members", DL_OPTION_AGREE, \
      "Members that combine each slice in a sharded exchange; where their results differ, every member reads everything. 0: byzantine + 1 under a robust combiner, else 1.", \
      .alias = "slice_owners", \
      .applies_when = "server.diloco.exchange = sharded|auto") \
    X(REAL(0, 1), error_feedback, "server.diloco.error_feedback", "0", "", DL_OPTION_AGREE, \
      "Share of the values that a lossy codec left out that is added to the next contribution; 0.95 in 2508.15706.", \
      .needs = "swarm.consensus = log")
// clang-format on

DL_WIRE_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(wire, DL_WIRE_OPTIONS)

#endif
