/* gram.h - dot products of all pairs of members, block by block. */
#ifndef DL_COMBINE_GRAM_H
#define DL_COMBINE_GRAM_H

#include "tensor/kernels.h"

/* sums[a * n_members + b] += the dot product of x[a][n] and x[b][n] in float64, for b <= a; each
 * as dl_block_dot has it (PROTOCOL B3); n at most DL_BLOCK. */
void dl_gram_block(double *sums, const float *const *x, size_t n_members, size_t n);

#endif
