/* inner_qhadamw.c - quasi-hyperbolic AdamW (Ma, Yarats, arXiv:1810.06801, with nu2 = 1), with the
 * decoupled decay of AdamW:
 *
 *     m += (1 - b1)(g - m);  v = b2 v + (1 - b2) g^2;
 *     p -= lr ((1 - w) g + w m / (1 - b1^t)) / (sqrt(v) / sqrt(1 - b2^t) + eps)
 *
 * The gradient keeps a share 1 - w of each update, so b1 may be so close to 1 that m remembers more
 * than the H steps between two exchanges (arXiv:2510.05361). w = 1 is AdamW. */
#include "nn/cuda/inner_columns.h"
#include "nn/inner_rows.h"

#include "tensor/kernels.h"

#include <math.h>

/* The bias of m is corrected in step_size, which only its share of the update has. */
static inline DL_BODY void qhadamw_body(float *restrict p, float *restrict m, float *restrict v,
                                        const float *restrict g, size_t n,
                                        const dl_hyper *restrict h, float keep)
{
    float from_m = -h->step_size * h->momentum_weight, from_g = -h->lr * (1 - h->momentum_weight);
    float b1 = h->one_minus_beta1, b2 = h->beta2, c2 = h->one_minus_beta2;
    float root = h->root_bc2, eps = h->eps, clip = h->clip_factor;
    for (size_t i = 0; i < n; i++) {
        float x = g[i] * clip;
        m[i] += b1 * (x - m[i]);
        v[i] = b2 * v[i] + c2 * x * x;
        p[i] = p[i] * keep + (from_g * x + from_m * m[i]) / (sqrtf(v[i]) / root + eps);
    }
}
DL_KERNEL(qhadamw_update,
          (float *p, float *m, float *v, const float *g, size_t n, const dl_hyper *h, float keep),
          qhadamw_body(p, m, v, g, n, h, keep))

static void update(const dl_inner_part *a)
{
    qhadamw_update[dl_isa_chosen()](a->p, a->vectors[0], a->vectors[1], a->g, a->n, a->hyper,
                                    a->decays ? a->hyper->keep : 1.0f);
}

static size_t n_vectors(const dl_config *config)
{
    (void)config;
    return 2;
}

const dl_rule dl_rule_qhadamw = {
    .n_vectors = n_vectors,
    .vectors = {"exp_avg", "exp_avg_sq"},
    .update = {[DL_DEVICE_CPU] = update, [DL_DEVICE_CUDA] = dl_cuda_qhadamw},
};
