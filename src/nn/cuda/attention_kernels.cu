/* attention_kernels.cu - causal attention with rotary positions (nn/op_attention.c has the
 * formulas).
 *
 * A warp for each query, 32 keys at a time, one a lane; the probabilities are made again in the
 * backward pass from logsumexp. dq is added over the keys by the query's warp, dk and dv over the
 * queries by the key's, so every sum has one order. These kernels are the reference for faster
 * ones. */
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/warp.cuh"

typedef dl_cuda_attention_arguments attention;

/* Keys of one round: the last one may have fewer than 32. */
static __device__ __forceinline__ uint64_t at_most_a_warp(uint64_t n)
{
    return n < (uint64_t)DL_WARP ? n : (uint64_t)DL_WARP;
}

static __device__ __forceinline__ float dot(const float *x, const float *y, uint64_t n)
{
    float sum = 0;
    for (uint64_t d = 0; d < n; d++)
        sum = fmaf(x[d], y[d], sum);
    return sum;
}

/* Below, i and j are positions of the whole batch, h a head of queries and kv one of keys. */
static __device__ __forceinline__ const float *query_at(const attention &a, uint64_t i, uint64_t h)
{
    return a.turned + (i * (a.heads + a.kv_heads) + h) * a.dim;
}

static __device__ __forceinline__ const float *key_at(const attention &a, uint64_t i, uint64_t kv)
{
    return a.turned + (i * (a.heads + a.kv_heads) + a.heads + kv) * a.dim;
}

/* Elements from the beginning of qkv to head h of q, k, v, in that order. */
static __device__ __forceinline__ uint64_t place(const attention &a, uint64_t i, uint64_t h)
{
    return (i * (a.heads + 2 * a.kv_heads) + h) * a.dim;
}

static __device__ __forceinline__ const float *value_at(const attention &a, uint64_t i, uint64_t kv)
{
    return a.qkv + place(a, i, a.heads + a.kv_heads + kv);
}

static __device__ __forceinline__ uint64_t out_at(const attention &a, uint64_t i, uint64_t h)
{
    return (i * a.heads + h) * a.dim;
}

/* A thread for each pair of a query's or key's elements. */
DL_GPU_KERNEL(dl_attention_turn, dl_cuda_attention_arguments)
{
    const uint64_t half = a.dim / 2, d = DL_GPU_INDEX % half, item = DL_GPU_INDEX / half;
    const uint64_t heads = a.heads + a.kv_heads, i = item / heads, h = item % heads;
    if (i >= a.rows * a.length) return;
    const float c = a.cosine[i % a.length * half + d], s = a.sine[i % a.length * half + d];
    const float scale = h < a.heads ? a.scale : 1.0f;
    const float *x = a.qkv + place(a, i, h);
    float *y = a.turned + item * a.dim;
    y[d] = (x[d] * c - x[d + half] * s) * scale;
    y[d + half] = (x[d + half] * c + x[d] * s) * scale;
}

/* Back: the gradient of what was turned becomes that of q or k. */
static __device__ void turn_back(const attention &a, float *x, uint64_t t, float scale)
{
    const uint64_t half = a.dim / 2;
    __syncwarp();
    for (uint64_t d = DL_LANE; d < half; d += DL_WARP) {
        const float c = a.cosine[t * half + d], s = a.sine[t * half + d];
        const float low = x[d] * scale, high = x[d + half] * scale;
        x[d] = low * c + high * s;
        x[d + half] = high * c - low * s;
    }
}

/* A warp for each query and head, by the online softmax: out is kept up to a factor exp(-top), and
 * is multiplied by exp(old top - top) when the largest score grows. */
DL_GPU_KERNEL(dl_attention_forward, dl_cuda_attention_arguments)
{
    __shared__ float shares[DL_GPU_THREADS];
    const uint64_t i = DL_WARP_INDEX / a.heads, h = DL_WARP_INDEX % a.heads;
    if (i >= a.rows * a.length) return;
    const uint64_t t = i % a.length, first = i - t, kv = h / (a.heads / a.kv_heads);
    float *share = shares + threadIdx.x / DL_WARP * DL_WARP, *out = a.out + out_at(a, i, h);
    float top = -INFINITY, sum = 0;
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        out[d] = 0;
    for (uint64_t begin = 0; begin <= t; begin += DL_WARP) {
        const uint64_t n = at_most_a_warp(t + 1 - begin), j = begin + DL_LANE;
        const float score =
            j <= t ? dot(query_at(a, i, h), key_at(a, first + j, kv), a.dim) : -INFINITY;
        const float most = fmaxf(top, warp_max(score)), old = expf(top - most);
        const float p = j <= t ? expf(score - most) : 0;
        sum = sum * old + warp_sum(p);
        top = most;
        share[DL_LANE] = p;
        __syncwarp();
        for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP) {
            float y = out[d] * old;
            for (uint64_t k = 0; k < n; k++)
                y = fmaf(share[k], value_at(a, first + begin + k, kv)[d], y);
            out[d] = y;
        }
        __syncwarp();
    }
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        out[d] /= sum;
    if (DL_LANE == 0) a.lse[(first * a.heads + h * a.length) + t] = top + logf(sum);
}

