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
#include "outer/tile.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, CORRECTION1, CORRECTION2, N_SCALARS };

static inline DL_BODY void adamw_tile(const dl_outer_block *b, const float *G, size_t at, size_t n)
{
    const float *theta = b->theta + at, *m = b->state[0] + at, *v = b->state[1] + at;
    float *out = b->theta_out + at, *m_out = b->state_out[0] + at, *v_out = b->state_out[1] + at;
    const float *s = b->scalars;
    float b1 = s[BETA1], b2 = s[BETA2], eps = s[EPS], rest1 = 1 - b1, rest2 = 1 - b2;
    float step = s[LR] / s[CORRECTION1], root = sqrtf(s[CORRECTION2]);
    float decay = b->decay ? s[LR] * s[WEIGHT_DECAY] : 0;
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        float m_new = fmaf(b1, m[i], rest1 * G[i]);
        float v_new = fmaf(b2, v[i], rest2 * G[i] * G[i]);
        float d = sqrtf(v_new) / root + eps;
        float kept = fmaf(-decay, theta[i], theta[i]);
        m_out[i] = m_new;
        v_out[i] = v_new;
        out[i] = fmaf(-step, m_new / d, kept);
    }
}
DL_OUTER_KERNEL(adamw, 2)

static void block(dl_outer_block *b)
{
    dl_isa_call(adamw)(b);
}

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
