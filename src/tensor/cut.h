/* cut.h - an array of floats in slices of whole blocks, as even as possible. Each member of an
 * entry combines a slice for all (PROTOCOL P19), and sums over members are taken by slice before
 * they are added (B3). So the sum of one slice and the sum of all have the same bits. */
#ifndef DL_TENSOR_CUT_H
#define DL_TENSOR_CUT_H

#include "base/size.h"
#include "tensor/kernels.h"

enum { DL_SLICES_MAX = 64 }; /* of one array, however large the run is */

/* Returns how many slices an array has: one a replica, but at most DL_SLICES_MAX and at most one a
 * block. It is 1 for an empty array too. */
static inline size_t dl_cut_count(size_t n_floats, size_t n_replicas)
{
    const size_t blocks = (n_floats + DL_BLOCK - 1) / DL_BLOCK;
    return dl_size_max(1, dl_size_min(blocks, dl_size_min(n_replicas, DL_SLICES_MAX)));
}

/* Sets *first and *end to slice i of n_slices, elements [*first, *end). n_slices has to be from
 * dl_cut_count. `blocks * i` cannot overflow: an array has at most 2^40 elements. */
static inline void dl_cut_range(size_t *first, size_t *end, size_t n_floats, size_t n_slices,
                                size_t i)
{
    const size_t blocks = (n_floats + DL_BLOCK - 1) / DL_BLOCK;
    *first = blocks * i / n_slices * DL_BLOCK;
    *end = dl_size_min(blocks * (i + 1) / n_slices * DL_BLOCK, n_floats);
}

#endif
