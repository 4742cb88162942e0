/* momentum.c - heavy ball, as torch.optim.SGD(momentum=mu):
 *
 *     v <- fma(mu, v, G);  theta <- fma(-lr, v, theta) */
#include "outer/outer_rows.h"
#include "outer/outer_tile.h"

static inline DL_BODY void momentum_tile(const dl_outer_block *b, const float *G, size_t at,
                                         size_t n)
{
    const float *theta = b->theta + at, *v = b->state[0] + at;
    float *out = b->theta_out + at, *v_out = b->state_out[0] + at;
    float lr = b->scalars[0], mu = b->scalars[1];
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        float u = fmaf(mu, v[i], G[i]);
        v_out[i] = u;
        out[i] = fmaf(-lr, u, theta[i]);
    }
}
DL_OUTER_KERNEL(momentum, 1)

static void block(dl_outer_block *b)
{
    dl_isa_call(momentum)(b);
}

static void scalars(float *out, const dl_outer_settings *settings)
{
    out[0] = (float)settings->lr;
    out[1] = (float)settings->mu;
}

const dl_outer dl_outer_momentum = {
    .name = "momentum",
    .summary = "heavy ball: v = mu v + G; theta - lr v",
    .n_state = 1,
    .state_names = {"momentum"},
    .n_scalars = 2,
    .scalar_names = {"lr", "mu"},
    .scalars = scalars,
    .linear = true,
    .block = block,
    .options = {DL_OUTER_OPTION("momentum")},
    .most_lr = 1,
};
