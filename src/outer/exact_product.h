/* exact_product.h - a matrix product that has the same bits on every machine, unlike that of
 * nn/gemm.h.
 *
 *     C[m][n] = A[m][k] B[k][n], all row-major without gaps
 *     c[i][j] <- 0;  for l from 0 to k - 1:  c[i][j] <- fma(a[i][l], b[l][j], c[i][j])
 *
 * An element is one chain of correctly rounded fma in the order of l. So its bits depend neither on
 * the width of vectors nor on the rows that a thread has. */
#ifndef DL_OUTER_EXACT_PRODUCT_H
#define DL_OUTER_EXACT_PRODUCT_H

#include "tensor/isa.h"

#include <stddef.h>

/* The arguments of a product. C does not overlap A or B. */
typedef struct dl_exact_product {
    float *c;
    const float *a, *b;
    size_t m, n, k;
} dl_exact_product;

/* A block of B, which is copied together: 16 rows of 512 columns are a first-level cache. */
enum { DL_EXACT_K = 16, DL_EXACT_N = 512, DL_EXACT_WORKSPACE = DL_EXACT_K * DL_EXACT_N };

/* Computes rows [begin, end) of C on the calling thread, which is between dl_fp_enter and
 * dl_fp_leave. It allocates nothing: workspace is DL_EXACT_WORKSPACE floats that no other thread
 * uses meanwhile. Rows are multiplied in pairs, so `begin` is best even. */
void dl_exact_product_rows(const dl_exact_product *p, size_t begin, size_t end, float *workspace);

#endif
