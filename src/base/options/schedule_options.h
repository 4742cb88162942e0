/* schedule_options.h - options of fragments, their due points and overlap in [server.diloco]. */
#ifndef DL_BASE_OPTIONS_SCHEDULE_OPTIONS_H
#define DL_BASE_OPTIONS_SCHEDULE_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_PATTERNS(X) \
    X(DL_PATTERN_STRIDED, "strided") \
    X(DL_PATTERN_SEQUENTIAL, "sequential") \
    X(DL_PATTERN_BALANCED, "balanced")

#define DL_SCHEDULES(X) \
    X(DL_SCHEDULE_OFFSET, "offset") \
    X(DL_SCHEDULE_TORCHFT, "torchft") \
    X(DL_SCHEDULE_ASYNC, "async")

#define DL_OVERLAPS(X) \
    X(DL_OVERLAP_STEPS, "steps") \
    X(DL_OVERLAP_DELAYED, "delayed") \
    X(DL_OVERLAP_EAGER, "eager")

#define DL_SCHEDULE_CHOICES(X) \
    X(dl_pattern_choice, DL_PATTERNS) \
    X(dl_schedule_choice, DL_SCHEDULES) \
    X(dl_overlap, DL_OVERLAPS)
// clang-format on

DL_SCHEDULE_CHOICES(DL_CHOICE)

#endif
