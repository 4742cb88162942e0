/* gemm.h - the one matrix product.
 *
 * C[m][n] = op(A)[m][k] op(B)[k][n] (+ C), all row-major without gaps, where op transposes when
 * the letter is 'T' ('N' does not). An element of C is the same sum however a pool split the
 * rows. */
#ifndef DL_NN_GEMM_H
#define DL_NN_GEMM_H

#include "base/thread.h"

#include <stdbool.h>

typedef struct dl_gemm_args {
    char trans_a, trans_b; /* 'N' or 'T' */
    size_t m, n, k;        /* k > 0 */
    float *c;              /* [m][n] */
    const float *a;        /* [m][k], or [k][m] when 'T' */
    const float *b;        /* [k][n], or [n][k] when 'T' */
    bool add;              /* to what C holds */
} dl_gemm_args;

enum { DL_GEMM_K = 384, DL_GEMM_N = 384, DL_GEMM_ROWS = 12 }; /* blocks; see gemm.c */
/* Floats of packed B, of rows of A moved together, and of a tile that C's edge cuts. */
enum {
    DL_GEMM_WORKSPACE =
        (DL_GEMM_K + 1) * DL_GEMM_N + DL_GEMM_ROWS * (DL_GEMM_K + 16) + DL_GEMM_ROWS * 32
};

/* Computes rows [begin, end) of C on the calling thread. It allocates nothing: workspace is
 * DL_GEMM_WORKSPACE floats that no other thread uses meanwhile. C must not overlap A or B. */
void dl_gemm(const dl_gemm_args *args, size_t begin, size_t end, float *workspace);

/* Computes the rows of part `part` of a pool, with its share of f32[n_parts][DL_GEMM_WORKSPACE]. */
void dl_gemm_part(const dl_gemm_args *args, int part, int n_parts, float *workspaces);

/* Returns those rows, [*begin, *end) of n, for work on C that follows on the same part: no other
 * part has to be done before it. */
void dl_gemm_range(size_t *begin, size_t *end, size_t n, int part, int n_parts);

#endif
