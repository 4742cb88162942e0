/* schedule_free.c - Schedule-Free SGD (Defazio et al. 2024, arXiv:2405.15682) on G, as an outer
 * optimizer in 2509.10439. theta is y, where replicas start from; z takes the steps, x is the
 * mean of the z so far, and x is what is evaluated:
 *
 *     z <- fma(-lr, G, z);  x <- fma(c, z - x, x);  y <- fma(b, x - z, z)
 *
 * c = 1 / (t + 1) with t commits before: the first entry makes x = z, so the initial parameters
 * are not part of the mean (as in the authors' code). Outer vectors begin at zero, so at
 * that first one, where c is 1, z is taken from theta. */
#include "outer/outer_rows.h"
#include "outer/outer_tile.h"

/* Places in an entry's scalars. C is exactly 1 in a fragment's first commit, and only there. */
enum { LR, BETA, C, N_SCALARS };

static inline DL_BODY void schedule_free_tile(const dl_outer_block *b, const float *G, size_t at,
                                              size_t n)
{
    const float *theta = b->theta + at, *x = b->state[1] + at;
    const float *z = b->scalars[C] == 1 ? theta : b->state[0] + at;
    float *out = b->theta_out + at, *z_out = b->state_out[0] + at, *x_out = b->state_out[1] + at;
    float lr = b->scalars[LR], beta = b->scalars[BETA], c = b->scalars[C];
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        float z_new = fmaf(-lr, G[i], z[i]);
        float x_new = fmaf(c, z_new - x[i], x[i]);
        z_out[i] = z_new;
        x_out[i] = x_new;
        out[i] = fmaf(beta, x_new - z_new, z_new);
    }
}
DL_OUTER_KERNEL(schedule_free, 2)

static void block(dl_outer_block *b)
{
    dl_isa_call(schedule_free)(b);
}

static void scalars(float *out, const dl_outer_settings *settings)
{
    out[LR] = (float)settings->lr;
    out[BETA] = (float)settings->outer_beta;
    out[C] = (float)(1 / ((double)settings->n_commits + 1));
}

const dl_outer dl_outer_schedule_free = {
    .name = "schedule_free",
    .summary = "Schedule-Free SGD; learning rate about 2, the mean x is evaluated",
    .n_state = 2,
    .state_names = {"z", "x"},
    .evaluated = 2,
    .n_scalars = N_SCALARS,
    .scalar_names = {"lr", "beta", "c"},
    .scalars = scalars,
    .counts = true,
    .block = block,
    .options = {DL_OUTER_OPTION("beta")},
    .most_lr = 2,
};
