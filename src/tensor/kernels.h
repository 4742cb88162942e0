/* kernels.h - the vector kernels of docs/architecture.md section 2 that no codec, combiner or
 * outer optimizer owns. All work on any size and alignment; the caller is between
 * dl_fp_enter and dl_fp_leave. Equal bits on every instruction set. */
#ifndef DL_TENSOR_KERNELS_H
#define DL_TENSOR_KERNELS_H

#include "base/hash.h"
#include "tensor/isa.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { DL_BLOCK = 4096 }; /* elements: 16 KiB, a block of a few vectors stays in the L1 cache */

/* g = before - after, [n] each; g may be one of them. */
void dl_delta(float *g, const float *before, const float *after, size_t n);

/* local = theta with mix 0, unchanged with mix 1, else fma(mix, local - theta, theta). With mix 0
 * the values go around the caches, and are visible to other threads when it returns. */
void dl_adopt(float *local, const float *theta, float mix, size_t n);

/* memcpy around the caches, where the machine can: for much memory that is not read soon. The old
 * lines of `to` are not read from memory first, which is a third of the traffic. Visible to other
 * threads as the stores of memcpy are. */
void dl_copy_around(void *to, const void *from, size_t len);

/* PROTOCOL B3: sum of x*x (of x*y) in float64 over one block of at most DL_BLOCK elements:
 * element i in lane i mod 16, fma, lanes folded pairwise (stride 8, 4, 2, 1). */
double dl_block_norm2(const float *x, size_t n);
double dl_block_dot(const float *x, const float *y, size_t n);

/* The same over any size: blocks added in index order. */
double dl_norm2(const float *x, size_t n);
double dl_dot(const float *x, const float *y, size_t n);

/* Returns the index of the first element that is a NaN, infinite, or larger than bound in absolute
 * value; n if no element is. bound FLT_MAX finds values that are not finite. */
size_t dl_first_bad(const float *x, size_t n, float bound);

/* XXH3-128 as a stream, inlined for the chosen instruction set (same values as base/hash.h;
 * PROTOCOL B4 says why). For leaves hashed while they are in cache. */
typedef struct dl_leaf_hash {
    _Alignas(64) unsigned char state[640];
} dl_leaf_hash;
void dl_leaf_begin(dl_leaf_hash *h);
void dl_leaf_add(dl_leaf_hash *h, const void *data, size_t n);
dl_hash dl_leaf_end(dl_leaf_hash *h);

/* ---- for the bodies of kernels ---------------------------------------------------------- */

/* memcpy around the caches, where the machine can. Adopted values are read again only after all
 * other memory of the walk. This way their old lines are not read from memory first, which saves
 * one of seven streams. Call dl_written before another thread may read them. */
static inline DL_BODY void dl_write_through(float *to, const float *from, size_t n)
{
#if defined(__SSE2__)
    size_t i = 0;
    for (; i < n && (uintptr_t)(to + i) % 16; i++)
        to[i] = from[i];
    for (; i + 4 <= n; i += 4)
        _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
    for (; i < n; i++)
        to[i] = from[i];
#else
    memcpy(to, from, n * sizeof *to);
#endif
}

/* Orders the stores of dl_write_through before later ones. Streaming stores are weakly ordered, so
 * a lock or an atomic release alone would not publish them. */
static inline DL_BODY void dl_written(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* The sum of term(x[i], y[i]) as in PROTOCOL B3: one definition that fits two AVX-512 registers,
 * four AVX2 ones, and SSE2 and NEON. */
static inline DL_BODY double dl_sum_lanes(double (*term)(float x, float y), const float *x,
                                          const float *y, size_t n)
{
    enum { LANES = 16 };
    double lane[LANES] = {0};
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += term(x[i + l], y[i + l]);
    for (size_t l = 0; whole + l < n; l++)
        lane[l] += term(x[whole + l], y[whole + l]);
    for (size_t stride = LANES / 2; stride; stride /= 2)
        for (size_t l = 0; l < stride; l++)
            lane[l] += lane[l + stride];
    return lane[0];
}

/* Returns the largest |x| as dl_size_bits; a NaN is larger than any number. 0 if n is 0. */
static inline DL_BODY int32_t dl_largest_size(const float *x, size_t n)
{
    int32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t size = dl_size_bits(x[i]);
        largest = size > largest ? size : largest;
    }
    return largest;
}

#endif
