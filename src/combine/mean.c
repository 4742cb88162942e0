/* mean.c - the weighted mean: the weights are the coefficients. */
#include "combine/mean.h"
#include "combine/combine_rows.h"

DL_KERNEL(sum, (float *G, const float *const *g, const float *weight, size_t n_members, size_t n),
          dl_mean_body(G, g, weight, n_members, 0, n))

void dl_weighted_sum(float *G, const float *const *g, const float *weight, size_t n_members,
                     size_t n)
{
    dl_isa_call(sum)(G, g, weight, n_members, n);
}

static size_t needed(const dl_combine_rule *rule)
{
    (void)rule;
    return 1;
}

/* One member with a huge value moves the mean anywhere. */
static size_t tolerated(const dl_combine_rule *rule, size_t n)
{
    (void)rule, (void)n;
    return 0;
}

static void coefficients(double *c, const dl_combine_view *view)
{
    for (size_t i = 0; i < view->n; i++)
        c[i] = (double)view->weight[i];
}

const dl_combiner dl_combiner_mean = {
    .name = "mean",
    .summary = "weighted mean of the contributions",
    .by_itself = true,
    .needed = needed,
    .tolerated = tolerated,
    .coefficients = coefficients,
};
