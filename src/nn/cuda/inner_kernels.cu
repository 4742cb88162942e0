/* inner_kernels.cu - the step of the inner optimizers on a GPU (nn/inner.c). */
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
