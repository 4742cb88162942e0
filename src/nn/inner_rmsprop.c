/* inner_rmsprop.c - RMSprop as torch.optim.RMSprop (Hinton 2012, lecture 6e; centered: Graves,
 * arXiv:1308.0850), but for the decoupled decay:
 *
 *     v = a v + (1 - a) g^2;  m = m + (1 - a)(g - m);  x = g / (sqrt(v - m^2) + eps)
 *     b = momentum b + x;  p -= lr b
 *
 * after p *= 1 - lr * weight_decay, where a is parameters.optimizer.alpha. Without `centered` m is
 * 0 and not kept, and without momentum b is x. */
#include "nn/cuda/inner_columns.h"
#include "nn/inner_rows.h"

#include "tensor/kernels.h"

#include <math.h>

enum { SQUARES, BUFFER, MEAN }; /* vectors; MEAN is kept with BUFFER only */

/* `buffered` and `centered` are constants of each kernel. The difference of v and m^2 is a
 * variance, which rounding may make negative. */
static inline DL_BODY void rmsprop_body(float *restrict p, float *restrict v, float *restrict b,
                                        float *restrict m, const float *restrict g, size_t n,
                                        const dl_hyper *restrict h, float keep, bool buffered,
                                        bool centered)
{
    float lr = h->lr, clip = h->clip_factor, a = h->alpha, rest = h->one_minus_alpha;
    float mu = h->momentum, eps = h->eps;
    for (size_t i = 0; i < n; i++) {
        float x = g[i] * clip;
        v[i] = a * v[i] + rest * x * x;
        float variance = v[i];
        if (centered) {
            m[i] += rest * (x - m[i]);
            variance = fmaxf(variance - m[i] * m[i], 0.0f);
        }
        x /= sqrtf(variance) + eps;
        if (buffered) b[i] = x = mu * b[i] + x;
        p[i] = p[i] * keep - lr * x;
    }
}
DL_KERNEL(plain_update,
          (float *p, float *v, const float *g, size_t n, const dl_hyper *h, float keep),
          rmsprop_body(p, v, NULL, NULL, g, n, h, keep, false, false))
DL_KERNEL(momentum_update,
          (float *p, float *v, float *b, const float *g, size_t n, const dl_hyper *h, float keep),
          rmsprop_body(p, v, b, NULL, g, n, h, keep, true, false))
DL_KERNEL(centered_update,
          (float *p, float *v, float *b, float *m, const float *g, size_t n, const dl_hyper *h,
           float keep),
          rmsprop_body(p, v, b, m, g, n, h, keep, true, true))

static void update(const dl_inner_part *a)
{
    const dl_hyper *h = a->hyper;
    const dl_isa isa = dl_isa_chosen();
    const float keep = a->decays ? h->keep : 1.0f;
    float *const *v = a->vectors;
    if (v[MEAN])
        centered_update[isa](a->p, v[SQUARES], v[BUFFER], v[MEAN], a->g, a->n, h, keep);
    else if (v[BUFFER])
        momentum_update[isa](a->p, v[SQUARES], v[BUFFER], a->g, a->n, h, keep);
    else
        plain_update[isa](a->p, v[SQUARES], a->g, a->n, h, keep);
}

/* A vector's name is that of its number, so a centered rule keeps a buffer, also of momentum 0. */
static size_t n_vectors(const dl_config *config)
{
    if (config->rms_centered) return 3;
    return config->momentum > 0 ? 2 : 1;
}

const dl_rule dl_rule_rmsprop = {
    .n_vectors = n_vectors,
    .vectors = {[SQUARES] = "square_avg", [BUFFER] = "momentum_buffer", [MEAN] = "grad_avg"},
    .update = {[DL_DEVICE_CPU] = update, [DL_DEVICE_CUDA] = dl_cuda_rmsprop},
};
