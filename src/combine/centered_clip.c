/* centered_clip.c - centered clipping (Karimireddy et al. 2021, arXiv:2012.10333): from the update
 * v of the commit before, a few steps of
 *
 *     v <- v + mean_i (x_i - v) min(1, r / ||x_i - v||)
 *
 * v stays a sum of the inputs and of the previous update, so distances follow from dot products,
 * those with the previous update included, and no step walks memory.
 *
 * The paper's r is a constant of the problem. Here it is clip_radius times the median of
 * the distances, found again in each step. A scale of all inputs is a scale of the result. While
 * most inputs are honest so is the radius, whatever the others send. One of f hostile members moves
 * v by r / n at most; the paper's proof bears a tenth of the members. Needs n >= 2f + 1. */
#include "combine/combine_rows.h"
#include "combine/order.h"

#include <math.h>

enum { STEPS = 3 };

static size_t needed(const dl_combine_rule *rule)
{
    return 2 * rule->byzantine + 1;
}

static size_t tolerated(const dl_combine_rule *rule, size_t n)
{
    (void)rule;
    return (n - 1) / 2;
}

/* distance[i] of input i from v = sum c_j x_j + c_n previous. ||x_i - v||^2 is expanded into dot
 * products. Rounding may leave it slightly negative, hence the maximum with 0. */
static void distances(double *distance, const double *c, const dl_combine_view *view)
{
    const double *previous = view->previous;
    size_t n = view->n;
    double v2 = c[n] * c[n] * previous[n];
    for (size_t i = 0; i < n; i++) {
        double dot = c[n] * previous[i]; /* of x_i and v */
        for (size_t j = 0; j < n; j++)
            dot += c[j] * view->gram[i * n + j];
        v2 += c[i] * (dot + c[n] * previous[i]);
        distance[i] = view->gram[i * n + i] - 2 * dot;
    }
    for (size_t i = 0; i < n; i++)
        distance[i] = sqrt(fmax(0, distance[i] + v2));
}

/* Each input gets its clipped share of the step, and the former v gets the rest. So the
 * coefficients still sum to 1. */
static void clip(double *c, const dl_combine_view *view)
{
    size_t n = view->n;
    double *distance = view->room, left = 1;
    distances(distance, c, view);
    const double r = view->rule->clip_radius * dl_median(view->order, distance, n);
    for (size_t i = 0; i < n; i++) {
        distance[i] = (distance[i] > r ? r / distance[i] : 1) / (double)n;
        left -= distance[i];
    }
    left = fmax(0, left);
    for (size_t i = 0; i < n; i++)
        c[i] = left * c[i] + distance[i];
    c[n] *= left;
}

/* v starts at the previous update. Without one, that update is a vector of zeros. */
static void coefficients(double *c, const dl_combine_view *view)
{
    for (size_t i = 0; i < view->n; i++)
        c[i] = 0;
    c[view->n] = 1;
    for (int step = 0; step < STEPS; step++)
        clip(c, view);
}

const dl_combiner dl_combiner_centered_clip = {
    .name = "centered_clip",
    .summary = "steps from the last update towards each, clipped; f of 2f + 1 may be hostile",
    .options = {DL_COMBINE_OPTION("byzantine"), DL_COMBINE_OPTION("robust_fallback"),
                DL_COMBINE_OPTION("clip_radius")},
    .ignores_weights = true,
    .measure = DL_MEASURE_WHOLE,
    .keeps = true,
    .needed = needed,
    .tolerated = tolerated,
    .coefficients = coefficients,
};
