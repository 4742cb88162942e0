/* combine_rows.h - the list of combiners. A new one is a file that defines dl_combiner_<name>, and
 * its line here; tests and benchmarks walk the list (dl_combiner_at). */
#ifndef DL_COMBINE_COMBINE_ROWS_H
#define DL_COMBINE_COMBINE_ROWS_H

#include "combine/combine.h"

// clang-format off
#define DL_COMBINERS(X) \
    X(mean) \
    X(clipped_mean) \
    X(rda) \
    X(median) \
    X(trimmed_mean) \
    X(krum) \
    X(multi_krum) \
    X(bulyan) \
    X(geometric_median) \
    X(centered_clip)
// clang-format on

#define DL_DECLARE(name) extern const dl_combiner dl_combiner_##name;
DL_COMBINERS(DL_DECLARE)
#undef DL_DECLARE

#define DL_COMBINE_OPTION(name) "server.diloco." name

#endif
