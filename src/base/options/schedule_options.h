/* schedule_options.h - options of fragments, their due points and overlap in [server.diloco]. */
#ifndef DL_BASE_OPTIONS_SCHEDULE_OPTIONS_H
#define DL_BASE_OPTIONS_SCHEDULE_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* The assignment of tensors to fragments (presets/fragments.c). Every replica computes it from the
 * tensors' names and sizes. */
#define DL_PATTERNS(X) \
    X(DL_PATTERN_STRIDED, "strided") \
    X(DL_PATTERN_SEQUENTIAL, "sequential") \
    X(DL_PATTERN_BALANCED, "balanced")

/* The order of due points (protocol/schedule.c). `async` has none: each replica contributes at its
 * own pace (P20). */
#define DL_SCHEDULES(X) \
    X(DL_SCHEDULE_OFFSET, "offset") \
    X(DL_SCHEDULE_TORCHFT, "torchft") \
    X(DL_SCHEDULE_ASYNC, "async")

/* P21: a result is adopted tau steps later, or a whole round later. `eager` also applies the own
 * share at once (exchange/capture.c). */
#define DL_OVERLAPS(X) \
    X(DL_OVERLAP_STEPS, "steps") \
    X(DL_OVERLAP_DELAYED, "delayed") \
    X(DL_OVERLAP_EAGER, "eager")

#define DL_SCHEDULE_CHOICES(X) \
    X(dl_pattern_choice, DL_PATTERNS) \
    X(dl_schedule_choice, DL_SCHEDULES) \
    X(dl_overlap, DL_OVERLAPS)

/* Fragments, due points and overlap. protocol/schedule.c computes every due point from these. */
#define DL_SCHEDULE_OPTIONS(X) \
    X(INT(0, 4096), fragments, "server.diloco.fragments", "1", "fragments", DL_OPTION_AGREE, \
      "P: parts of the model that are synchronised one after another; 0: by fragment_layers.", \
      .needs = "swarm.consensus = log") \
    X(INT(0, 4096), fragment_layers, "server.diloco.fragment_layers", "0", "blocks", DL_OPTION_AGREE, \
      "Blocks in a fragment with fragments = 0. Tensors of no block are one more fragment.", \
      .applies_when = "server.diloco.fragments = 0") \
    X(CHOICE(dl_pattern_choice), fragment_pattern, "server.diloco.fragment_pattern", "strided", "", DL_OPTION_AGREE, \
      "Grouping of blocks into fragments: every P-th, neighbours, or tensors so that fragments have equal sizes.", \
      .applies_when = "server.diloco.fragments != 1") \
    X(CHOICE(dl_schedule_choice), schedule, "server.diloco.schedule", "offset", "", DL_OPTION_AGREE, \
      "Time at which fragments are due. offset: each fragment every H steps, shifted by H / P; torchft: one in flight every H / P steps; async: each replica on its own.", \
      .needs = "swarm.consensus = log") \
    X(BOOL, dylu, "server.diloco.dynamic_local_steps", "false", "", DL_OPTION_AGREE, \
      "Whether slower replicas take fewer steps in async, so that all contribute equally often (2401.09135).", \
      .alias = "dylu", \
      .applies_when = "server.diloco.schedule = async") \
    X(INT(0, DL_BIG), max_staleness, "server.diloco.max_staleness", "0", "entries", DL_OPTION_AGREE, \
      "Age in entries beyond which a contribution does not count in async; 0: any age counts.", \
      .applies_when = "server.diloco.schedule = async") \
    X(CHOICE(dl_overlap), overlap, "server.diloco.overlap", "steps", "", DL_OPTION_AGREE, \
      "Time at which results are adopted: overlap_steps later (steps), a round later (delayed), or the own share at once (eager).", \
      .needs = "swarm.consensus = log") \
    X(INT(0, DL_BIG), overlap_steps, "server.diloco.overlap_steps", "0", "steps", DL_OPTION_AGREE, \
      "tau: inner steps taken while contributions are in flight; 0: training waits.", \
      .alias = "fragment_sync_delay", \
      .applies_when = "server.diloco.overlap = steps", \
      .why = "another overlap lasts one round", \
      .needs = "swarm.consensus = log") \
    X(INT(-1, DL_BIG), own_overlap_steps, "server.diloco.own_overlap_steps", "-1", "steps", 0, \
      "tau of this replica alone, at most overlap_steps; -1: overlap_steps. The record proposes one.") \
    X(REAL(0, 1), local_mix, "server.diloco.local_mix", "0", "", DL_OPTION_AGREE, \
      "Share of its own parameters that a replica keeps when it adopts; 0: it takes the shared model.", \
      .alias = "fragment_update_alpha", \
      .applies_when = "server.diloco.overlap = steps", \
      .why = "with another overlap a round begins from the shared model", \
      .needs = "swarm.consensus = log")
// clang-format on

DL_SCHEDULE_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(schedule, DL_SCHEDULE_OPTIONS)

#endif
