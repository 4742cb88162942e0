/* inner_adamw.c - AdamW as torch.optim.AdamW (Loshchilov, Hutter, arXiv:1711.05101):
 *
 *     m += (1 - b1)(g - m);  v = b2 v + (1 - b2) g^2;
 *     p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 *
 * after p *= 1 - lr * weight_decay. t counts the steps whose gradient was finite. */
#include "nn/cuda/inner_columns.h"
#include "nn/inner_rows.h"

#include "tensor/kernels.h"

#include <math.h>

/* One walk over four arrays: the step's speed is the memory's. keep is 1 where nothing decays. */
static inline DL_BODY void adamw_body(float *restrict p, float *restrict m, float *restrict v,
                                      const float *restrict g, size_t n, const dl_hyper *restrict h,
                                      float keep)
{
    float step = -h->step_size, b1 = h->one_minus_beta1, b2 = h->beta2, c2 = h->one_minus_beta2;
    float root = h->root_bc2, eps = h->eps, clip = h->clip_factor;
    for (size_t i = 0; i < n; i++) {
        float x = g[i] * clip;
        m[i] += b1 * (x - m[i]);
        v[i] = b2 * v[i] + c2 * x * x;
        p[i] = p[i] * keep + step * (m[i] / (sqrtf(v[i]) / root + eps));
    }
}
DL_KERNEL(adamw_update,
          (float *p, float *m, float *v, const float *g, size_t n, const dl_hyper *h, float keep),
          adamw_body(p, m, v, g, n, h, keep))

static void update(const dl_inner_part *a)
{
    adamw_update[dl_isa_chosen()](a->p, a->vectors[0], a->vectors[1], a->g, a->n, a->hyper,
                                  a->decays ? a->hyper->keep : 1.0f);
}

static size_t n_vectors(const dl_config *config)
{
    (void)config;
    return 2;
}

const dl_rule dl_rule_adamw = {
    .n_vectors = n_vectors,
    .vectors = {"exp_avg", "exp_avg_sq"},
    .update = {[DL_DEVICE_CPU] = update, [DL_DEVICE_CUDA] = dl_cuda_adamw},
};
