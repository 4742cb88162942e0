/* model_kernels.cu - products, embedding, norm and activation. Each sum has one order, which
 * depends on sizes alone. */
#include "nn/cuda/element.cuh"
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/warp.cuh"

/* A product in squares of C. A block loads DEPTH columns of its rows of A, and DEPTH rows of its
 * columns of B, at a time. A thread adds up EACH x EACH elements of C, GRID apart. The added
 * element keeps 32 threads that store one column on 32 banks of shared memory. */
enum { SIDE = DL_CUDA_SIDE, DEPTH = 16, EACH = 4, GRID = SIDE / EACH };
static_assert(GRID * GRID == DL_GPU_THREADS, "a thread for each EACH x EACH elements");

/* Copies positions [first, first + SIDE) and sums [begin, begin + DEPTH) of one factor to shared
 * memory. Element (i, l) is from[i * along + l * deep], of n x k; beyond these it is 0. Threads
 * that follow each other read elements that are adjacent, where the factor has such. */
template <typename E>
static __device__ __forceinline__ void load_factor(float (&to)[DEPTH][SIDE + 1], const E *from,
                                                   uint64_t along, uint64_t deep, uint64_t first,
                                                   uint64_t n, uint64_t begin, uint64_t k)
{
    for (unsigned e = threadIdx.x; e < (unsigned)(SIDE * DEPTH); e += DL_GPU_THREADS) {
        const unsigned i = along == 1 ? e % SIDE : e / DEPTH, l = along == 1 ? e / SIDE : e % DEPTH;
        const bool exists = first + i < n && begin + l < k;
        to[l][i] = exists ? get(from[(first + i) * along + (begin + l) * deep]) : 0;
    }
}

/* Each element of C is added up in the order of k, whatever the squares are. */
template <typename E, typename C>
static __device__ __forceinline__ void product(const dl_cuda_product_arguments &a,
                                               float (&x)[DEPTH][SIDE + 1],
                                               float (&y)[DEPTH][SIDE + 1])
{
    const uint64_t across = (a.n + SIDE - 1) / SIDE;
    const uint64_t row = blockIdx.x / across * SIDE, column = blockIdx.x % across * SIDE;
    const unsigned down = threadIdx.x / GRID, right = threadIdx.x % GRID;
    float sum[EACH][EACH];
#pragma unroll
    for (unsigned e = 0; e < EACH * EACH; e++)
        sum[e / EACH][e % EACH] = 0;
    for (uint64_t begin = 0; begin < a.k; begin += DEPTH) {
        const unsigned n =
            a.k - begin < (uint64_t)DEPTH ? (unsigned)(a.k - begin) : (unsigned)DEPTH;
        __syncthreads(); /* the factors before have been read */
        load_factor(x, elements<E>(a.a), a.a_row, a.a_column, row, a.m, begin, a.k);
        load_factor(y, elements<E>(a.b), a.b_column, a.b_row, column, a.n, begin, a.k);
        __syncthreads();
        for (unsigned l = 0; l < n; l++)
#pragma unroll
            for (unsigned e = 0; e < EACH * EACH; e++)
                sum[e / EACH][e % EACH] =
                    fmaf(x[l][down + e / EACH * GRID], y[l][right + e % EACH * GRID],
                         sum[e / EACH][e % EACH]);
    }
#pragma unroll
    for (unsigned e = 0; e < EACH * EACH; e++) {
        const uint64_t i = row + down + e / EACH * GRID, j = column + right + e % EACH * GRID;
        if (i >= a.m || j >= a.n) continue;
        const float result = sum[e / EACH][e % EACH] + (a.bias ? a.bias[j] : 0);
        C *c = elements<C>(a.c) + i * a.n + j;
        put(c, a.add ? get(*c) + result : result);
    }
}

DL_GPU_KERNEL(dl_product, dl_cuda_product_arguments)
{
    __shared__ float x[DEPTH][SIDE + 1], y[DEPTH][SIDE + 1];
    product<float, float>(a, x, y);
}
DL_GPU_KERNEL(dl_product_bf16, dl_cuda_product_arguments)
{
    __shared__ float x[DEPTH][SIDE + 1], y[DEPTH][SIDE + 1];
    product<bf16, bf16>(a, x, y);
}
DL_GPU_KERNEL(dl_product_bf16_to_f32, dl_cuda_product_arguments)
{
    __shared__ float x[DEPTH][SIDE + 1], y[DEPTH][SIDE + 1];
    product<bf16, float>(a, x, y);
}

