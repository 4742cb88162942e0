/* adam.h - the tile (outer_tile.h) that Adam and AdamW share. b1, b2 and the corrections are in
 * the entry; docs/algorithms.md has the formulas.
 *
 *     m <- fma(b1, m, (1 - b1) G);  v <- fma(b2, v, (1 - b2) G G)
 *     d = sqrt(v) / root + eps
 *     theta <- fma(-step, m / d, fma(-decay, theta, theta)) */
#ifndef DL_OUTER_ADAM_H
#define DL_OUTER_ADAM_H

#include "outer/outer_tile.h"

/* The scalars of one step, derived from the entry's. All are rounded to float32, so every replica
 * uses the same bits. */
typedef struct dl_adam_numbers {
    float b1, b2, eps;
    float step;  /* lr / (1 - b1^t) */
    float root;  /* sqrt(1 - b2^t) */
    float decay; /* lr * weight decay; 0: theta as it is, to the bit */
} dl_adam_numbers;

/* Steps elements [at, at + n) of the block; G is of these elements alone. The order of the fma
 * operations and the division by root are part of the format: another order changes last bits. */
static inline DL_BODY void dl_adam_tile(const dl_outer_block *b, const float *G, size_t at,
                                        size_t n, dl_adam_numbers k)
{
    const float *theta = b->theta + at, *m = b->state[0] + at, *v = b->state[1] + at;
    float *out = b->theta_out + at, *m_out = b->state_out[0] + at, *v_out = b->state_out[1] + at;
    float rest1 = 1 - k.b1, rest2 = 1 - k.b2;
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        float m_new = fmaf(k.b1, m[i], rest1 * G[i]);
        float v_new = fmaf(k.b2, v[i], rest2 * G[i] * G[i]);
        float d = sqrtf(v_new) / k.root + k.eps;
        float kept = fmaf(-k.decay, theta[i], theta[i]);
        m_out[i] = m_new;
        v_out[i] = v_new;
        out[i] = fmaf(-k.step, m_new / d, kept);
    }
}

/* Returns 1 - x^t by squaring. It avoids pow, whose last bit differs between math libraries. */
static inline double dl_adam_correction(double x, uint64_t t)
{
    double power = 1;
    for (; t; t >>= 1, x *= x)
        if (t & 1) power *= x;
    return 1 - power;
}

#endif
