/* vec.h - sixteen floats at a time, in plain C, for any instruction set.
 *
 * DL_KERNEL (tensor/isa.h) compiles a body for each; compilers lower a dl_vec to what the
 * set has (one AVX-512, two AVX2, four SSE registers). Reductions go through a dl_vec because
 * the compiler may not reorder them itself. */
#ifndef DL_NN_CPU_VEC_H
#define DL_NN_CPU_VEC_H

#include "tensor/isa.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { DL_LANES = 16 };
typedef float dl_vec __attribute__((vector_size(64), aligned(4), may_alias));

#define DL_VEC(p)  (*(dl_vec *)(p))
#define DL_CVEC(p) (*(const dl_vec *)(p))

static inline DL_BODY float dl_vec_sum(const dl_vec *v)
{
    float s[8], t[4];
    for (int i = 0; i < 8; i++)
        s[i] = (*v)[i] + (*v)[i + 8];
    for (int i = 0; i < 4; i++)
        t[i] = s[i] + s[i + 4];
    return (t[0] + t[2]) + (t[1] + t[3]);
}

/* e^x without a branch, so that loops over it are vectorised. Cephes' reduction and
 * polynomial (S. Moshier, expf): within 2 ulp where the result is a normal number; 0 below
 * that, infinity above; NaN stays NaN. */
static inline DL_BODY float dl_exp(float x)
{
    float top = x > 89.0f ? 89.0f : x;
    float z = top < -87.5f ? -87.5f : top;
    float n = z * 1.44269504088896341f + 12582912.0f; /* the low bits now hold round(z / ln 2) */
    int32_t bits;
    memcpy(&bits, &n, sizeof bits);
    n -= 12582912.0f;
    float r = z - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r;
    p = p + 1.0f;
    int32_t out;
    memcpy(&out, &p, sizeof out);
    out = (int32_t)((uint32_t)out + ((uint32_t)bits << 23));
    memcpy(&p, &out, sizeof p);
    p = x > 88.7228f ? INFINITY : p;
    return x < -87.3365f ? 0.0f : p;
}

static inline DL_BODY float dl_sigmoid(float x)
{
    return 1.0f / (1.0f + dl_exp(-x));
}

#endif
