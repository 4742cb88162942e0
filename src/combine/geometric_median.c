/* geometric_median.c - RFA (Pillutla et al. 2019, arXiv:1912.13445): the point with the
 * smallest sum of distances to the inputs, by smoothed Weiszfeld steps from 0:
 *
 *     w_i = 1 / max(nu, ||z - x_i||);   z = sum w_i x_i / sum w_i
 *
 * z is a sum of inputs, so distances follow from the dot products and no step walks memory:
 *     ||z - x_i||^2 = c'Gc - 2 (Gc)_i + G_ii.
 * nu is a ten-thousandth of the median norm, so the result scales with the inputs; begun
 * at 0, the first step already weighs an input by one over its size. Where half of the
 * inputs are 0, so is the median. Needs n >= 2f + 1. */
#include "combine/order.h"
#include "combine/rows.h"

#include <math.h>

enum { STEPS = 10 };

static size_t needed(const dl_combine_rule *rule)
{
    return 2 * rule->byzantine + 1;
}

static size_t tolerated(const dl_combine_rule *rule, size_t n)
{
    (void)rule;
    return (n - 1) / 2;
}

static void multiply(double *out, const double *gram, const double *c, size_t n)
{
    for (size_t a = 0; a < n; a++) {
        out[a] = 0;
        for (size_t b = 0; b < n; b++)
            out[a] += gram[a * n + b] * c[b];
    }
}

static void coefficients(double *c, const dl_combine_view *view)
{
    size_t n = view->n;
    double *Gc = view->room, nu = 1e-4 * sqrt(dl_median(view->order, view->norm2, n));
    for (size_t i = 0; i < n; i++)
        c[i] = 0;
    for (int step = 0; nu > 0 && step < STEPS; step++) {
        double z2 = 0, total = 0;
        multiply(Gc, view->gram, c, n);
        for (size_t i = 0; i < n; i++)
            z2 += c[i] * Gc[i];
        for (size_t i = 0; i < n; i++) {
            double d2 = z2 - 2 * Gc[i] + view->gram[i * n + i];
            c[i] = 1 / fmax(nu, sqrt(fmax(d2, 0)));
            total += c[i];
        }
        for (size_t i = 0; i < n; i++)
            c[i] /= total;
    }
}

const dl_combiner dl_combiner_geometric_median = {
    .name = "geometric_median",
    .summary = "the point of the smallest sum of distances; f of 2f + 1 may be hostile",
    .options = {DL_COMBINE_OPTION("byzantine"), DL_COMBINE_OPTION("robust_fallback"),
                DL_COMBINE_OPTION("rescale")},
    .ignores_weights = true,
    .measure = DL_MEASURE_WHOLE,
    .needed = needed,
    .tolerated = tolerated,
    .coefficients = coefficients,
};
