/* draw.c - series for the logarithm and the exponential, rejection for the rest.
 *
 *   log        x = m 2^e, m in [1/sqrt 2, sqrt 2);  2 artanh((m - 1) / (m + 1)) + e ln 2
 *   exp        x = k ln 2 + r, |r| <= ln 2 / 2;  the Taylor series of r, times 2^k
 *   normal     Marsaglia and Bray's polar method
 *   gamma      Marsaglia and Tsang, "A simple method for generating gamma variables" (ACM TOMS
 *              26, 2000); below 1 by gamma(a) = gamma(a + 1) U^(1/a), in logarithms
 *   Dirichlet  gamma draws over their sum */
#include "base/draw.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

/* ln 2 in two parts; the first has zeros at its end, so that k times it is exact. */
#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW  0x1.a39ef35793c76p-33

/* Of a normal number > 0: x = m 2^e with m in [1, 2). */
static double split(int *e, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    *e = (int)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0xFFFFFFFFFFFFF)) | UINT64_C(1023) << 52;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns 2^e exactly, for exponents of normal numbers. */
static double power_of_two(int e)
{
    double x;
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* m is within [1/sqrt 2, sqrt 2), where the series converges fastest. ln 2 in two parts keeps e ln
 * 2 exact for every exponent. */
double dl_draw_log(double x)
{
    enum { TERMS = 12 }; /* s^2 <= .0295, so the next is below 2^-60 */
    int e, below = 0;
    DL_ASSERT(x > 0 && x - x == 0);
    if (x < 0x1p-1022) x *= 0x1p54, below = 54;
    double m = split(&e, x);
    if (m > 0x1.6a09e667f3bcdp0) m *= 0.5, e++;
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int k = TERMS; k-- > 0;)
        sum = sum * square + 1.0 / (2 * k + 1);
    e -= below;
    return e * LN2_HIGH + (e * LN2_LOW + 2 * s * sum);
}

/* k is chosen so that |r| is small, and 2^k is exact. The series is summed from its smallest
 * term. */
double dl_draw_exp(double x)
{
    enum { TERMS = 16 }; /* .35^16 / 16! is below 2^-60 */
    DL_ASSERT(x <= 700);
    if (x < -700) return 0;
    int k = (int)(x / LN2_HIGH + (x < 0 ? -0.5 : 0.5));
    double r = x - k * LN2_HIGH - k * LN2_LOW, sum = 1;
    for (int i = TERMS; i > 0; i--)
        sum = 1 + sum * r / i;
    return sum * power_of_two(k);
}

/* Uniform in (0, 1). */
static double open_unit(dl_rng *rng)
{
    return dl_rng_f64(rng) + 0x1p-54;
}

/* The polar method needs a logarithm and a root, and no sine. The second normal of each pair is not
 * used, so a draw has no state. */
double dl_draw_normal(dl_rng *rng)
{
    double x, y, s;
    do {
        x = 2 * dl_rng_f64(rng) - 1;
        y = 2 * dl_rng_f64(rng) - 1;
        s = x * x + y * y;
    } while (s >= 1 || s == 0);
    return x * sqrt(-2 * dl_draw_log(s) / s);
}

/* Of a shape >= 1. The acceptance test is done in logarithms, so large shapes do not overflow. */
static double log_gamma_from_one(dl_rng *rng, double shape)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = dl_draw_normal(rng), v = 1 + c * x;
        if (v <= 0) continue;
        double log_v = 3 * dl_draw_log(v);
        v = v * v * v;
        if (dl_draw_log(open_unit(rng)) < 0.5 * x * x + d - d * v + d * log_v)
            return dl_draw_log(d) + log_v;
    }
}

/* Below 1 the factor U^(1/a) would underflow; its logarithm does not. */
double dl_draw_log_gamma(dl_rng *rng, double shape)
{
    DL_ASSERT(shape > 0);
    if (shape >= 1) return log_gamma_from_one(rng, shape);
    double more = dl_draw_log(open_unit(rng)) / shape;
    return log_gamma_from_one(rng, shape + 1) + more;
}

/* The largest logarithm is subtracted before the exponential. So at least one part is not zero,
 * whatever the concentration. */
void dl_draw_dirichlet(double *out, size_t n, double concentration, dl_rng *rng)
{
    double largest = -INFINITY, sum = 0;
    DL_ASSERT(n > 0);
    for (size_t i = 0; i < n; i++) {
        out[i] = dl_draw_log_gamma(rng, concentration);
        if (out[i] > largest) largest = out[i];
    }
    for (size_t i = 0; i < n; i++)
        sum += out[i] = dl_draw_exp(out[i] - largest);
    for (size_t i = 0; i < n; i++)
        out[i] /= sum;
}
