/* adam.c - Adam (Kingma and Ba 2014, arXiv:1412.6980) on G, as DiLoCo (2311.08105, section 3)
 * tried it: with bias correction, t = n_commits + 1, and without decay. Its authors found it
 * unstable unless eps is about 0.1, which is the default. Without correction it is FedAdam
 * (fedopt.c).
 *
 *     m <- fma(b1, m, (1 - b1) G);  v <- fma(b2, v, (1 - b2) G G)
 *     theta <- fma(-(lr / (1 - b1^t)), m / (sqrt(v) / sqrt(1 - b2^t) + eps), theta) */
#include "outer/adam.h"
#include "outer/outer_rows.h"

/* Places in an entry's scalars. CORRECTION1 and CORRECTION2 are 1 - b1^t and 1 - b2^t. */
enum { LR, BETA1, BETA2, EPS, CORRECTION1, CORRECTION2, N_SCALARS };

static inline DL_BODY void adam_tile(const dl_outer_block *b, const float *G, size_t at, size_t n)
{
    const float *s = b->scalars;
    dl_adam_numbers k = {.b1 = s[BETA1],
                         .b2 = s[BETA2],
                         .eps = s[EPS],
                         .step = s[LR] / s[CORRECTION1],
                         .root = sqrtf(s[CORRECTION2])};
    dl_adam_tile(b, G, at, n, k);
}
DL_OUTER_KERNEL(adam, 2)

static void block(dl_outer_block *b)
{
    dl_isa_call(adam)(b);
}

/* The corrections are of the rounded b1 and b2, which the recurrences use. */
static void scalars(float *out, const dl_outer_settings *settings)
{
    uint64_t t = settings->n_commits + 1;
    out[LR] = (float)settings->lr;
    out[BETA1] = (float)settings->outer_beta1;
    out[BETA2] = (float)settings->outer_beta2;
    out[EPS] = (float)settings->outer_eps;
    out[CORRECTION1] = (float)dl_adam_correction(out[BETA1], t);
    out[CORRECTION2] = (float)dl_adam_correction(out[BETA2], t);
}

const dl_outer dl_outer_adam = {
    .name = "adam",
    .summary = "Adam with bias correction; unstable unless eps is about 0.1",
    .n_state = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .n_scalars = N_SCALARS,
    .scalar_names = {"lr", "beta1", "beta2", "eps", "correction1", "correction2"},
    .scalars = scalars,
    .counts = true,
    .block = block,
    .options = {DL_OUTER_OPTION("beta1"), DL_OUTER_OPTION("beta2"), DL_OUTER_OPTION("eps")},
    .most_lr = 1,
};
