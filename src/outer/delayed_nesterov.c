/* delayed_nesterov.c - Nesterov for pushes that are applied one by one (Liu et al. 2024,
 * arXiv:2401.09135, algorithm 3). Plain Nesterov on each push amplifies; here the momentum
 * moves once in N pushes, on their mean:
 *
 *     D <- D + G
 *     push N of N:  m <- fma(mu, m, D / N);  d = fma((1 - c N + c) mu, m, G / N);  D <- 0
 *     any other:    m stays;                 d = fma(c mu, m, G / N)
 *     theta <- fma(-lr, d, theta)
 *
 * 0 <= c <= 1/N. With c = 0, N pushes equal one Nesterov step on their mean. Which push of N
 * an entry is follows from the commits before it, and is in the entry. lr is as the
 * paper prints it; HALoS multiplies it by N, its toy code each push by sqrt(K)/K. */
#include "outer/outer_rows.h"
#include "outer/outer_tile.h"

/* Places in an entry's scalars. SHARE is 1 / N. PULL is the factor of m in d. FULL is 1 for the Nth
 * push of N, else 0. */
enum { LR, MU, SHARE, PULL, FULL, N_SCALARS };

static inline DL_BODY void delayed_tile(const dl_outer_block *b, const float *G, size_t at,
                                        size_t n)
{
    const float *theta = b->theta + at, *D = b->state[0] + at, *m = b->state[1] + at;
    float *out = b->theta_out + at, *D_out = b->state_out[0] + at, *m_out = b->state_out[1] + at;
    float lr = b->scalars[LR], mu = b->scalars[MU], share = b->scalars[SHARE];
    float pull = b->scalars[PULL];
    bool full = b->scalars[FULL] == 1;
    DL_EACH
    for (size_t i = 0; i < n; i++) {
        float sum = D[i] + G[i];
        float m_new = full ? fmaf(mu, m[i], share * sum) : m[i];
        float d = fmaf(pull, m_new, share * G[i]);
        D_out[i] = full ? 0 : sum;
        m_out[i] = m_new;
        out[i] = fmaf(-lr, d, theta[i]);
    }
}
DL_OUTER_KERNEL(delayed, 2)

static void block(dl_outer_block *b)
{
    dl_isa_call(delayed)(b);
}

/* check has ensured that outer_c <= 1 / N; with it PULL is not negative. */
static void scalars(float *out, const dl_outer_settings *settings)
{
    double N = (double)settings->outer_buffer, c = settings->outer_c, mu = settings->mu;
    bool full = (settings->n_commits + 1) % settings->outer_buffer == 0;
    out[LR] = (float)settings->lr;
    out[MU] = (float)mu;
    out[SHARE] = (float)(1 / N);
    out[PULL] = (float)(full ? (1 - c * N + c) * mu : c * mu);
    out[FULL] = full;
}

static diloco_status check(const dl_outer_settings *settings)
{
    double N = (double)settings->outer_buffer;
    if (settings->outer_c <= 1 / N) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "server.diloco.outer_c = %g: delayed_nesterov takes at most 1 / N = %g with "
                   "server.diloco.outer_buffer = %g; leave it 0",
                   settings->outer_c, 1 / N, N);
}

const dl_outer dl_outer_delayed_nesterov = {
    .name = "delayed_nesterov",
    .summary = "Nesterov once in N pushes, each applied at once; for asynchronous runs",
    .n_state = 2,
    .state_names = {"delta_sum", "momentum"},
    .n_scalars = N_SCALARS,
    .scalar_names = {"lr", "mu", "share", "pull", "full"},
    .scalars = scalars,
    .counts = true,
    .block = block,
    .options = {DL_OUTER_OPTION("momentum"), DL_OUTER_OPTION("buffer"), DL_OUTER_OPTION("c")},
    .check = check,
    .most_lr = 1,
};
