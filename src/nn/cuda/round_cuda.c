/* round_cuda.c - see round_cuda.h. */
#include "nn/cuda/round_cuda.h"

#include "nn/cuda/kernel_arguments.h"
#include "tensor/cuda/backend_cuda.h"

void dl_cuda_round_weights(dl_backend *backend, uint16_t *to, const float *from, size_t n)
{
    const dl_cuda_round_arguments a = {to, from, n};
    dl_backend_cuda_launch(backend, &(dl_cuda_launch){"dl_round_weights", a.n, &a, sizeof a});
}
