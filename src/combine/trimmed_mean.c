/* trimmed_mean.c - coordinate-wise (Yin et al. 2018, arXiv:1803.01498): of the n values of an
 * element drop the k smallest and the k largest, then the mean of the rest. k = floor(trim n)
 * with trim as the decimal fraction that was written (SWM-18, D-19); it bears k hostile members. */
#include "combine/rows.h"
#include "combine/sort.h"

#include <float.h>
#include <math.h>

enum { EIGHT = 8 };

/* Up to eight rows, in registers: row k counts as often as counts[k], 0 or 1, which fma adds
 * with the bits of a plain sum. Nearly all of a tile's time was the way to its rows and back. */
static inline DL_BODY void middle_of_eight(float *G, const float *const *row, const float *counts,
                                           float count)
{
    const float *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
    const float *r4 = row[4], *r5 = row[5], *r6 = row[6], *r7 = row[7];
    float c0 = counts[0], c1 = counts[1], c2 = counts[2], c3 = counts[3];
    float c4 = counts[4], c5 = counts[5], c6 = counts[6], c7 = counts[7];
    DL_EACH
    for (size_t l = 0; l < DL_SORT_LANES; l++) {
        float v[EIGHT] = {r0[l] + 0.0f, r1[l] + 0.0f, r2[l] + 0.0f, r3[l] + 0.0f,
                          r4[l] + 0.0f, r5[l] + 0.0f, r6[l] + 0.0f, r7[l] + 0.0f};
        dl_sort_eight(v);
        float sum = fmaf(c3, v[3], fmaf(c2, v[2], fmaf(c1, v[1], fmaf(c0, v[0], 0))));
        sum = fmaf(c7, v[7], fmaf(c6, v[6], fmaf(c5, v[5], fmaf(c4, v[4], sum))));
        G[l] = sum / count;
    }
}

/* room: one row of values that sort to the end, then rows for a short tile. */
static inline DL_BODY void few_body(float *G, const float *const *x, size_t n_inputs, size_t drop,
                                    float *room, size_t n)
{
    const float *row[EIGHT];
    float counts[EIGHT] = {0}, mean[DL_SORT_LANES];
    for (size_t k = drop; k < n_inputs - drop; k++)
        counts[k] = 1;
    for (size_t l = 0; l < DL_SORT_LANES; l++)
        room[l] = FLT_MAX;
    for (size_t at = 0; at < n; at += DL_SORT_LANES) {
        size_t lanes = dl_size_min(DL_SORT_LANES, n - at);
        if (lanes < DL_SORT_LANES) dl_sort_load(room + DL_SORT_LANES, x, n_inputs, at, lanes);
        for (size_t k = 0; k < EIGHT; k++)
            row[k] = k >= n_inputs           ? room
                     : lanes < DL_SORT_LANES ? room + (1 + k) * DL_SORT_LANES
                                             : x[k] + at;
        middle_of_eight(mean, row, counts, (float)(n_inputs - 2 * drop));
        for (size_t l = 0; l < lanes; l++)
            G[at + l] = mean[l];
    }
}

static inline DL_BODY void many_body(float *G, const float *const *x, size_t n_inputs, size_t drop,
                                     float *room, size_t n)
{
    float mean[DL_SORT_LANES];
    for (size_t at = 0; at < n; at += DL_SORT_LANES) {
        size_t lanes = dl_size_min(DL_SORT_LANES, n - at);
        dl_sort_load(room, x, n_inputs, at, lanes);
        dl_sort_tile(room, n_inputs);
        dl_sort_mean(mean, room, drop, n_inputs - 2 * drop);
        for (size_t l = 0; l < lanes; l++)
            G[at + l] = mean[l];
    }
}
DL_KERNEL(few,
          (float *G, const float *const *x, size_t n_inputs, size_t drop, float *room, size_t n),
          few_body(G, x, n_inputs, drop, room, n))
DL_KERNEL(many,
          (float *G, const float *const *x, size_t n_inputs, size_t drop, float *room, size_t n),
          many_body(G, x, n_inputs, drop, room, n))

void dl_middle_mean(float *G, const float *const *x, size_t n_inputs, size_t drop, float *room,
                    size_t n)
{
    if (n_inputs <= EIGHT)
        dl_isa_call(few)(G, x, n_inputs, drop, room, n);
    else
        dl_isa_call(many)(G, x, n_inputs, drop, room, n);
}

/* floor(trim n): at most 2^30 * 2^12. */
static size_t trimmed(const dl_combine_rule *rule, size_t n)
{
    return (size_t)(rule->trim * n / 1000000000);
}

/* So many that one is trimmed at either end and one is left. */
static size_t needed(const dl_combine_rule *rule)
{
    return rule->trim ? (size_t)((1000000000 + rule->trim - 1) / rule->trim) : 1;
}

static void elements(float *G, const float *const *x, size_t n_inputs, const dl_combine_rule *rule,
                     float *room, size_t n)
{
    dl_middle_mean(G, x, n_inputs, trimmed(rule, n_inputs), room, n);
}

const dl_combiner dl_combiner_trimmed_mean = {
    .name = "trimmed_mean",
    .summary = "each element's mean without the smallest and largest values",
    .options = {DL_COMBINE_OPTION("trim"), DL_COMBINE_OPTION("robust_fallback"),
                DL_COMBINE_OPTION("rescale")},
    .ignores_weights = true,
    .by_itself = true,
    .needed = needed,
    .tolerated = trimmed,
    .elements = elements,
};
