/* mean.c - the weighted mean (mean.h) of a block. */
#include "combine/mean.h"
#include "combine/rows.h"

DL_KERNEL(mean, (float *G, const float *const *g, const float *weight, size_t n_members, size_t n),
          dl_mean_body(G, g, weight, n_members, 0, n))

static void block(float *G, const float *const *g, const float *weight, size_t n_members, size_t n)
{
    dl_isa_call(mean)(G, g, weight, n_members, n);
}

const dl_combiner dl_combiner_mean = {
    .name = "mean",
    .summary = "weighted mean of the contributions",
    .min_members = 1,
    .linear = true,
    .block = block,
};
