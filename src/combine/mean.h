/* mean.h - the weighted mean of docs/architecture.md section 2 as a kernel body (isa.h), to
 * be fused with the next step:
 *
 *     acc = 0;  acc = fma(w_m, g_m, acc), m ascending */
#ifndef DL_COMBINE_MEAN_H
#define DL_COMBINE_MEAN_H

#include "tensor/isa.h"

#include <math.h>
#include <stddef.h>

enum { DL_MEAN_GROUP = 16 }; /* elements whose sums stay in registers while m runs */

/* The same for a block of at most DL_BLOCK elements, on the chosen instruction set. */
void dl_weighted_sum(float *G, const float *const *g, const float *weight, size_t n_members,
                     size_t n);

/* sum[n] of the elements [at, at + n) of all members. x + 0.0f: a view (codec.h) may hold
 * negative zeros. */
static inline DL_BODY void dl_mean_body(float *sum, const float *const *g, const float *weight,
                                        size_t n_members, size_t at, size_t n)
{
    size_t whole = n - n % DL_MEAN_GROUP;
    DL_ROLLED
    for (size_t i = 0; i < whole; i += DL_MEAN_GROUP) {
        float acc[DL_MEAN_GROUP] = {0};
        for (size_t m = 0; m < n_members; m++) {
            const float *x = g[m] + at + i;
            float w = weight[m];
            for (size_t l = 0; l < DL_MEAN_GROUP; l++)
                acc[l] = fmaf(w, x[l] + 0.0f, acc[l]);
        }
        for (size_t l = 0; l < DL_MEAN_GROUP; l++)
            sum[i + l] = acc[l];
    }
    for (size_t i = whole; i < n; i++) {
        float acc = 0;
        for (size_t m = 0; m < n_members; m++)
            acc = fmaf(weight[m], g[m][at + i] + 0.0f, acc);
        sum[i] = acc;
    }
}

#endif
