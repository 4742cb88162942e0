/* inner_sgd.c - SGD as torch.optim.SGD but for the decoupled decay, with momentum or without:
 *
 *     b = momentum b + g;  p -= lr b
 *
 * after p *= 1 - lr * weight_decay. Without momentum no vector is kept. */
#include "nn/cuda/inner_columns.h"
#include "nn/inner_rows.h"

#include "tensor/kernels.h"

static inline DL_BODY void sgd_body(float *restrict p, const float *restrict g, size_t n,
                                    const dl_hyper *restrict h, float keep)
{
    float lr = h->lr, clip = h->clip_factor;
    for (size_t i = 0; i < n; i++)
        p[i] = p[i] * keep - lr * (g[i] * clip);
}
DL_KERNEL(sgd_update, (float *p, const float *g, size_t n, const dl_hyper *h, float keep),
          sgd_body(p, g, n, h, keep))

static inline DL_BODY void momentum_body(float *restrict p, float *restrict b,
                                         const float *restrict g, size_t n,
                                         const dl_hyper *restrict h, float keep)
{
    float lr = h->lr, clip = h->clip_factor, mu = h->momentum;
    for (size_t i = 0; i < n; i++) {
        b[i] = mu * b[i] + g[i] * clip;
        p[i] = p[i] * keep - lr * b[i];
    }
}
DL_KERNEL(momentum_update,
          (float *p, float *b, const float *g, size_t n, const dl_hyper *h, float keep),
          momentum_body(p, b, g, n, h, keep))

static void update(const dl_inner_part *a)
{
    const dl_hyper *h = a->hyper;
    float keep = a->decays ? h->keep : 1.0f;
    if (a->vectors[0])
        momentum_update[dl_isa_chosen()](a->p, a->vectors[0], a->g, a->n, h, keep);
    else
        sgd_update[dl_isa_chosen()](a->p, a->g, a->n, h, keep);
}

static size_t n_vectors(const dl_config *config)
{
    return config->momentum > 0 ? 1 : 0;
}

const dl_rule dl_rule_sgd = {
    .n_vectors = n_vectors,
    .vectors = {"momentum_buffer"},
    .update = {[DL_DEVICE_CPU] = update, [DL_DEVICE_CUDA] = dl_cuda_sgd},
};
