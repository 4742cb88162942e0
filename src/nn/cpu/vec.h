/* vec.h - functions for the insides of loops, without branches, so that a body under
 * DL_KERNEL (tensor/isa.h) is vectorised for each instruction set.
 *
 * A sum over a loop carries DL_SUM. The compiler may then keep one partial sum a lane, in an order
 * that is fixed for an instruction set but differs between them. Code whose bits are the same on
 * every machine must not use it; tensor/kernels.h has dl_sum_lanes. It needs no OpenMP at run time.
 */
#ifndef DL_NN_CPU_VEC_H
#define DL_NN_CPU_VEC_H

#include "tensor/isa.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define DL_PRAGMA(text) _Pragma(#text)
#define DL_SUM(x)       DL_PRAGMA(omp simd reduction(+ : x))

/* Returns e^x for x in [-87.3, 88.7], by Cephes' reduction and polynomial (S. Moshier, expf):
 *
 *     n = round(x / ln 2),  r = x - n ln 2,  e^x = 2^n (1 + r + r^2 P(r))
 *
 * 12582912 is 1.5 * 2^23: after adding it, the sum's last bit is worth 1, so it is rounded to an
 * integer. ln 2 is subtracted in two parts, the first of which has few bits, so that n times it is
 * exact. 2^n is added to the exponent field. */
static inline DL_BODY float dl_exp_core(float x)
{
    float n = x * 1.44269504088896341f + 12582912.0f; /* the low bits now hold round(x / ln 2) */
    int32_t bits, out;
    memcpy(&bits, &n, sizeof bits);
    n -= 12582912.0f;
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r;
    p = p + 1.0f;
    memcpy(&out, &p, sizeof out);
    out = (int32_t)((uint32_t)out + ((uint32_t)bits << 23));
    memcpy(&p, &out, sizeof p);
    return p;
}

/* e^x for x <= 0 or NaN, as a softmax needs it: within 2 ulp, 0 where that is not normal. */
static inline DL_BODY float dl_exp_negative(float x)
{
    float p = dl_exp_core(x < -87.3f ? -87.3f : x);
    return x < -87.3f ? 0.0f : p;
}

/* Returns 1 / (1 + e^-x), within 4 ulp where e^-x is normal; a NaN stays one. x is clamped to
 * dl_exp_core's range by comparisons that are false for a NaN. */
static inline DL_BODY float dl_sigmoid(float x)
{
    float low = x < -88.0f ? -88.0f : x;
    return 1.0f / (1.0f + dl_exp_core(-(low > 87.3f ? 87.3f : low)));
}

#endif
