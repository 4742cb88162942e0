/* gram.c - four products at a time share the loads and conversions of one member. Each keeps
 * dl_block_dot's lanes, so the bits are the same. Four arrays, not an array of four: compilers
 * then keep them in registers (clang is 14 times as fast with AVX-512). */
#include "combine/gram.h"

enum { LANES = 16, GROUP = 4 };

/* The pairwise order of PROTOCOL B3: changing it changes the bits. */
static inline DL_BODY double folded(double *lane)
{
    for (size_t stride = LANES / 2; stride; stride /= 2)
        for (size_t l = 0; l < stride; l++)
            lane[l] += lane[l + stride];
    return lane[0];
}

/* A product of two float32 is exact in float64, so fusing it with the sum changes no bit. The rest
 * starts again at lane 0, as in dl_block_dot. */
static inline DL_BODY void dots_body(double *sums, const float *x, const float *const *y, size_t n)
{
    double s0[LANES] = {0}, s1[LANES] = {0}, s2[LANES] = {0}, s3[LANES] = {0};
    const float *y0 = y[0], *y1 = y[1], *y2 = y[2], *y3 = y[3];
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            double a = (double)x[i + l];
            s0[l] += a * (double)y0[i + l];
            s1[l] += a * (double)y1[i + l];
            s2[l] += a * (double)y2[i + l];
            s3[l] += a * (double)y3[i + l];
        }
    for (size_t l = 0; whole + l < n; l++) {
        double a = (double)x[whole + l];
        s0[l] += a * (double)y0[whole + l];
        s1[l] += a * (double)y1[whole + l];
        s2[l] += a * (double)y2[whole + l];
        s3[l] += a * (double)y3[whole + l];
    }
    sums[0] = folded(s0), sums[1] = folded(s1), sums[2] = folded(s2), sums[3] = folded(s3);
}
DL_KERNEL(dots, (double *sums, const float *x, const float *const *y, size_t n),
          dots_body(sums, x, y, n))

/* Only the lower triangle is computed. In the last group of a row member a itself fills the places
 * without a member, and those products are dropped. */
void dl_gram_block(double *sums, const float *const *x, size_t n_members, size_t n)
{
    DL_ASSERT(n <= DL_BLOCK);
    for (size_t a = 0; a < n_members; a++)
        for (size_t b = 0; b <= a; b += GROUP) {
            double four[GROUP];
            const float *y[GROUP];
            for (size_t k = 0; k < GROUP; k++)
                y[k] = x[dl_size_min(b + k, a)];
            dl_isa_call(dots)(four, x[a], y, n);
            for (size_t k = 0; k < GROUP && b + k <= a; k++)
                sums[a * n_members + b + k] += four[k];
        }
}
