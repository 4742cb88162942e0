/* movement_cuda.c - starts the kernels of movement_kernels.cu and encode_kernels.cu (declared in
 * movement_columns.h). */
#include "nn/cuda/movement_columns.h"

#include "nn/cuda/kernel_arguments.h"
#include "nn/gradient.h"
#include "tensor/cuda/backend_cuda.h"
#include "tensor/cuda/cuda_kernel.h"

_Static_assert((int)DL_CODEC_BLOCK == (int)DL_GPU_THREADS, "a block of threads encodes a block");

void dl_cuda_form(dl_backend *backend, float *g, const float *before, const float *after, size_t n)
{
    const dl_cuda_form_arguments a = {g, before, after, n};
    dl_backend_cuda_launch(backend, &(dl_cuda_launch){"dl_form_movement", n, &a, sizeof a});
}

void dl_cuda_squares(dl_backend *backend, double *squares, const float *g, size_t n)
{
    const dl_cuda_squares_arguments a = {g, n, squares};
    const size_t threads = dl_gradient_blocks(n) * DL_CUDA_LANES;
    dl_backend_cuda_launch(backend, &(dl_cuda_launch){"dl_squares", threads, &a, sizeof a});
}

void dl_cuda_adopt(dl_backend *backend, float *local, const float *theta, float mix, size_t n)
{
    const dl_cuda_adopt_arguments a = {.local = local, .theta = theta, .n = n, .mix = mix};
    if (mix == 1) return;
    dl_backend_cuda_launch(backend, &(dl_cuda_launch){"dl_adopt_theta", n, &a, sizeof a});
}

void dl_cuda_encode(dl_backend *backend, const dl_encoding *to, const float *x, size_t n)
{
    const dl_cuda_encode_arguments a = {.codes = (uint32_t *)(void *)to->codes,
                                        .scales = (float *)(void *)to->scales,
                                        .x = x,
                                        .n = n,
                                        .bits = (int)to->kind->bits};
    dl_backend_cuda_launch(backend, &(dl_cuda_launch){"dl_encode_integers", n, &a, sizeof a});
}
