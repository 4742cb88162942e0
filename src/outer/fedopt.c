/* fedopt.c - the three adaptive server optimizers of Reddi et al. 2020, arXiv:2003.00295,
 * algorithm 2, on G. They differ in the second moment alone, and none corrects its bias:
 *
 *     m <- fma(b1, m, (1 - b1) G)
 *     fedadam      v <- fma(b2, v, (1 - b2) G G)
 *     fedyogi      v <- fma(-sign(v - G G), (1 - b2) G G, v)          sign(0) = 0
 *     fedadagrad   v <- v + G G
 *     theta <- fma(-lr, m / (sqrt(v) + eps), theta)
 *
 * The paper begins with v >= eps^2, here v begins at 0: eps bounds the first steps as well. */
#include "outer/outer_rows.h"
#include "outer/outer_tile.h"

enum { LR, BETA1, EPS, BETA2, N_SCALARS }; /* BETA2 last: fedadagrad has none */

typedef enum second { FEDADAM, FEDYOGI, FEDADAGRAD } second;

/* Returns the new v. `which` is a constant in each kernel, so the compiler removes the switch from
 * the loop. `square` is G * G, rounded once. */
static inline DL_BODY float second_moment(second which, float v, float square, float b2)
{
    float fresh = (1 - b2) * square, sign = (float)((v > square) - (v < square));
    switch (which) {
    case FEDADAM:
        return fmaf(b2, v, fresh);
    case FEDYOGI:
        return fmaf(-sign, fresh, v);
    case FEDADAGRAD:
        return v + square;
    }
    return v;
}

static inline DL_BODY void fedopt_tile(const dl_outer_block *b, const float *G, size_t at, size_t n,
                                       second which)
{
    const float *theta = b->theta + at, *m = b->state[0] + at, *v = b->state[1] + at;
    float *out = b->theta_out + at, *m_out = b->state_out[0] + at, *v_out = b->state_out[1] + at;
    float lr = b->scalars[LR], b1 = b->scalars[BETA1], eps = b->scalars[EPS], rest1 = 1 - b1;
    float b2 = which == FEDADAGRAD ? 0 : b->scalars[BETA2];
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        float m_new = fmaf(b1, m[i], rest1 * G[i]);
        float v_new = second_moment(which, v[i], G[i] * G[i], b2);
        m_out[i] = m_new;
        v_out[i] = v_new;
        out[i] = fmaf(-lr, m_new / (sqrtf(v_new) + eps), theta[i]);
    }
}

static inline DL_BODY void fedadam_tile(const dl_outer_block *b, const float *G, size_t at,
                                        size_t n)
{
    fedopt_tile(b, G, at, n, FEDADAM);
}
DL_OUTER_KERNEL(fedadam, 2)

static inline DL_BODY void fedyogi_tile(const dl_outer_block *b, const float *G, size_t at,
                                        size_t n)
{
    fedopt_tile(b, G, at, n, FEDYOGI);
}
DL_OUTER_KERNEL(fedyogi, 2)

static inline DL_BODY void fedadagrad_tile(const dl_outer_block *b, const float *G, size_t at,
                                           size_t n)
{
    fedopt_tile(b, G, at, n, FEDADAGRAD);
}
DL_OUTER_KERNEL(fedadagrad, 2)

static void block_fedadam(dl_outer_block *b)
{
    dl_isa_call(fedadam)(b);
}
static void block_fedyogi(dl_outer_block *b)
{
    dl_isa_call(fedyogi)(b);
}
static void block_fedadagrad(dl_outer_block *b)
{
    dl_isa_call(fedadagrad)(b);
}

static void scalars_fedadagrad(float *out, const dl_outer_settings *settings)
{
    out[LR] = (float)settings->lr;
    out[BETA1] = (float)settings->outer_beta1;
    out[EPS] = (float)settings->outer_eps;
}

static void scalars(float *out, const dl_outer_settings *settings)
{
    scalars_fedadagrad(out, settings);
    out[BETA2] = (float)settings->outer_beta2;
}

const dl_outer dl_outer_fedadam = {
    .name = "fedadam",
    .summary = "FedAdam: Adam without bias correction",
    .n_state = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .n_scalars = N_SCALARS,
    .scalar_names = {"lr", "beta1", "eps", "beta2"},
    .scalars = scalars,
    .block = block_fedadam,
    .options = {DL_OUTER_OPTION("beta1"), DL_OUTER_OPTION("beta2"), DL_OUTER_OPTION("eps")},
    .most_lr = 1,
};

const dl_outer dl_outer_fedyogi = {
    .name = "fedyogi",
    .summary = "FedYogi: the second moment moves by a bounded step",
    .n_state = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .n_scalars = N_SCALARS,
    .scalar_names = {"lr", "beta1", "eps", "beta2"},
    .scalars = scalars,
    .block = block_fedyogi,
    .options = {DL_OUTER_OPTION("beta1"), DL_OUTER_OPTION("beta2"), DL_OUTER_OPTION("eps")},
    .most_lr = 1,
};

const dl_outer dl_outer_fedadagrad = {
    .name = "fedadagrad",
    .summary = "FedAdagrad: the second moment only grows",
    .n_state = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .n_scalars = BETA2,
    .scalar_names = {"lr", "beta1", "eps"},
    .scalars = scalars_fedadagrad,
    .block = block_fedadagrad,
    .options = {DL_OUTER_OPTION("beta1"), DL_OUTER_OPTION("eps")},
    .most_lr = 1,
};
