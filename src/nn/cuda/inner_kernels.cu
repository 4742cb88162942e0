/* inner_kernels.cu - the step of the inner optimizers on a GPU (nn/inner.c). A thread updates one
 * element. Each kernel reads the verdict, because the host does not wait for it: after a gradient
 * that is not finite none writes a parameter or a moment. */
#include "nn/cuda/kernel_arguments.h"
#include "tensor/cuda/cuda_kernel.h"

DL_GPU_KERNEL(dl_hyper_of_step, dl_cuda_hyper_arguments)
{
    if (threadIdx.x == 0 && !a.verdict->skipped) dl_hyper_fill(a.hyper, &a.options, a.verdict);
}

/* nn/inner_adamw.c has the formula. */
DL_GPU_KERNEL(dl_adamw, dl_cuda_adamw_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    const dl_hyper *h = a.hyper;
    if (i >= a.n || a.verdict->skipped) return;
    const float keep = a.decays ? h->keep : 1.0f, x = a.g[i] * h->clip_factor;
    const float m = a.m[i] + h->one_minus_beta1 * (x - a.m[i]);
    const float v = h->beta2 * a.v[i] + h->one_minus_beta2 * x * x;
    a.m[i] = m;
    a.v[i] = v;
    a.p[i] = a.p[i] * keep - h->step_size * (m / (sqrtf(v) / h->root_bc2 + h->eps));
}

/* nn/inner_sgd.c has the formula. */
DL_GPU_KERNEL(dl_sgd, dl_cuda_sgd_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    const dl_hyper *h = a.hyper;
    if (i >= a.n || a.verdict->skipped) return;
    float step = a.g[i] * h->clip_factor;
    if (a.momentum) a.momentum[i] = step = h->momentum * a.momentum[i] + step;
    a.p[i] = a.p[i] * (a.decays ? h->keep : 1.0f) - h->lr * step;
}

/* nn/inner_rmsprop.c has the formula. */
DL_GPU_KERNEL(dl_rmsprop, dl_cuda_rmsprop_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    const dl_hyper *h = a.hyper;
    if (i >= a.n || a.verdict->skipped) return;
    float step = a.g[i] * h->clip_factor;
    const float squares = h->alpha * a.squares[i] + h->one_minus_alpha * step * step;
    float variance = squares;
    a.squares[i] = squares;
    if (a.mean) {
        const float mean = a.mean[i] + h->one_minus_alpha * (step - a.mean[i]);
        a.mean[i] = mean;
        variance = fmaxf(squares - mean * mean, 0.0f);
    }
    step /= sqrtf(variance) + h->eps;
    if (a.momentum) a.momentum[i] = step = h->momentum * a.momentum[i] + step;
    a.p[i] = a.p[i] * (a.decays ? h->keep : 1.0f) - h->lr * step;
}

/* nn/inner_qhadamw.c has the formula. */
DL_GPU_KERNEL(dl_qhadamw, dl_cuda_adamw_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    const dl_hyper *h = a.hyper;
    if (i >= a.n || a.verdict->skipped) return;
    const float keep = a.decays ? h->keep : 1.0f, x = a.g[i] * h->clip_factor;
    const float from_m = h->step_size * h->momentum_weight;
    const float from_g = h->lr * (1.0f - h->momentum_weight);
    const float m = a.m[i] + h->one_minus_beta1 * (x - a.m[i]);
    const float v = h->beta2 * a.v[i] + h->one_minus_beta2 * x * x;
    a.m[i] = m;
    a.v[i] = v;
    a.p[i] = a.p[i] * keep - (from_g * x + from_m * m) / (sqrtf(v) / h->root_bc2 + h->eps);
}

/* nn/inner_muon.c has the formulas. After a skipped step u is not written, and not used. */
DL_GPU_KERNEL(dl_muon_momentum, dl_cuda_muon_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    const dl_hyper *h = a.hyper;
    if (i >= a.n || a.verdict->skipped) return;
    const float mu = h->muon_momentum, rest = 1.0f - mu, x = a.g[i] * h->clip_factor;
    const float m = mu * a.momentum[i] + rest * x;
    a.momentum[i] = m;
    a.u[i] = h->muon_nesterov ? mu * m + rest * x : m;
}

/* One thread, in the order of the blocks. */
DL_GPU_KERNEL(dl_muon_inverse, dl_cuda_inverse_arguments)
{
    double sum = 0;
    if (DL_GPU_INDEX != 0) return;
    for (uint64_t i = 0; i < a.n; i++)
        sum += a.squares[i];
    *a.out = (float)(1.0 / fmax(sqrt(sum), (double)a.eps));
}

/* With b = 0 the old y is not read: it may be uninitialized, and 0 times a NaN is a NaN. */
DL_GPU_KERNEL(dl_muon_blend, dl_cuda_blend_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    if (i >= a.n) return;
    const float x = (a.factor ? a.a * *a.factor : a.a) * a.x[i];
    a.y[i] = a.b != 0.0f ? x + a.b * a.y[i] : x;
}

/* p = (1 - lr wd) p - lr scale X; the scale is .2 sqrt(max(rows, columns)). */
DL_GPU_KERNEL(dl_muon_apply, dl_cuda_apply_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    if (i >= a.n || a.verdict->skipped) return;
    a.p[i] = a.hyper->muon_keep * a.p[i] - a.hyper->muon_lr * a.scale * a.x[i];
}
