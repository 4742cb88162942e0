/* tile.h - products of small blocks that already are in cache, and maxima, for inside other
 * kernels.
 *
 *     C[m][n] = (add ? C : 0) + A[m][k] B[k][n] + the same of each further pair
 *
 * A's element (i, l) is a[i * a_row + l * a_col], so it may be read transposed. n is a multiple
 * of DL_TILE_N; the caller pads. Each element of C is one sum in the order of k, then of the pairs.
 * A convolution is such a sum, with a pair for each place of its kernel. */
#ifndef DL_NN_CPU_TILE_H
#define DL_NN_CPU_TILE_H

#include "tensor/isa.h"

#include <math.h>
#include <stddef.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { DL_TILE_N = 16 };

/* A further pair of matrices, with the sizes and strides of the first. */
typedef struct dl_tile_pair {
    const float *a, *b;
} dl_tile_pair;

/* The arguments of a product. C does not overlap A or B. */
typedef struct dl_tile {
    float *c;
    const float *a, *b;
    size_t m, n, k;
    size_t c_row, a_row, a_col, b_row; /* strides in elements */
    bool add;
    const dl_tile_pair *more; /* of the same k and strides; NULL without more pairs */
    size_t n_more;
} dl_tile;

/* A sanitizer's build unrolls no loop of a block. clang would check each copy of the bodies:
 * conv.c, gemm.c and op_attention.c would take 76 s of compile time instead of 34 s. */
#if defined(DL_UNFUSED)
enum { DL_UNROLLED_ROWS = 1, DL_UNROLLED_VECS = 1 };
#else
enum { DL_UNROLLED_ROWS = 12, DL_UNROLLED_VECS = 2 };
#endif

#define LANES 16
#include "nn/cpu/tile_body.h"
#undef LANES
#define LANES 8
#include "nn/cpu/tile_body.h"
#undef LANES
#define LANES 4
#include "nn/cpu/tile_body.h"
#undef LANES

/* Computes a whole product. lanes is the argument of DL_TILE_KERNEL. The rows of a block divide
 * most m evenly. Its 8 x 2 vectors are 16 of AVX-512's 32 registers, and 4 x 2 are 8 of 16. */
static inline DL_BODY void dl_tile_product(const dl_tile *t, int lanes)
{
    if (lanes == 16) dl_tile_product16(t, 8);
    if (lanes == 8) dl_tile_product8(t, 4);
    if (lanes == 4) dl_tile_product4(t, 4);
}

/* The largest of n, -infinity for none; a NaN may be passed over. */
static inline DL_BODY float dl_row_max(const float *x, size_t n, int lanes)
{
    return lanes == 16 ? dl_row_max16(x, n) : lanes == 8 ? dl_row_max8(x, n) : dl_row_max4(x, n);
}

/* DL_KERNEL for calls that pass on `lanes`, the floats of a vector. */
#if defined(__x86_64__)
#define DL_TILE_KERNEL(name, params, call)                                                         \
    static void name##_c params                                                                    \
    {                                                                                              \
        const int lanes = 4;                                                                       \
        call;                                                                                      \
    }                                                                                              \
    __attribute__((target("avx2,fma"))) static void name##_avx2 params                             \
    {                                                                                              \
        const int lanes = 8;                                                                       \
        call;                                                                                      \
    }                                                                                              \
    __attribute__((DL_AVX512)) static void name##_avx512 params                                    \
    {                                                                                              \
        const int lanes = 16;                                                                      \
        call;                                                                                      \
    }                                                                                              \
    static void(*const name[DL_N_ISA]) params = {name##_c, name##_avx2, name##_avx512, name##_c};
#else
#define DL_TILE_KERNEL(name, params, call)                                                         \
    static void name##_c params                                                                    \
    {                                                                                              \
        const int lanes = 4;                                                                       \
        call;                                                                                      \
    }                                                                                              \
    static void(*const name[DL_N_ISA]) params = {name##_c, name##_c, name##_c, name##_c};
#endif

#endif
