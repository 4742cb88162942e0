/* combine_options.h - options of the combiner in [server.diloco]. */
#ifndef DL_BASE_OPTIONS_COMBINE_OPTIONS_H
#define DL_BASE_OPTIONS_COMBINE_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_RESCALES(X) \
    X(DL_RESCALE_NONE, "none") \
    X(DL_RESCALE_MEDIAN_NORM, "median_norm")

#define DL_MIXINGS(X) \
    X(DL_MIX_NONE, "none") \
    X(DL_MIX_NNM, "nnm") \
    X(DL_MIX_BUCKETING, "bucketing")

#define DL_FALLBACKS(X) \
    X(DL_FALLBACK_REFUSE, "refuse") \
    X(DL_FALLBACK_MEAN, "mean")

#define DL_COMBINE_CHOICES(X) \
    X(dl_rescale_choice, DL_RESCALES) \
    X(dl_mixing, DL_MIXINGS) \
    X(dl_fallback_choice, DL_FALLBACKS)
// clang-format on

DL_COMBINE_CHOICES(DL_CHOICE)

#endif
