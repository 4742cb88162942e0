/* median.c - coordinate-wise (Yin et al. 2018, arXiv:1803.01498): the middle value of each
 * element, of an even number the mean of the middle two (torch.median takes the lower one).
 * Needs n >= 2f + 1. */
#include "combine/combine_rows.h"
#include "combine/sort.h"

static size_t needed(const dl_combine_rule *rule)
{
    return 2 * rule->byzantine + 1;
}

/* A minority of hostile values cannot move the middle one beyond the honest ones. The configured f
 * only sets how many members are needed. */
static size_t tolerated(const dl_combine_rule *rule, size_t n)
{
    (void)rule;
    return (n - 1) / 2;
}

/* A median is the trimmed mean that drops all but the middle one or two. */
static void elements(float *G, const float *const *x, size_t n_inputs, const dl_combine_rule *rule,
                     float *room, size_t n)
{
    (void)rule;
    dl_middle_mean(G, x, n_inputs, (n_inputs - 1) / 2, room, n);
}

const dl_combiner dl_combiner_median = {
    .name = "median",
    .summary = "each element's middle value; f of 2f + 1 may be hostile",
    .options = {DL_COMBINE_OPTION("byzantine"), DL_COMBINE_OPTION("robust_fallback"),
                DL_COMBINE_OPTION("rescale")},
    .ignores_weights = true,
    .by_itself = true,
    .needed = needed,
    .tolerated = tolerated,
    .elements = elements,
};