/* The weights that products read. A thread rounds one element. */
DL_GPU_KERNEL(dl_round_weights, dl_cuda_round_arguments)
{
    const uint64_t i = DL_GPU_INDEX;
    if (i < a.n) put((bf16 *)a.to + i, a.from[i]);
}

/* A thread for each channel, in the order of the positions. */
template <typename E>
static __device__ __forceinline__ void bias_gradient(const dl_cuda_bias_arguments &a)
{
    const uint64_t j = DL_GPU_INDEX;
    const E *dy = elements<E>(a.dy);
    if (j >= a.width) return;
    float sum = a.add ? a.db[j] : 0;
    for (uint64_t i = 0; i < a.positions; i++)
        sum += get(dy[i * a.width + j]);
    a.db[j] = sum;
}
DL_GPU_KERNELS(bias_gradient, dl_cuda_bias_arguments)

/* The host has checked that every token is a row of the table (model/model.c). */
template <typename E>
static __device__ __forceinline__ void embedding_forward(const dl_cuda_embedding_arguments &a)
{
    const uint64_t i = DL_GPU_INDEX / a.width, c = DL_GPU_INDEX % a.width;
    if (i >= a.positions) return;
    put(elements<E>(a.x) + DL_GPU_INDEX, a.table[(uint64_t)a.tokens[i] * a.width + c]);
}
DL_GPU_KERNELS(embedding_forward, dl_cuda_embedding_arguments)

/* A block of threads owns DL_CUDA_ROWS rows of the table and adds in the order of the positions. It
 * loads DL_GPU_THREADS tokens at a time; each __syncthreads separates loading from use. */
template <typename E>
static __device__ __forceinline__ void embedding_backward(const dl_cuda_embedding_arguments &a,
                                                          int32_t (&tokens)[DL_GPU_THREADS])
{
    const unsigned me = threadIdx.x;
    const E *x = elements<E>(a.x);
    const uint64_t first = (uint64_t)blockIdx.x * DL_CUDA_ROWS, last = first + DL_CUDA_ROWS;
    for (uint64_t e = me; e < DL_CUDA_ROWS * a.width && !a.add; e += DL_GPU_THREADS)
        if (first + e / a.width < a.rows) a.table[first * a.width + e] = 0;
    __syncthreads();
    for (uint64_t begin = 0; begin < a.positions; begin += DL_GPU_THREADS) {
        if (begin + me < a.positions) tokens[me] = a.tokens[begin + me];
        __syncthreads();
        for (uint64_t i = 0; i < DL_GPU_THREADS && begin + i < a.positions; i++) {
            const uint64_t row = (uint64_t)tokens[i];
            if (row < first || row >= last) continue;
            for (uint64_t c = me; c < a.width; c += DL_GPU_THREADS)
                a.table[row * a.width + c] += get(x[(begin + i) * a.width + c]);
        }
        __syncthreads();
    }
}

DL_GPU_KERNEL(dl_embedding_backward, dl_cuda_embedding_arguments)
{
    __shared__ int32_t tokens[DL_GPU_THREADS];
    embedding_backward<float>(a, tokens);
}
DL_GPU_KERNEL(dl_embedding_backward_bf16, dl_cuda_embedding_arguments)
{
    __shared__ int32_t tokens[DL_GPU_THREADS];
    embedding_backward<bf16>(a, tokens);
}

/* nn/op_add_norm.c has the formulas. A warp for each position. */
template <typename E>
static __device__ __forceinline__ void norm_forward(const dl_cuda_norm_arguments &a)
{
    const uint64_t i = DL_WARP_INDEX, at = i * a.width;
    if (i >= a.positions) return;
    const E *x = elements<E>(a.x) + at, *delta = a.delta ? elements<E>(a.delta) + at : NULL;
    E *s = elements<E>(a.s) + at, *y = elements<E>(a.y) + at;
    float squares = 0;
    for (uint64_t c = DL_LANE; c < a.width; c += DL_WARP) {
        if (delta) put(s + c, get(x[c]) + get(delta[c]));
        squares += get(s[c]) * get(s[c]);
    }
    const float r = 1.0f / sqrtf(warp_sum(squares) / (float)a.width + a.eps);
    for (uint64_t c = DL_LANE; c < a.width; c += DL_WARP)
        put(y + c, get(s[c]) * r * a.weight[c]);
    if (DL_LANE == 0) a.r[i] = r;
}
DL_GPU_KERNELS(norm_forward, dl_cuda_norm_arguments)

