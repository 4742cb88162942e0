/* movement_kernels.cu - operations of an exchange (nn/movement.h) on a GPU. Their bits are those of
 * the CPU; a NaN may be another one. */
#include "nn/cuda/kernel_arguments.h"
#include "tensor/cuda/cuda_kernel.h"

DL_GPU_KERNEL(dl_form_movement, dl_cuda_form_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    if (i < a.n) a.g[i] = a.before[i] - a.after[i];
}

/* mix 0 copies: an fma would keep a NaN of the local value, and lose the sign of a zero. */
DL_GPU_KERNEL(dl_adopt_theta, dl_cuda_adopt_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    if (i >= a.n) return;
    const float theta = a.theta[i];
    a.local[i] = a.mix == 0 ? theta : fmaf(a.mix, a.local[i] - theta, theta);
}
