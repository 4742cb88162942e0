/* combine_options.h - options of the combiner in [server.diloco]. */
#ifndef DL_BASE_OPTIONS_COMBINE_OPTIONS_H
#define DL_BASE_OPTIONS_COMBINE_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* The length of a robust result: as the rule gives it, or the median of the members' norms
 * (combine/combine.c). */
#define DL_RESCALES(X) \
    X(DL_RESCALE_NONE, "none") \
    X(DL_RESCALE_MEDIAN_NORM, "median_norm")

/* A mixing step before a robust combiner: none, nearest-neighbour mixing, or bucketing.
 * combine/combine_plan.c turns it into coefficients of the members. */
#define DL_MIXINGS(X) \
    X(DL_MIX_NONE, "none") \
    X(DL_MIX_NNM, "nnm") \
    X(DL_MIX_BUCKETING, "bucketing")

/* An entry with fewer members than its rule needs is refused, or takes the weighted mean with a
 * warning (combine/combine.c). */
#define DL_FALLBACKS(X) \
    X(DL_FALLBACK_REFUSE, "refuse") \
    X(DL_FALLBACK_MEAN, "mean")

#define DL_COMBINE_CHOICES(X) \
    X(dl_rescale_choice, DL_RESCALES) \
    X(dl_mixing, DL_MIXINGS) \
    X(dl_fallback_choice, DL_FALLBACKS)

/* How the members of an entry become one movement (src/combine). */
#define DL_COMBINE_OPTIONS(X) \
    X(NAME, combiner, "server.diloco.combiner", "mean", "", DL_OPTION_AGREE, \
      "Rule by which contributions become one update.", \
      .alias = "combiner") \
    X(REAL(0, 0.499999999), trim, "server.diloco.trim", "0.2", "of the members", DL_OPTION_AGREE, \
      "Share of the members that trimmed_mean drops at either end of each element: floor(trim x members).", \
      .alias = "trim") \
    X(INT(0, 1365), byzantine, "server.diloco.byzantine", "1", "members", DL_OPTION_AGREE, \
      "f: members that may be malicious, for krum, multi_krum, bulyan and nnm. Other robust rules need 2 f + 1 members.", \
      .alias = "byzantine") \
    X(REAL(0.001, 1000), clip_radius, "server.diloco.clip_radius", "1", "median distances", DL_OPTION_AGREE, \
      "Distance from the last update beyond which centered_clip clips a member, in median distances.", \
      .alias = "clip_radius") \
    X(CHOICE(dl_rescale_choice), rescale, "server.diloco.rescale", "none", "", DL_OPTION_AGREE, \
      "Whether the result of a robust combiner gets the median of the members' norms.", \
      .alias = "rescale") \
    X(CHOICE(dl_mixing), pre_aggregation, "server.diloco.pre_aggregation", "none", "", DL_OPTION_AGREE, \
      "Step before a robust combiner: means of nearest members (nnm) or of shuffled buckets (bucketing).", \
      .alias = "pre_aggregation") \
    X(INT(1, 4096), bucket_size, "server.diloco.bucket_size", "2", "members", DL_OPTION_AGREE, \
      "Members in a bucket of pre_aggregation = bucketing.", \
      .alias = "bucket_size") \
    X(CHOICE(dl_fallback_choice), robust_fallback, "server.diloco.robust_fallback", "refuse", "", DL_OPTION_AGREE, \
      "What happens to an entry with fewer members than its combiner needs: refuse it, or take the mean.", \
      .alias = "robust_fallback")
// clang-format on

DL_COMBINE_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(combine, DL_COMBINE_OPTIONS)

#endif
