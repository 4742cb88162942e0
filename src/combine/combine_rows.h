/* combine_rows.h - one row a combiner: its own file defines it, combine.c lists it. */
#ifndef DL_COMBINE_COMBINE_ROWS_H
#define DL_COMBINE_COMBINE_ROWS_H

#include "combine/combine.h"

extern const dl_combiner dl_combiner_mean, dl_combiner_clipped_mean, dl_combiner_rda,
    dl_combiner_median, dl_combiner_trimmed_mean, dl_combiner_krum, dl_combiner_multi_krum,
    dl_combiner_bulyan, dl_combiner_geometric_median, dl_combiner_centered_clip;

#define DL_COMBINE_OPTION(name) "server.diloco." name

#endif
