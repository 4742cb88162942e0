/* swarm_options.h - options of [swarm]: runs without a log. */
#ifndef DL_BASE_OPTIONS_SWARM_OPTIONS_H
#define DL_BASE_OPTIONS_SWARM_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* A run follows a log, or its nodes exchange without one (P23, gossip/node.c). */
#define DL_CONSENSUSES(X) \
    X(DL_CONSENSUS_LOG, "log") \
    X(DL_CONSENSUS_NONE, "none")

/* Without a log: movements among all nodes, or parameters between seeded pairs (gossip/mix.c). */
#define DL_SWARM_EXCHANGES(X) \
    X(DL_SWARM_ALL, "all") \
    X(DL_SWARM_PAIRS, "pairs")

#define DL_SWARM_CHOICES(X) \
    X(dl_consensus_choice, DL_CONSENSUSES) \
    X(dl_swarm_exchange_choice, DL_SWARM_EXCHANGES)

/* Options of runs without a log. src/presets/swarm_checks.c refuses combinations that such a run
 * cannot have. */
#define DL_SWARM_OPTIONS(X) \
    X(CHOICE(dl_consensus_choice), consensus, "swarm.consensus", "log", "", DL_OPTION_AGREE, \
      "Whether a log decides every entry for all replicas. none: nodes exchange with each other, and each keeps its own model.") \
    X(CHOICE(dl_swarm_exchange_choice), swarm_exchange, "swarm.exchange", "all", "", DL_OPTION_AGREE, \
      "Exchange of a run without a log: movements among all nodes, or parameters between pairs that are drawn for each round.", \
      .applies_when = "swarm.consensus = none") \
    X(INT(1, 64), min_peers, "swarm.min_peers", "2", "nodes", DL_OPTION_AGREE, \
      "Fewest nodes of a round, this one included, in a run without a log. With fewer a node keeps its model.", \
      .applies_when = "swarm.consensus = none") \
    X(INT(0, DL_BIG), agree_every, "swarm.agree_every", "0", "rounds", DL_OPTION_AGREE, \
      "Rounds after which all nodes combine their models and momenta into one, in a run without a log; 0: never.", \
      .applies_when = "swarm.consensus = none") \
    X(PATH, bootstrap, "swarm.bootstrap", "", "addresses", 0, \
      "Addresses of nodes to start from, HOST:PORT with commas (--peer). One that answers is enough.", \
      .applies_when = "swarm.consensus = none") \
    X(PATH, listen, "swarm.listen", "127.0.0.1:0", "HOST:PORT", 0, \
      "Address at which this machine's nodes serve others; port 0: any free port. Beyond this machine it needs TLS.", \
      .applies_when = "swarm.consensus = none") \
    X(PATH, address, "swarm.address", "", "HOST:PORT", 0, \
      "Address at which other nodes reach this one. Default: where it listens.", \
      .applies_when = "swarm.consensus = none") \
    X(PATH, cert, "swarm.cert", "", "path", 0, \
      "PEM certificate of the nodes on this machine.", \
      .applies_when = "swarm.consensus = none") \
    X(PATH, cert_key, "swarm.key", "", "path", 0, \
      "Private key of swarm.cert.", \
      .applies_when = "swarm.consensus = none") \
    X(BOOL, insecure, "swarm.insecure", "false", "", 0, \
      "Whether nodes may listen beyond this machine without TLS (--insecure).", \
      .applies_when = "swarm.consensus = none")
// clang-format on

DL_SWARM_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(swarm, DL_SWARM_OPTIONS)

#endif
