/* add_cuda.h - sums of the gradients of several GPUs. */
#ifndef DL_NN_CUDA_ADD_CUDA_H
#define DL_NN_CUDA_ADD_CUDA_H

#include "tensor/backend.h"

/* dl_cuda_add_beside starts to += from, f32[n] in device memory, on the second stream of a GPU
 * (dl_group_options). */
void dl_cuda_add_beside(dl_backend *backend, float *to, const float *from, size_t n);

#endif
