/* sgd.c - theta <- fma(-lr, G, theta). With lr 1 the outer step is averaging: FedAvg (McMahan et
 * al. 2017, arXiv:1602.05629). outer_step.c also steps averaged tensors with this row, with lr 1,
 * in runs of every outer optimizer. */
#include "outer/outer_rows.h"
#include "outer/outer_tile.h"

static inline DL_BODY void sgd_tile(const dl_outer_block *b, const float *G, size_t at, size_t n)
{
    const float *theta = b->theta + at;
    float *out = b->theta_out + at, lr = b->scalars[0];
    DL_EACH
    for (size_t i = 0; i < n; i++)
        out[i] = fmaf(-lr, G[i], theta[i]);
}
DL_OUTER_KERNEL(sgd, 0)

static void block(dl_outer_block *b)
{
    dl_isa_call(sgd)(b);
}

static void scalars(float *out, const dl_outer_settings *settings)
{
    out[0] = (float)settings->lr;
}

const dl_outer dl_outer_sgd = {
    .name = "sgd",
    .summary = "theta - lr G; lr 1 is plain averaging",
    .n_scalars = 1,
    .scalar_names = {"lr"},
    .scalars = scalars,
    .linear = true,
    .block = block,
    .most_lr = 1,
};
