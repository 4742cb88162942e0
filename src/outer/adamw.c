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
#include "outer/adam.h"
#include "outer/outer_rows.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, CORRECTION1, CORRECTION2, N_SCALARS };

static inline DL_BODY void adamw_tile(const dl_outer_block *b, const float *G, size_t at, size_t n)
{
    const float *s = b->scalars;
    dl_adam_numbers k = {.b1 = s[BETA1],
                         .b2 = s[BETA2],
                         .eps = s[EPS],
                         .step = s[LR] / s[CORRECTION1],
                         .root = sqrtf(s[CORRECTION2]),
                         .decay = b->decay ? s[LR] * s[WEIGHT_DECAY] : 0};
    dl_adam_tile(b, G, at, n, k);
}
DL_OUTER_KERNEL(adamw, 2)

static void block(dl_outer_block *b)
{
    dl_isa_call(adamw)(b);
}

static void scalars(float *out, const dl_outer_settings *settings)
{
    uint64_t t = settings->n_commits + 1;
    out[LR] = (float)settings->lr;
    out[BETA1] = (float)settings->beta1;
    out[BETA2] = (float)settings->beta2;
    out[EPS] = (float)settings->eps;
    out[WEIGHT_DECAY] = (float)settings->weight_decay;
    out[CORRECTION1] = (float)dl_adam_correction(out[BETA1], t);
    out[CORRECTION2] = (float)dl_adam_correction(out[BETA2], t);
}

const dl_outer dl_outer_adamw = {
    .name = "adamw",
    .summary = "AdamW on the mean gradient, for preset data_parallel",
    .n_state = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .n_scalars = N_SCALARS,
    .scalar_names = {"lr", "beta1", "beta2", "eps", "weight_decay", "correction1", "correction2"},
    .scalars = scalars,
    .gradients = true,
    .counts = true,
    .block = block,
    .needs_tensors = true,
    .most_lr = 1,
};
