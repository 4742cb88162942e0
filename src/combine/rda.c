/* rda.c - the merge of Decoupled DiLoCo (2604.21428, section 3.3), tensor by tensor: the
 * weighted mean of the norms times the direction of the weighted mean of the unit vectors. A
 * plain mean of nearly orthogonal members shrinks as 1 / sqrt(M), this does not.
 *
 *     r = sum w ||g|| / sum w;   s = sum w g / ||g||;   G = r s / ||s||
 *     c_m = (r / ||s||) w_m / ||g_m||
 *
 * Embeddings, and tensors that are averaged (frozen, buffers), take the weighted mean; so does
 * a tensor whose members cancel (||s|| below a millionth of sum w). A member that did not move
 * a tensor has no direction there. The paper prints the radial factor as a vector mean; the
 * mean of norms is meant. */
#include "combine/combine_rows.h"

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
    const double *gram = view->gram;
    size_t n = view->n;
    double *by_norm = view->room, total = 0, radius = 0, longest = 0, s2 = 0;
    for (size_t m = 0; m < n; m++) {
        double norm = sqrt(gram[m * n + m]), w = (double)view->weight[m];
        c[m] = w;
        total += w;
        radius += w * norm;
        longest = fmax(longest, norm);
    }
    for (size_t m = 0; m < n; m++) { /* far shorter than the longest: it did not move */
        double norm = sqrt(gram[m * n + m]);
        by_norm[m] = norm > 1e-30 * longest ? c[m] / norm : 0;
    }
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++)
            s2 += by_norm[a] * by_norm[b] * gram[a * n + b];
    if (view->plain || s2 <= 1e-12 * total * total) return;
    for (size_t m = 0; m < n; m++)
        c[m] = radius / total / sqrt(s2) * by_norm[m];
}

const dl_combiner dl_combiner_rda = {
    .name = "rda",
    .summary = "mean norm times mean direction, tensor by tensor",
    .measure = DL_MEASURE_TENSORS,
    .needed = needed,
    .tolerated = tolerated,
    .coefficients = coefficients,
};
