/* qk_norm_kernels.cu - the norm of each head of queries and of keys (nn/op_qk_norm.c has the
 * formulas). The gradient of the scales is added up by chunk, and by dl_norm_weight over the
 * chunks.
 */
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/warp.cuh"

typedef dl_cuda_qk_norm_arguments qk_norm;

/* 1 / root of the mean square of a head. */
static __device__ __forceinline__ float inverse_root(const qk_norm &a, const float *x)
{
    float squares = 0;
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        squares += x[d] * x[d];
    return 1.0f / sqrtf(warp_sum(squares) / (float)a.dim + a.eps);
}

/* A warp for each head. Values have no norm, and are copied. */
DL_GPU_KERNEL(dl_qk_norm_forward, dl_cuda_qk_norm_arguments)
{
    const uint64_t all = a.heads + 2 * a.kv_heads, i = DL_WARP_INDEX / all, h = DL_WARP_INDEX % all;
    if (i >= a.positions) return;
    const float *x = a.x + DL_WARP_INDEX * a.dim, *w = h < a.heads ? a.w : a.w + a.dim;
    float *y = a.y + DL_WARP_INDEX * a.dim;
    const float r = inverse_root(a, x);
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        y[d] = h < a.heads + a.kv_heads ? x[d] * r * w[d] : x[d];
}

/* Stores r of each head for the two kernels that follow, before x is overwritten. */
DL_GPU_KERNEL(dl_qk_norm_roots, dl_cuda_qk_norm_arguments)
{
    const uint64_t n = a.heads + a.kv_heads, i = DL_WARP_INDEX / n, h = DL_WARP_INDEX % n;
    if (i >= a.positions) return;
    const float r = inverse_root(a, a.x + (i * (n + a.kv_heads) + h) * a.dim);
    if (DL_LANE == 0) a.r[DL_WARP_INDEX] = r;
}

/* dw of a chunk: a thread for each chunk of positions and element of w, over all heads that share
 * the element. */
DL_GPU_KERNEL(dl_qk_norm_partial, dl_cuda_qk_norm_arguments)
{
    const uint64_t e = DL_GPU_INDEX % (2 * a.dim), d = e % a.dim, n = a.heads + a.kv_heads;
    const uint64_t begin = DL_GPU_INDEX / (2 * a.dim) * DL_CUDA_CHUNK;
    const uint64_t first = e < a.dim ? 0 : a.heads, last = e < a.dim ? a.heads : n;
    float sum = 0;
    if (begin >= a.positions) return;
    for (uint64_t i = begin; i < begin + DL_CUDA_CHUNK && i < a.positions; i++)
        for (uint64_t h = first; h < last; h++) {
            const uint64_t at = (i * (n + a.kv_heads) + h) * a.dim + d;
            sum += a.dy[at] * a.x[at] * a.r[i * n + h];
        }
    a.partial[DL_GPU_INDEX] = sum;
}

/* A warp for each head. dx may be x. The sum over x is complete before the first write, because
 * warp_sum waits for the warp. After it a thread reads only elements that it writes itself. */
DL_GPU_KERNEL(dl_qk_norm_backward, dl_cuda_qk_norm_arguments)
{
    const uint64_t all = a.heads + 2 * a.kv_heads, i = DL_WARP_INDEX / all, h = DL_WARP_INDEX % all;
    if (i >= a.positions) return;
    const uint64_t at = DL_WARP_INDEX * a.dim, n = a.heads + a.kv_heads;
    const float *w = h < a.heads ? a.w : a.w + a.dim;
    const float r = h < n ? a.r[i * n + h] : 0;
    float dot = 0;
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        dot += a.dy[at + d] * a.x[at + d] * w[d];
    const float back = r * r * r * warp_sum(dot) / (float)a.dim;
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        a.dx[at + d] = h < n ? r * w[d] * a.dy[at + d] - back * a.x[at + d] : a.dy[at + d];
}
