/* adamw.c - the inner optimizer as an outer row: preset data_parallel contributes gradients,
 * and its moments are state of the run (PROTOCOL P22). Loshchilov and Hutter 2019,
 * arXiv:1711.05101, decoupled decay, with n_commits + 1 as the step t:
 *
 *     m <- fma(b1, m, (1 - b1) G);  v <- fma(b2, v, (1 - b2) G G)
 *     d = sqrt(v) / sqrt(1 - b2^t) + eps
 *     theta <- fma(-lr wd, theta, theta)  where it decays
 *     theta <- fma(-(lr / (1 - b1^t)), m / d, theta)
 *
 * Square roots and divisions are rounded correctly everywhere, so bits agree. The
 * corrections are of the rounded b1 and b2: they undo exactly what the recurrences do. */
#include "outer/rows.h"

#include <math.h>

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, CORRECTION1, CORRECTION2, N_SCALARS };

static inline DL_BODY void adamw_body(float *theta_out, float *m_out, float *v_out,
                                      const float *theta, const float *m, const float *v,
                                      const float *G, const float *s, float decay, size_t n)
{
    float b1 = s[BETA1], b2 = s[BETA2], eps = s[EPS];
    float rest1 = 1 - b1, rest2 = 1 - b2;
    float step = s[LR] / s[CORRECTION1], root = sqrtf(s[CORRECTION2]);
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        float g = G[i];
        float m_new = fmaf(b1, m[i], rest1 * g);
        float v_new = fmaf(b2, v[i], rest2 * g * g);
        float d = sqrtf(v_new) / root + eps;
        float kept = fmaf(-decay, theta[i], theta[i]);
        m_out[i] = m_new;
        v_out[i] = v_new;
        theta_out[i] = fmaf(-step, m_new / d, kept);
    }
}
DL_KERNEL(adamw,
          (float *theta_out, float *m_out, float *v_out, const float *theta, const float *m,
           const float *v, const float *G, const float *s, float decay, size_t n),
          adamw_body(theta_out, m_out, v_out, theta, m, v, G, s, decay, n))

/* 1 - x^t by squaring: no pow, whose last bit differs between math libraries. */
static double correction(double x, uint64_t t)
{
    double power = 1;
    for (; t; t >>= 1, x *= x)
        if (t & 1) power *= x;
    return 1 - power;
}

static void scalars(float *out, const dl_outer_settings *settings)
{
    uint64_t t = settings->n_commits + 1;
    out[LR] = (float)settings->lr;
    out[BETA1] = (float)settings->beta1;
    out[BETA2] = (float)settings->beta2;
    out[EPS] = (float)settings->eps;
    out[WEIGHT_DECAY] = (float)settings->weight_decay;
    out[CORRECTION1] = (float)correction(out[BETA1], t);
    out[CORRECTION2] = (float)correction(out[BETA2], t);
}

static void block(float *theta_out, float *const *state_out, const float *theta,
                  const float *const *state, const float *G, const float *s, bool decay, size_t n)
{
    dl_isa_call(adamw)(theta_out, state_out[0], state_out[1], theta, state[0], state[1], G, s,
                       decay ? s[LR] * s[WEIGHT_DECAY] : 0, n);
}

const dl_outer dl_outer_adamw = {
    .name = "adamw",
    .summary = "AdamW on the mean gradient, for preset data_parallel",
    .n_state = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .n_scalars = N_SCALARS,
    .scalar_names = {"lr", "beta1", "beta2", "eps", "weight_decay", "correction1", "correction2"},
    .scalars = scalars,
    .block = block,
    .needs_tensors = true,
};
