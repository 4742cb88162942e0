/* swarm_options.h - options of [swarm]: runs without a log. */
#ifndef DL_BASE_OPTIONS_SWARM_OPTIONS_H
#define DL_BASE_OPTIONS_SWARM_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_CONSENSUSES(X) \
    X(DL_CONSENSUS_LOG, "log") \
    X(DL_CONSENSUS_NONE, "none")

#define DL_SWARM_EXCHANGES(X) \
    X(DL_SWARM_ALL, "all") \
    X(DL_SWARM_PAIRS, "pairs")

#define DL_SWARM_CHOICES(X) \
    X(dl_consensus_choice, DL_CONSENSUSES) \
    X(dl_swarm_exchange_choice, DL_SWARM_EXCHANGES)
// clang-format on

DL_SWARM_CHOICES(DL_CHOICE)

#endif
