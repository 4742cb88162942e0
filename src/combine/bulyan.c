/* bulyan.c - El Mhamdi et al. 2018, arXiv:1802.07927: choose theta = n - 2f inputs by repeated
 * Krum: the best by krum.h's score is chosen, the others are scored again. Then take of each
 * element the mean of the theta - 2f values nearest to their median. Needs n >= 4f + 3.
 *
 * In ascending order the nearest values are a window around the median; of two values equally
 * far the smaller one counts. */
#include "combine/combine_rows.h"
#include "combine/krum.h"
#include "combine/order.h"
#include "combine/sort.h"

#include <string.h>

/* After choosing, theta - 2f values are kept of each element: 3 or more with 4f + 3. */
static size_t needed(const dl_combine_rule *rule)
{
    return 4 * rule->byzantine + 3;
}

static size_t tolerated(const dl_combine_rule *rule, size_t n)
{
    (void)n;
    return rule->byzantine;
}

/* The first part of `room` is dl_krum_scores's own; the scores and the flags follow. Of equal
 * scores the first input is chosen. An input that is gone scores infinity, so it never wins
 * again. */
static size_t choose(size_t *chosen, const dl_combine_view *view)
{
    size_t n_chosen = view->n - 2 * view->rule->byzantine, n = 0;
    double *score = view->room + view->n;
    bool *gone = (bool *)(view->room + 2 * view->n);
    memset(gone, 0, view->n * sizeof *gone);
    for (size_t k = 0; k < n_chosen; k++) {
        size_t best = 0;
        dl_krum_scores(score, view, gone, view->n - k);
        for (size_t i = 1; i < view->n; i++)
            if (score[i] < score[best]) best = i;
        gone[best] = true;
    }
    for (size_t i = 0; i < view->n; i++)
        if (gone[i]) chosen[n++] = i;
    return n;
}

/* How far the further end of the window [first, first + count) of sorted rows is from the median.
 */
static inline DL_BODY void window_reach(float *reach, const float *tile, size_t n_inputs,
                                        size_t first, size_t count)
{
    const float *low = tile + (n_inputs - 1) / 2 * DL_SORT_LANES;
    const float *high = tile + n_inputs / 2 * DL_SORT_LANES;
    const float *begin = tile + first * DL_SORT_LANES, *end = begin + (count - 1) * DL_SORT_LANES;
    for (size_t l = 0; l < DL_SORT_LANES; l++) {
        float median = 0.5f * low[l] + 0.5f * high[l];
        float below = median - begin[l], above = end[l] - median;
        reach[l] = below > above ? below : above;
    }
}

/* All 2f + 1 windows are tried. Only a strictly nearer one replaces the best so far, so of two
 * equally near windows the one with the smaller values counts. */
static inline DL_BODY void bulyan_body(float *G, const float *const *x, size_t n_inputs, size_t f,
                                       float *room, size_t n)
{
    float best[DL_SORT_LANES], reach[DL_SORT_LANES], mean[DL_SORT_LANES], least[DL_SORT_LANES];
    size_t count = n_inputs - 2 * f;
    for (size_t at = 0; at < n; at += DL_SORT_LANES) {
        size_t lanes = dl_size_min(DL_SORT_LANES, n - at);
        dl_sort_load(room, x, n_inputs, at, lanes);
        dl_sort_tile(room, n_inputs);
        window_reach(least, room, n_inputs, 0, count);
        dl_sort_mean(best, room, 0, count);
        for (size_t first = 1; first <= 2 * f; first++) {
            window_reach(reach, room, n_inputs, first, count);
            dl_sort_mean(mean, room, first, count);
            for (size_t l = 0; l < DL_SORT_LANES; l++) {
                best[l] = reach[l] < least[l] ? mean[l] : best[l];
                least[l] = reach[l] < least[l] ? reach[l] : least[l];
            }
        }
        for (size_t l = 0; l < lanes; l++)
            G[at + l] = best[l];
    }
}
DL_KERNEL(bulyan,
          (float *G, const float *const *x, size_t n_inputs, size_t f, float *room, size_t n),
          bulyan_body(G, x, n_inputs, f, room, n))

static void elements(float *G, const float *const *x, size_t n_inputs, const dl_combine_rule *rule,
                     float *room, size_t n)
{
    dl_isa_call(bulyan)(G, x, n_inputs, rule->byzantine, room, n);
}

const dl_combiner dl_combiner_bulyan = {
    .name = "bulyan",
    .summary = "Krum's best n - 2f, then near each element's median; f of 4f + 3 may be hostile",
    .options = {DL_COMBINE_OPTION("byzantine"), DL_COMBINE_OPTION("robust_fallback"),
                DL_COMBINE_OPTION("rescale")},
    .ignores_weights = true,
    .measure = DL_MEASURE_WHOLE,
    .needed = needed,
    .tolerated = tolerated,
    .choose = choose,
    .elements = elements,
};
