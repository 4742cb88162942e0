/* sgd.c - theta <- fma(-lr, G, theta). With lr 1 the outer step is averaging (FedAvg). */
#include "outer/rows.h"

#include <math.h>

static inline DL_BODY void sgd_body(float *theta_out, const float *theta, const float *G, float lr,
                                    size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        theta_out[i] = fmaf(-lr, G[i], theta[i]);
}
DL_KERNEL(sgd, (float *theta_out, const float *theta, const float *G, float lr, size_t n),
          sgd_body(theta_out, theta, G, lr, n))

static void scalars(float *out, const dl_outer_settings *settings)
{
    out[0] = (float)settings->lr;
}

static void block(float *theta_out, float *const *state_out, const float *theta,
                  const float *const *state, const float *G, const float *s, bool decay, size_t n)
{
    (void)state_out, (void)state, (void)decay;
    dl_isa_call(sgd)(theta_out, theta, G, s[0], n);
}

const dl_outer dl_outer_sgd = {
    .name = "sgd",
    .summary = "theta - lr G; lr 1 is plain averaging",
    .n_scalars = 1,
    .scalar_names = {"lr"},
    .scalars = scalars,
    .block = block,
};