/* ds of one position by one warp: r (w dy - s r^2 mean(w dy s)), added where ds_adds. */
template <typename E>
static __device__ __forceinline__ void norm_backward(const dl_cuda_norm_arguments &a)
{
    const uint64_t i = DL_WARP_INDEX, at = i * a.width;
    if (i >= a.positions) return;
    const float r = a.r[i];
    const E *s = elements<E>(a.s) + at, *dy = elements<E>(a.dy) + at;
    E *ds = elements<E>(a.ds) + at;
    float dot = 0;
    for (uint64_t c = DL_LANE; c < a.width; c += DL_WARP)
        dot += get(dy[c]) * get(s[c]) * a.weight[c];
    const float back = r * r * r * warp_sum(dot) / (float)a.width;
    for (uint64_t c = DL_LANE; c < a.width; c += DL_WARP) {
        const float before = a.ds_adds ? get(ds[c]) : 0;
        put(ds + c, before + r * a.weight[c] * get(dy[c]) - back * get(s[c]));
    }
}
DL_GPU_KERNELS(norm_backward, dl_cuda_norm_arguments)

/* The weight's gradient: a thread for each channel and chunk of positions, then for each channel.
 */
template <typename E>
static __device__ __forceinline__ void norm_partial(const dl_cuda_norm_arguments &a)
{
    const uint64_t chunk = DL_GPU_INDEX / a.width, c = DL_GPU_INDEX % a.width;
    const uint64_t begin = chunk * DL_CUDA_CHUNK;
    const E *s = elements<E>(a.s), *dy = elements<E>(a.dy);
    float sum = 0;
    if (begin >= a.positions) return;
    for (uint64_t i = begin; i < begin + DL_CUDA_CHUNK && i < a.positions; i++)
        sum += get(dy[i * a.width + c]) * get(s[i * a.width + c]) * a.r[i];
    a.partial[DL_GPU_INDEX] = sum;
}
DL_GPU_KERNELS(norm_partial, dl_cuda_norm_arguments)

/* Adds the chunks' sums in their order. dl_qk_norm uses it as well, with its own chunks. */
DL_GPU_KERNEL(dl_norm_weight, dl_cuda_norm_arguments)
{
    const uint64_t c = DL_GPU_INDEX;
    if (c >= a.width) return;
    float sum = a.dw_adds ? a.dw[c] : 0;
    for (uint64_t chunk = 0; chunk * DL_CUDA_CHUNK < a.positions; chunk++)
        sum += a.partial[chunk * a.width + c];
    a.dw[c] = sum;
}

/* nn/op_swiglu.c has the formulas. A thread for each element of y. An infinite e^-g gives -0. */
template <typename E>
static __device__ __forceinline__ void swiglu_forward(const dl_cuda_swiglu_arguments &a)
{
    const uint64_t i = DL_GPU_INDEX / a.width, c = DL_GPU_INDEX % a.width;
    if (i >= a.positions) return;
    const E *x = elements<E>(a.x) + 2 * i * a.width + c;
    const float g = get(x[0]), u = get(x[a.width]);
    put(elements<E>(a.y) + DL_GPU_INDEX, g / (1.0f + expf(-g)) * u);
}
DL_GPU_KERNELS(swiglu_forward, dl_cuda_swiglu_arguments)

/* du = dy g s and dg = dy u s (1 + g (1 - s)), written over u and g. */
template <typename E>
static __device__ __forceinline__ void swiglu_backward(const dl_cuda_swiglu_arguments &a)
{
    const uint64_t i = DL_GPU_INDEX / a.width, c = DL_GPU_INDEX % a.width;
    if (i >= a.positions) return;
    E *x = elements<E>(a.x) + 2 * i * a.width + c;
    const float g = get(x[0]), u = get(x[a.width]), dy = get(elements<E>(a.dy)[DL_GPU_INDEX]);
    const float s = 1.0f / (1.0f + expf(-g)), silu = g * s;
    put(x, dy * u * (s + silu * (1.0f - s)));
    put(x + a.width, dy * silu);
}
DL_GPU_KERNELS(swiglu_backward, dl_cuda_swiglu_arguments)
