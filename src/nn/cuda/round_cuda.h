/* round_cuda.h - the weights in bf16, for products on a GPU. */
#ifndef DL_NN_CUDA_ROUND_CUDA_H
#define DL_NN_CUDA_ROUND_CUDA_H

#include "tensor/backend.h"
#include <stdint.h>

/* dl_cuda_round_weights queues to = from, bf16[n] in device memory, rounded to nearest, ties to
 * even. */
void dl_cuda_round_weights(dl_backend *backend, uint16_t *to, const float *from, size_t n);

#endif
