/* add_cuda.c - see add_cuda.h. */
#include "nn/cuda/add_cuda.h"

#include "nn/cuda/kernel_arguments.h"
#include "tensor/cuda/backend_cuda.h"

/* Products by 1 are exact, so each element is one addition. */
void dl_cuda_add_beside(dl_backend *backend, float *to, const float *from, size_t n)
{
    const dl_cuda_blend_arguments a = {.y = to, .x = from, .n = n, .a = 1, .b = 1};
    dl_backend_cuda_launch_beside(backend, &(dl_cuda_launch){"dl_muon_blend", a.n, &a, sizeof a});
}
