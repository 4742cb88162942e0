/* kernels.h - the vector kernels of docs/design.md section 2 that no codec, combiner or
 * outer optimizer owns. All work on any size and alignment; the caller is between
 * dl_fp_enter and dl_fp_leave. Equal bits on every instruction set. */
#ifndef DL_TENSOR_KERNELS_H
#define DL_TENSOR_KERNELS_H

#include "base/hash.h"
#include "tensor/isa.h"

enum { DL_BLOCK = 4096 }; /* elements: 16 KiB, a block of a few vectors stays in the L1 cache */

/* g = before - after */
void dl_delta(float *g, const float *before, const float *after, size_t n);

/* local = theta where mix is 0, untouched where it is 1, else fma(mix, local - theta, theta) */
void dl_adopt(float *local, const float *theta, float mix, size_t n);

/* PROTOCOL B3: sum of x*x (of x*y) in float64 over one block of at most DL_BLOCK elements:
 * element i in lane i mod 16, fma, lanes folded pairwise (stride 8, 4, 2, 1). */
double dl_block_norm2(const float *x, size_t n);
double dl_block_dot(const float *x, const float *y, size_t n);

/* The same over any size: blocks added in index order. */
double dl_norm2(const float *x, size_t n);
double dl_dot(const float *x, const float *y, size_t n);

/* Index of the first element that is a NaN, infinite, or larger than bound in size; n if none. */
size_t dl_first_bad(const float *x, size_t n, float bound);

/* XXH3-128 as a stream, inlined for the chosen instruction set (same values as base/hash.h;
 * PROTOCOL B4 says why). For leaves hashed while they are in cache. */
typedef struct dl_leaf_hash {
    _Alignas(64) unsigned char state[640];
} dl_leaf_hash;
void dl_leaf_begin(dl_leaf_hash *h);
void dl_leaf_add(dl_leaf_hash *h, const void *data, size_t n);
dl_hash dl_leaf_end(dl_leaf_hash *h);

#endif
