/* momentum.c - heavy ball, as torch.optim.SGD(momentum=mu):
 *
 *     v <- fma(mu, v, G);  theta <- fma(-lr, v, theta) */
#include "outer/rows.h"

#include <math.h>

static inline DL_BODY void momentum_body(float *theta_out, float *v_out, const float *theta,
                                         const float *v, const float *G, float lr, float mu,
                                         size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        float u = fmaf(mu, v[i], G[i]);
        v_out[i] = u;
        theta_out[i] = fmaf(-lr, u, theta[i]);
    }
}
DL_KERNEL(momentum,
          (float *theta_out, float *v_out, const float *theta, const float *v, const float *G,
           float lr, float mu, size_t n),
          momentum_body(theta_out, v_out, theta, v, G, lr, mu, n))

static void scalars(float *out, const dl_outer_settings *settings)
{
    out[0] = (float)settings->lr;
    out[1] = (float)settings->mu;
}

static void block(float *theta_out, float *const *state_out, const float *theta,
                  const float *const *state, const float *G, const float *s, bool decay, size_t n)
{
    (void)decay;
    dl_isa_call(momentum)(theta_out, state_out[0], theta, state[0], G, s[0], s[1], n);
}

const dl_outer dl_outer_momentum = {
    .name = "momentum",
    .summary = "heavy ball: v = mu v + G; theta - lr v",
    .n_state = 1,
    .state_names = {"momentum"},
    .n_scalars = 2,
    .scalar_names = {"lr", "mu"},
    .scalars = scalars,
    .block = block,
};
