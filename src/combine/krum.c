/* krum.c - Krum and multi-Krum (Blanchard et al. 2017, arXiv:1703.02757): of n inputs, f of
 * which may be hostile, the one (the mean of the n - f) with the smallest
 *
 *     score_i = sum of the SQUARED distances to its n - f - 2 nearest others
 *
 * Whole vectors of a fragment, not tensor by tensor; ties go by the order of members. Needs
 * n >= 2f + 3. (ByzFL counts n - f - 1 nearest.) Distances come from the dot products. */
#include "combine/krum.h"
#include "combine/combine_rows.h"
#include "combine/order.h"

#include <math.h>

/* The distances are added in ascending order, so the sum depends on the values alone. view->order
 * is overwritten. */
static double sum_of_nearest(const dl_combine_view *view, const bool *gone, size_t i,
                             size_t n_nearest)
{
    double *d2 = view->room, sum = 0;
    size_t n = 0;
    for (size_t j = 0; j < view->n; j++)
        if (j != i && !(gone && gone[j])) d2[n++] = dl_distance2(view->gram, view->n, i, j);
    dl_order(view->order, d2, n);
    for (size_t k = 0; k < n && k < n_nearest; k++)
        sum += d2[view->order[k]];
    return sum;
}

/* In Bulyan's last rounds few inputs may be left; each is scored by its nearest one then. */
void dl_krum_scores(double *score, const dl_combine_view *view, const bool *gone, size_t n_left)
{
    size_t f = view->rule->byzantine, n_nearest = n_left > f + 3 ? n_left - f - 2 : 1;
    for (size_t i = 0; i < view->n; i++)
        score[i] = gone && gone[i] ? (double)INFINITY : sum_of_nearest(view, gone, i, n_nearest);
}

static size_t needed(const dl_combine_rule *rule)
{
    return 2 * rule->byzantine + 3;
}

static size_t tolerated(const dl_combine_rule *rule, size_t n)
{
    (void)n;
    return rule->byzantine;
}

/* The coefficients sum to 1. Inputs that were not chosen get 0. */
static void mean_of_best(double *c, const dl_combine_view *view, size_t n_best)
{
    double *score = view->room + view->n;
    dl_krum_scores(score, view, NULL, view->n);
    dl_order(view->order, score, view->n);
    for (size_t i = 0; i < view->n; i++)
        c[i] = 0;
    for (size_t k = 0; k < n_best; k++)
        c[view->order[k]] = 1 / (double)n_best;
}

static void krum(double *c, const dl_combine_view *view)
{
    mean_of_best(c, view, 1);
}

static void multi_krum(double *c, const dl_combine_view *view)
{
    mean_of_best(c, view, view->n - view->rule->byzantine);
}

const dl_combiner dl_combiner_krum = {
    .name = "krum",
    .summary = "the contribution nearest to its neighbours; f of 2f + 3 may be hostile",
    .options = {DL_COMBINE_OPTION("byzantine"), DL_COMBINE_OPTION("robust_fallback"),
                DL_COMBINE_OPTION("rescale")},
    .ignores_weights = true,
    .measure = DL_MEASURE_WHOLE,
    .needed = needed,
    .tolerated = tolerated,
    .coefficients = krum,
};

const dl_combiner dl_combiner_multi_krum = {
    .name = "multi_krum",
    .summary = "the mean of the n - f best by Krum's score; f of 2f + 3 may be hostile",
    .options = {DL_COMBINE_OPTION("byzantine"), DL_COMBINE_OPTION("robust_fallback"),
                DL_COMBINE_OPTION("rescale")},
    .ignores_weights = true,
    .measure = DL_MEASURE_WHOLE,
    .needed = needed,
    .tolerated = tolerated,
    .coefficients = multi_krum,
};
