/* clipped_mean.c - members longer than the median of the norms are scaled down to it, then the
 * weighted mean (SparseLoCo 2508.15706; used at 72B scale, 2603.08163):
 *
 *     c_m = w_m min(1, median ||g|| / ||g_m||)
 *
 * The norm is that of the whole fragment, from the contribution's check. A scaled member can
 * pull no further than an ordinary one, but nothing bounds where to: it tolerates 0. */
#include "combine/combine_rows.h"
#include "combine/order.h"

#include <math.h>

static size_t needed(const dl_combine_rule *rule)
{
    (void)rule;
    return 1;
}

static size_t tolerated(const dl_combine_rule *rule, size_t n)
{
    (void)rule, (void)n;
    return 0;
}

static void coefficients(double *c, const dl_combine_view *view)
{
    double *norm = view->room;
    for (size_t m = 0; m < view->n; m++)
        norm[m] = sqrt(view->norm2[m]);
    double most = dl_median(view->order, norm, view->n);
    for (size_t m = 0; m < view->n; m++)
        c[m] = (double)view->weight[m] * (norm[m] > most ? most / norm[m] : 1);
}

const dl_combiner dl_combiner_clipped_mean = {
    .name = "clipped_mean",
    .summary = "weighted mean of the contributions clipped to their median norm",
    .needed = needed,
    .tolerated = tolerated,
    .coefficients = coefficients,
};
