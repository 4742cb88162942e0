/* kernels.c - the plain-C bodies that define the kernels; isa.h says how each becomes one
 * version per instruction set.
 *
 * The product of two floats is exact in a double (24 + 24 bits of 53), hence `lane += a * b` has
 * the bits of fma(a, b, lane). */
#include "tensor/kernels.h"
#include "tensor/cpu/leaf.h"

#include <float.h>
#include <math.h>
#include <string.h>

static inline DL_BODY void delta_body(float *g, const float *before, const float *after, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        g[i] = before[i] - after[i];
}
DL_KERNEL(delta, (float *g, const float *before, const float *after, size_t n),
          delta_body(g, before, after, n))

void dl_delta(float *g, const float *before, const float *after, size_t n)
{
    dl_isa_call(delta)(g, before, after, n);
}

static inline DL_BODY void adopt_body(float *local, const float *theta, float mix, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        local[i] = fmaf(mix, local[i] - theta[i], theta[i]);
}
DL_KERNEL(adopt, (float *local, const float *theta, float mix, size_t n),
          adopt_body(local, theta, mix, n))

void dl_adopt(float *local, const float *theta, float mix, size_t n)
{
    if (mix == 0) {
        dl_write_through(local, theta, n);
        dl_written();
    } else if (mix != 1) {
        dl_isa_call(adopt)(local, theta, mix, n);
    }
}

void dl_copy_around(void *to, const void *from, size_t len)
{
    size_t at = 0;
#if defined(__SSE2__)
    enum { VECTOR = 16 };
    char *t = to;
    const char *f = from;
    at = dl_size_min(len, -(uintptr_t)t % VECTOR);
    memcpy(t, f, at);
    for (; at + VECTOR <= len; at += VECTOR)
        _mm_stream_si128((__m128i *)(t + at), _mm_loadu_si128((const __m128i *)(f + at)));
    dl_written();
#endif
    memcpy((char *)to + at, (const char *)from + at, len - at);
}

static inline DL_BODY double product(float x, float y)
{
    return (double)x * (double)y;
}
DL_KERNEL(dot, (double *sum, const float *x, const float *y, size_t n),
          *sum = dl_sum_lanes(product, x, y, n))
DL_KERNEL(norm2, (double *sum, const float *x, size_t n), *sum = dl_sum_lanes(product, x, x, n))

double dl_block_dot(const float *x, const float *y, size_t n)
{
    double sum;
    DL_ASSERT(n <= DL_BLOCK);
    dl_isa_call(dot)(&sum, x, y, n);
    return sum;
}

double dl_block_norm2(const float *x, size_t n)
{
    double sum;
    DL_ASSERT(n <= DL_BLOCK);
    dl_isa_call(norm2)(&sum, x, n);
    return sum;
}

double dl_dot(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i += DL_BLOCK)
        sum += dl_block_dot(x + i, y + i, dl_size_min(n - i, DL_BLOCK));
    return sum;
}

double dl_norm2(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i += DL_BLOCK)
        sum += dl_block_norm2(x + i, dl_size_min(n - i, DL_BLOCK));
    return sum;
}

DL_KERNEL(largest_size, (int32_t * out, const float *x, size_t n), *out = dl_largest_size(x, n))

/* A block without a bad element costs one vector pass. Only the block with the first bad one is
 * searched element by element. */
size_t dl_first_bad(const float *x, size_t n, float bound)
{
    int32_t limit = dl_size_bits(fminf(bound, FLT_MAX));
    for (size_t begin = 0; begin < n; begin += DL_BLOCK) {
        size_t end = dl_size_min(n, begin + DL_BLOCK);
        int32_t most;
        dl_isa_call(largest_size)(&most, x + begin, end - begin);
        if (most <= limit) continue;
        while (dl_size_bits(x[begin]) <= limit)
            begin++;
        return begin;
    }
    return n;
}

/* A stream may not change its row between begin and end; dl_isa_use in the middle of one would. The
 * state's layout is the same in all rows, and so is the result. */
static const dl_leaf_row *leaf_row(void)
{
#if defined(__x86_64__)
    static const dl_leaf_row *const rows[DL_N_ISA] = {&dl_leaf_c, &dl_leaf_avx2, &dl_leaf_avx512,
                                                      &dl_leaf_c};
    return rows[dl_isa_chosen()];
#else
    return &dl_leaf_c;
#endif
}

void dl_leaf_begin(dl_leaf_hash *h)
{
    leaf_row()->begin(h);
}
void dl_leaf_add(dl_leaf_hash *h, const void *data, size_t n)
{
    leaf_row()->add(h, data, n);
}
dl_hash dl_leaf_end(dl_leaf_hash *h)
{
    return leaf_row()->end(h);
}
