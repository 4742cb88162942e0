/* mean.c - the weighted mean of docs/design.md section 2:
 *
 *     acc = 0;  acc = fma(w_m, g_m, acc), m ascending */
#include "combine/rows.h"

#include <math.h>

static inline DL_BODY void first_body(float *G, const float *g, float w, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        G[i] = fmaf(w, g[i] + 0.0f, 0.0f);
}
DL_KERNEL(first, (float *G, const float *g, float w, size_t n), first_body(G, g, w, n))

static inline DL_BODY void add_body(float *G, const float *g, float w, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        G[i] = fmaf(w, g[i] + 0.0f, G[i]);
}
DL_KERNEL(add, (float *G, const float *g, float w, size_t n), add_body(G, g, w, n))

static void block(float *G, const float *const *g, const float *weight, size_t n_members, size_t n)
{
    dl_isa_call(first)(G, g[0], weight[0], n);
    for (size_t m = 1; m < n_members; m++)
        dl_isa_call(add)(G, g[m], weight[m], n);
}

const dl_combiner dl_combiner_mean = {
    .name = "mean",
    .summary = "weighted mean of the contributions",
    .min_members = 1,
    .block = block,
};
