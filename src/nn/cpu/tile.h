/* tile.h - products of small blocks that already are in cache, for inside other kernels.
 *
 *     C[m][n] = (add ? C : 0) + A[m][k] B[k][n]
 *
 * A's element (i, l) is a[i * a_row + l * a_col], so it may be read transposed. m is a multiple
 * of `rows`, n of 16; the caller pads. A block of C of `rows` by `vecs` vectors stays in
 * registers over all of k: 8 x 2 of the 32 of AVX-512, 4 x 1 of the 16 half as wide. */
#ifndef DL_NN_CPU_TILE_H
#define DL_NN_CPU_TILE_H

#include "nn/cpu/vec.h"

enum { DL_TILE_ROWS = 8 }; /* m is a multiple of this on every instruction set */

typedef struct dl_tile {
    float *c;
    const float *a, *b;
    size_t m, n, k;
    size_t c_row, a_row, a_col, b_row; /* strides in elements */
    bool add;
} dl_tile;

static inline DL_BODY void dl_tile_block(const dl_tile *t, size_t i, size_t j, int rows, int vecs)
{
    dl_vec acc[8][2];
    float *c = t->c + i * t->c_row + j;
    const float *a = t->a + i * t->a_row, *b = t->b + j;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++)
            acc[r][v] = t->add ? DL_CVEC(c + (size_t)r * t->c_row + v * DL_LANES) : (dl_vec){0};
    for (size_t l = 0; l < t->k; l++, a += t->a_col, b += t->b_row)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) {
            dl_vec bv = DL_CVEC(b + v * DL_LANES);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                acc[r][v] += a[(size_t)r * t->a_row] * bv;
        }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++)
            DL_VEC(c + (size_t)r * t->c_row + v * DL_LANES) = acc[r][v];
}

/* wide: for 32 registers of 16 lanes. */
static inline DL_BODY void dl_tile_product(const dl_tile *t, bool wide)
{
    size_t j = 0;
    for (; wide && j + 2 * DL_LANES <= t->n; j += 2 * DL_LANES)
        for (size_t i = 0; i < t->m; i += 8)
            dl_tile_block(t, i, j, 8, 2);
    for (; wide && j < t->n; j += DL_LANES)
        for (size_t i = 0; i < t->m; i += 8)
            dl_tile_block(t, i, j, 8, 1);
    for (; j < t->n; j += DL_LANES)
        for (size_t i = 0; i < t->m; i += 4)
            dl_tile_block(t, i, j, 4, 1);
}

/* DL_KERNEL for calls that pass on `wide`. */
#if defined(__x86_64__)
#define DL_TILE_KERNEL(name, params, call)                                                         \
    static void name##_c params                                                                    \
    {                                                                                              \
        const bool wide = false;                                                                   \
        call;                                                                                      \
    }                                                                                              \
    __attribute__((target("avx2,fma"))) static void name##_avx2 params                             \
    {                                                                                              \
        const bool wide = false;                                                                   \
        call;                                                                                      \
    }                                                                                              \
    __attribute__((DL_AVX512)) static void name##_avx512 params                                    \
    {                                                                                              \
        const bool wide = true;                                                                    \
        call;                                                                                      \
    }                                                                                              \
    static void(*const name[DL_N_ISA]) params = {name##_c, name##_avx2, name##_avx512, name##_c};
#else
#define DL_TILE_KERNEL(name, params, call)                                                         \
    static void name##_c params                                                                    \
    {                                                                                              \
        const bool wide = false;                                                                   \
        call;                                                                                      \
    }                                                                                              \
    static void(*const name[DL_N_ISA]) params = {name##_c, name##_c, name##_c, name##_c};
#endif

#endif