/* Returns dS = P (dO V^T - sum(dO O)) of query i and key j, both of one sequence; *p receives the
 * probability P = exp(q k - lse). */
static __device__ __forceinline__ float score_gradient(const attention &a, float *p, uint64_t i,
                                                       uint64_t j, uint64_t h)
{
    const uint64_t t = i % a.length, kv = h / (a.heads / a.kv_heads), at = out_at(a, i, h);
    const float lse = a.lse[(i - t) * a.heads + h * a.length + t];
    *p = expf(dot(query_at(a, i, h), key_at(a, j, kv), a.dim) - lse);
    const float dp = dot(a.dout + at, value_at(a, j, kv), a.dim);
    return *p * (dp - dot(a.dout + at, a.out + at, a.dim));
}

/* dQ: a warp for each query and head, over the keys up to it. */
DL_GPU_KERNEL(dl_attention_queries, dl_cuda_attention_arguments)
{
    __shared__ float gradients[DL_GPU_THREADS];
    const uint64_t i = DL_WARP_INDEX / a.heads, h = DL_WARP_INDEX % a.heads;
    if (i >= a.rows * a.length) return;
    const uint64_t t = i % a.length, first = i - t, kv = h / (a.heads / a.kv_heads);
    float *ds = gradients + threadIdx.x / DL_WARP * DL_WARP, *dq = a.dqkv + place(a, i, h), p;
    for (uint64_t begin = 0; begin <= t; begin += DL_WARP) {
        const uint64_t n = at_most_a_warp(t + 1 - begin), j = begin + DL_LANE;
        ds[DL_LANE] = j <= t ? score_gradient(a, &p, i, first + j, h) : 0;
        __syncwarp();
        for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP) {
            float y = begin ? dq[d] : 0;
            for (uint64_t k = 0; k < n; k++)
                y = fmaf(ds[k], key_at(a, first + begin + k, kv)[d], y);
            dq[d] = y;
        }
        __syncwarp();
    }
    turn_back(a, dq, t, a.scale);
}

/* A warp for each key: the queries after it, of all heads that use it. */
DL_GPU_KERNEL(dl_attention_keys, dl_cuda_attention_arguments)
{
    __shared__ float shares[DL_GPU_THREADS], gradients[DL_GPU_THREADS];
    const uint64_t j = DL_WARP_INDEX / a.kv_heads, kv = DL_WARP_INDEX % a.kv_heads;
    if (j >= a.rows * a.length) return;
    const uint64_t t = j % a.length, end = j - t + a.length, group = a.heads / a.kv_heads;
    const unsigned warp = threadIdx.x / DL_WARP * DL_WARP;
    float *share = shares + warp, *ds = gradients + warp;
    float *dk = a.dqkv + place(a, j, a.heads + kv), *dv = dk + a.kv_heads * a.dim;
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        dk[d] = dv[d] = 0;
    for (uint64_t h = kv * group; h < (kv + 1) * group; h++)
        for (uint64_t begin = j; begin < end; begin += DL_WARP) {
            const uint64_t n = at_most_a_warp(end - begin), i = begin + DL_LANE;
            float p = 0, gradient = 0;
            if (i < end) gradient = score_gradient(a, &p, i, j, h);
            share[DL_LANE] = p;
            ds[DL_LANE] = gradient;
            __syncwarp();
            for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
                for (uint64_t k = 0; k < n; k++) {
                    dv[d] = fmaf(share[k], a.dout[out_at(a, begin + k, h) + d], dv[d]);
                    dk[d] = fmaf(ds[k], query_at(a, begin + k, h)[d], dk[d]);
                }
            __syncwarp();
        }
    turn_back(a, dk, t, 1.0f);
}
