/* gemm.h - the one matrix product.
 *
 * Row-major, as in BLAS: C[m][n] = op(A)[m][k] op(B)[k][n] + beta C, where op transposes when
 * the letter is 'T' ('N' does not) and beta is 0 or 1. */
#ifndef DL_NN_GEMM_H
#define DL_NN_GEMM_H

#include "base/thread.h"

typedef struct dl_gemm_args {
    char trans_a, trans_b;
    size_t m, n, k;
    const float *a; /* [m][k], or [k][m] when 'T' */
    const float *b; /* [k][n], or [n][k] when 'T' */
    float *c;
    size_t lda, ldb, ldc; /* elements from row to row */
    float beta;
} dl_gemm_args;

/* On the calling thread alone, whatever OpenMP's settings are. Safe inside a pool. */
void dl_gemm(const dl_gemm_args *args);

/* Rows begin … end of C: what a part of a pool computes. */
void dl_gemm_rows(const dl_gemm_args *args, size_t begin, size_t end);

/* Borders of such parts are multiples of this. */
enum { DL_GEMM_GRAIN = 16 };

#endif
