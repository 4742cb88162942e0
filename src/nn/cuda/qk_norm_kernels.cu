/* qk_norm_kernels.cu - the norm of each head of queries and of keys (nn/op_qk_norm.c has the
 * formulas). The gradient of the scales is added up by chunk, and by dl_norm_weight over the
 * chunks.
 */
#include "nn/cuda/element.cuh"
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/warp.cuh"

typedef dl_cuda_qk_norm_arguments qk_norm;

/* 1 / root of the mean square of a head. */
template <typename E>
static __device__ __forceinline__ float inverse_root(const qk_norm &a, const E *x)
{
    float squares = 0;
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        squares += get(x[d]) * get(x[d]);
    return 1.0f / sqrtf(warp_sum(squares) / (float)a.dim + a.eps);
}

/* A warp for each head. Values have no norm, and are copied. */
template <typename E>
static __device__ __forceinline__ void qk_norm_forward(const dl_cuda_qk_norm_arguments &a)
{
    const uint64_t all = a.heads + 2 * a.kv_heads, i = DL_WARP_INDEX / all, h = DL_WARP_INDEX % all;
    if (i >= a.positions) return;
    const E *x = elements<E>(a.x) + DL_WARP_INDEX * a.dim;
    E *y = elements<E>(a.y) + DL_WARP_INDEX * a.dim;
    const float *w = h < a.heads ? a.w : a.w + a.dim;
    const float r = inverse_root(a, x);
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        put(y + d, h < a.heads + a.kv_heads ? get(x[d]) * r * w[d] : get(x[d]));
}
DL_GPU_KERNELS(qk_norm_forward, dl_cuda_qk_norm_arguments)

/* Stores r of each head for the two kernels that follow, before x is overwritten. */
template <typename E>
static __device__ __forceinline__ void qk_norm_roots(const dl_cuda_qk_norm_arguments &a)
{
    const uint64_t n = a.heads + a.kv_heads, i = DL_WARP_INDEX / n, h = DL_WARP_INDEX % n;
    if (i >= a.positions) return;
    const float r = inverse_root(a, elements<E>(a.x) + (i * (n + a.kv_heads) + h) * a.dim);
    if (DL_LANE == 0) a.r[DL_WARP_INDEX] = r;
}
DL_GPU_KERNELS(qk_norm_roots, dl_cuda_qk_norm_arguments)

/* dw of a chunk: a thread for each chunk of positions and element of w, over all heads that share
 * the element. */
template <typename E>
static __device__ __forceinline__ void qk_norm_partial(const dl_cuda_qk_norm_arguments &a)
{
    const uint64_t e = DL_GPU_INDEX % (2 * a.dim), d = e % a.dim, n = a.heads + a.kv_heads;
    const uint64_t begin = DL_GPU_INDEX / (2 * a.dim) * DL_CUDA_CHUNK;
    const uint64_t first = e < a.dim ? 0 : a.heads, last = e < a.dim ? a.heads : n;
    const E *x = elements<E>(a.x), *dy = elements<E>(a.dy);
    float sum = 0;
    if (begin >= a.positions) return;
    for (uint64_t i = begin; i < begin + DL_CUDA_CHUNK && i < a.positions; i++)
        for (uint64_t h = first; h < last; h++) {
            const uint64_t at = (i * (n + a.kv_heads) + h) * a.dim + d;
            sum += get(dy[at]) * get(x[at]) * a.r[i * n + h];
        }
    a.partial[DL_GPU_INDEX] = sum;
}
DL_GPU_KERNELS(qk_norm_partial, dl_cuda_qk_norm_arguments)

/* A warp for each head. dx may be x. The sum over x is complete before the first write, because
 * warp_sum waits for the warp. After it a thread reads only elements that it writes itself. */
template <typename E>
static __device__ __forceinline__ void qk_norm_backward(const dl_cuda_qk_norm_arguments &a)
{
    const uint64_t all = a.heads + 2 * a.kv_heads, i = DL_WARP_INDEX / all, h = DL_WARP_INDEX % all;
    if (i >= a.positions) return;
    const uint64_t at = DL_WARP_INDEX * a.dim, n = a.heads + a.kv_heads;
    const E *x = elements<E>(a.x) + at, *dy = elements<E>(a.dy) + at;
    E *dx = elements<E>(a.dx) + at;
    const float *w = h < a.heads ? a.w : a.w + a.dim;
    const float r = h < n ? a.r[i * n + h] : 0;
    float dot = 0;
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        dot += get(dy[d]) * get(x[d]) * w[d];
    const float back = r * r * r * warp_sum(dot) / (float)a.dim;
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        put(dx + d, h < n ? r * w[d] * get(dy[d]) - back * get(x[d]) : get(dy[d]));
}
DL_GPU_KERNELS(qk_norm_backward, dl_cuda_qk_norm_arguments)
