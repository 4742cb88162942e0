/* check_options.h - options of [check]: contributions that do not count. */
#ifndef DL_BASE_OPTIONS_CHECK_OPTIONS_H
#define DL_BASE_OPTIONS_CHECK_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* P27: verdicts follow from these values, so all of them agree. protocol/judge.c reads them. */
#define DL_CHECK_OPTIONS(X) \
    X(REAL(0, 1e6), check_norm, "check.norm", "0", "median norms", DL_OPTION_AGREE, \
      "Multiple of the median norm above which a contribution is rejected; contributions of zeros are, too. 0: no check.", \
      .needs = "swarm.consensus = log") \
    X(REAL(0, 1), check_short, "check.short", "0", "median norms", DL_OPTION_AGREE, \
      "Share of the median norm below which a contribution is rejected; contributions of zeros are, too. 0: no check.", \
      .needs = "swarm.consensus = log") \
    X(REAL(0, 1e18), check_element, "check.element", "0", "", DL_OPTION_AGREE, \
      "Largest movement of an element; a contribution with a larger one is rejected. 0: 1e18.", \
      .needs = "swarm.consensus = log") \
    X(REAL(-1, 1), check_cosine, "check.cosine", "-1", "", DL_OPTION_AGREE, \
      "Median cosine with the other contributions below which one of three or more is rejected; -1: no check.", \
      .needs = "swarm.consensus = log") \
    X(REAL(0, 1), check_copy, "check.copy", "0", "cosine", DL_OPTION_AGREE, \
      "Cosine from which contributions count as copies, of which only the first is used; 1: equal bytes. 0: no check.", \
      .needs = "swarm.consensus = log") \
    X(INT(0, 64), check_repeat, "check.repeat", "0", "contributions", DL_OPTION_AGREE, \
      "Number of a replica's last counted contributions that a new one must not repeat byte for byte; 0: no check.", \
      .needs = "swarm.consensus = log") \
    X(REAL(0, 1e6), check_probe, "check.probe", "0", "losses", DL_OPTION_AGREE, \
      "Multiple of the shared model's loss on held-out samples above which a contribution is rejected; 0: no check.", \
      .needs = "swarm.consensus = log") \
    X(INT(0, 1e6), ban_after, "check.ban_after", "0", "rejections", DL_OPTION_AGREE, \
      "Rejected contributions after which a replica is banned; 0: never.", \
      .needs = "swarm.consensus = log") \
    X(INT(1, 1e9), ban_entries, "check.ban_entries", "10", "entries", DL_OPTION_AGREE, \
      "Entries that a ban lasts. The replica does not count in them, and still follows the log.", \
      .applies_when = "check.ban_after")
// clang-format on

DL_OPTION_STRUCT(check, DL_CHECK_OPTIONS)

#endif
