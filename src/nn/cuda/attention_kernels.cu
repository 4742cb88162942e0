/* attention_kernels.cu - causal attention with rotary positions in tiles (nn/op_attention.c has the
 * formulas), after FlashAttention-2 (Dao 2023, arXiv:2307.08691).
 *
 * A block owns a few rows of one sequence and head: queries, or keys in dl_attention_keys. It reads
 * the other side in tiles of 32 columns. A warp computes the scores of its rows with all columns of
 * the tile, a lane those of one column. Scores exist in registers and in shared memory only, and
 * the backward pass makes them again from logsumexp.
 *
 * The elements of a head are cut into slices of 64 pairs (d, d + dim / 2), which a rotation turns
 * together. Heads of up to 128 elements have one slice. In a longer head a block computes its
 * scores over all slices and writes one slice of the result. It takes its own slice last, so that
 * the tile in shared memory is the one that the next product needs.
 *
 * dq is added over the keys by the queries' block, dk and dv over the queries by the keys' block.
 * Every sum has one order, so a launch gives the same bits each time. */
#include "nn/cuda/element.cuh"
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/warp.cuh"

typedef dl_cuda_attention_arguments attention;

/* A tile's row has one element more than a slice: lanes that read one column of 32 rows then use 32
 * banks of shared memory. */
enum { TILE = DL_WARP, PAIRS = DL_CUDA_PAIRS, WIDTH = 2 * PAIRS, STRIDE = WIDTH + 1 };
enum { PARTS = WIDTH / DL_WARP }; /* elements of a slice's row for each lane */

/* Rows of a block, and of each of its warps. The backward kernels keep two arrays of rows in shared
 * memory, of which a block has 48 KiB. */
enum { FORWARD_ROWS = DL_CUDA_FORWARD_ROWS, BACKWARD_ROWS = DL_CUDA_BACKWARD_ROWS };
enum { FORWARD_EACH = FORWARD_ROWS / DL_WARPS, BACKWARD_EACH = BACKWARD_ROWS / DL_WARPS };
static_assert(PARTS == 4 && FORWARD_ROWS % DL_WARPS == 0 && BACKWARD_ROWS % DL_WARPS == 0,
              "whole warps");
static_assert(FORWARD_ROWS % TILE == 0 && TILE % BACKWARD_ROWS == 0,
              "a block's rows are in one tile");

#define DL_WARP_OF_BLOCK (threadIdx.x / DL_WARP)

/* ---- the work of a block */

typedef struct work {
    uint64_t first;         /* position in the batch at which the sequence begins */
    uint64_t row;           /* first row of the block, as a position in the sequence */
    uint64_t h;             /* head, of queries or of keys */
    unsigned slice, slices; /* the block's own slice, and their number */
} work;

/* Blocks are in the order [sequence][head][rows][slice]. */
static __device__ __forceinline__ work work_of(const attention &a, uint64_t heads, uint64_t rows)
{
    const uint64_t slices = (a.dim / 2 + PAIRS - 1) / PAIRS, blocks = (a.length + rows - 1) / rows;
    const uint64_t head = blockIdx.x / slices / blocks;
    work w;
    w.first = head / heads * a.length;
    w.row = blockIdx.x / slices % blocks * rows;
    w.h = head % heads;
    w.slice = (unsigned)(blockIdx.x % slices);
    w.slices = (unsigned)slices;
    return w;
}

static __device__ __forceinline__ unsigned pairs_of(const attention &a, unsigned slice)
{
    const uint64_t left = a.dim / 2 - (uint64_t)slice * PAIRS;
    return left < (uint64_t)PAIRS ? (unsigned)left : (unsigned)PAIRS;
}

/* One head of one sequence, of q, k, v or dO. */
template <typename E> struct matrix {
    const E *x;      /* its position 0 */
    uint64_t stride; /* elements from position to position */
    float scale;
    bool turned; /* each row is rotated by its position when it is loaded */
};

/* Elements from the beginning of qkv to head h of q, k, v, in that order. */
static __device__ __forceinline__ uint64_t place(const attention &a, uint64_t i, uint64_t h)
{
    return (i * (a.heads + 2 * a.kv_heads) + h) * a.dim;
}

template <typename E>
static __device__ __forceinline__ matrix<E> queries_of(const attention &a, uint64_t first,
                                                       uint64_t h)
{
    return matrix<E>{elements<E>(a.qkv) + place(a, first, h), place(a, 1, 0), a.scale, true};
}

template <typename E>
static __device__ __forceinline__ matrix<E> keys_of(const attention &a, uint64_t first, uint64_t kv)
{
    return matrix<E>{elements<E>(a.qkv) + place(a, first, a.heads + kv), place(a, 1, 0), 1, true};
}

template <typename E>
static __device__ __forceinline__ matrix<E> values_of(const attention &a, uint64_t first,
                                                      uint64_t kv)
{
    return matrix<E>{elements<E>(a.qkv) + place(a, first, a.heads + a.kv_heads + kv),
                     place(a, 1, 0), 1, false};
}

template <typename E>
static __device__ __forceinline__ matrix<E> douts_of(const attention &a, uint64_t first, uint64_t h)
{
    return matrix<E>{elements<E>(a.dout) + (first * a.heads + h) * a.dim, a.heads * a.dim, 1,
                     false};
}

/* Place of a query's logsumexp and delta, both f32[rows][heads][length]. */
static __device__ __forceinline__ uint64_t sum_at(const attention &a, uint64_t first, uint64_t h,
                                                  uint64_t t)
{
    return first * a.heads + h * a.length + t;
}

/* ---- tiles. All threads of a block call these. */

/* Copies one slice of N rows from `row` on to shared memory. Rows after the sequence's end are 0.
 * Elements after the slice's pairs keep what they had, and nothing that is stored depends on them.
 */
template <unsigned N, unsigned COLUMNS, typename E>
static __device__ __forceinline__ void load(float (&to)[N][COLUMNS], const attention &a,
                                            const matrix<E> &x, uint64_t row, unsigned slice)
{
    const uint64_t half = a.dim / 2, begin = (uint64_t)slice * PAIRS;
    const unsigned pairs = pairs_of(a, slice);
    for (unsigned r = DL_WARP_OF_BLOCK; r < N; r += DL_WARPS)
        for (unsigned d = DL_LANE; d < pairs; d += DL_WARP) {
            const uint64_t t = row + r;
            float low = 0, high = 0;
            if (t < a.length) {
                const E *from = x.x + t * x.stride + begin + d;
                low = get(from[0]), high = get(from[half]);
                if (x.turned) {
                    const uint64_t angle = t * half + begin + d;
                    const float c = a.cosine[angle], s = a.sine[angle], old = low;
                    low = low * c - high * s;
                    high = high * c + old * s;
                }
            }
            to[r][d] = low * x.scale;
            to[r][PAIRS + d] = high * x.scale;
        }
}

/* score[r] += the warp's row r times the lane's column, over one slice. */
template <unsigned EACH>
static __device__ __forceinline__ void add_scores(float (&score)[EACH],
                                                  const float (&rows)[EACH * DL_WARPS][WIDTH],
                                                  const float (&tile)[TILE][STRIDE], unsigned pairs)
{
    const unsigned row = DL_WARP_OF_BLOCK * EACH;
    for (unsigned d = 0; d < pairs; d++) {
        const float low = tile[DL_LANE][d], high = tile[DL_LANE][PAIRS + d];
#pragma unroll
        for (unsigned r = 0; r < EACH; r++)
            score[r] = fmaf(rows[row + r][PAIRS + d], high, fmaf(rows[row + r][d], low, score[r]));
    }
}

/* Scores of the block's rows, which are rows of x, with the columns from `column` on, which are
 * rows of y. After it `tile` has the block's own slice of these columns. `rows` is loaded again
 * only where it does not keep all slices. */
template <unsigned EACH, typename E>
static __device__ __forceinline__ void scores_of(float (&score)[EACH],
                                                 float (&rows)[EACH * DL_WARPS][WIDTH],
                                                 float (&tile)[TILE][STRIDE], const attention &a,
                                                 const work &w, const matrix<E> &x,
                                                 const matrix<E> &y, uint64_t column, bool begins)
{
#pragma unroll
    for (unsigned r = 0; r < EACH; r++)
        score[r] = 0;
    for (unsigned k = 1; k <= w.slices; k++) {
        const unsigned slice = (w.slice + k) % w.slices;
        __syncthreads(); /* the product before has read its tile */
        if (begins || w.slices > 1) load(rows, a, x, w.row, slice);
        load(tile, a, y, column, slice);
        __syncthreads();
        add_scores(score, rows, tile, pairs_of(a, slice));
    }
}

/* sum[r][k] += share of the warp's row r in each column, times element k of the column. */
template <unsigned EACH>
static __device__ __forceinline__ void add_columns(float (&sum)[EACH][PARTS],
                                                   const float (&share)[EACH * DL_WARPS][TILE],
                                                   const float (&tile)[TILE][STRIDE],
                                                   unsigned pairs)
{
    const unsigned row = DL_WARP_OF_BLOCK * EACH;
    for (unsigned j = 0; j < TILE; j++)
#pragma unroll
        for (unsigned k = 0; k < PARTS; k++) {
            if (k % 2 * DL_WARP >= pairs) continue; /* no lane has an element here */
            const float y = tile[j][k * DL_WARP + DL_LANE];
#pragma unroll
            for (unsigned r = 0; r < EACH; r++)
                sum[r][k] = fmaf(share[row + r][j], y, sum[r][k]);
        }
}

template <unsigned EACH> static __device__ __forceinline__ void clear(float (&sum)[EACH][PARTS])
{
#pragma unroll
    for (unsigned r = 0; r < EACH; r++)
#pragma unroll
        for (unsigned k = 0; k < PARTS; k++)
            sum[r][k] = 0;
}

/* Stores a row of the block's slice to `to`, which is position t of a head. With `turned` it is the
 * gradient of what was rotated, and is rotated back. A lane has both elements of a pair. */
template <typename E>
static __device__ __forceinline__ void store(E *to, const attention &a, const work &w,
                                             const float (&row)[PARTS], uint64_t t, float scale,
                                             bool turned)
{
    const uint64_t half = a.dim / 2, begin = (uint64_t)w.slice * PAIRS;
    if (t >= a.length) return;
#pragma unroll
    for (unsigned k = 0; k < PARTS / 2; k++) {
        const unsigned d = k * DL_WARP + DL_LANE;
        float low = row[k] * scale, high = row[k + PARTS / 2] * scale;
        if (d >= pairs_of(a, w.slice)) continue;
        if (turned) {
            const uint64_t angle = t * half + begin + d;
            const float c = a.cosine[angle], s = a.sine[angle], old = low;
            low = low * c + high * s;
            high = high * c - old * s;
        }
        put(to + begin + d, low);
        put(to + begin + d + half, high);
    }
}

/* ---- kernels */

/* The online softmax: `out` is kept up to a factor exp(-top), and is multiplied by exp(old top -
 * top) when the largest score grows. A lane adds up the shares of its columns. */
template <typename E>
static __device__ __forceinline__ void attention_forward(const attention &a,
                                                         float (&rows)[FORWARD_ROWS][WIDTH],
                                                         float (&tile)[TILE][STRIDE],
                                                         float (&share)[FORWARD_ROWS][TILE])
{
    const work w = work_of(a, a.heads, FORWARD_ROWS);
    const uint64_t kv = w.h / (a.heads / a.kv_heads);
    const matrix<E> q = queries_of<E>(a, w.first, w.h), k = keys_of<E>(a, w.first, kv);
    const matrix<E> v = values_of<E>(a, w.first, kv);
    const unsigned row = DL_WARP_OF_BLOCK * FORWARD_EACH, pairs = pairs_of(a, w.slice);
    float out[FORWARD_EACH][PARTS], top[FORWARD_EACH], sum[FORWARD_EACH], score[FORWARD_EACH];
    clear(out);
#pragma unroll
    for (unsigned r = 0; r < FORWARD_EACH; r++)
        top[r] = -INFINITY, sum[r] = 0;
    for (uint64_t begin = 0; begin < w.row + FORWARD_ROWS && begin < a.length; begin += TILE) {
        scores_of(score, rows, tile, a, w, q, k, begin, begin == 0);
#pragma unroll
        for (unsigned r = 0; r < FORWARD_EACH; r++) {
            const float x = begin + DL_LANE <= w.row + row + r ? score[r] : -INFINITY;
            const float most = fmaxf(top[r], warp_max(x)), old = expf(top[r] - most);
            const float p = expf(x - most);
            share[row + r][DL_LANE] = p;
            sum[r] = sum[r] * old + p;
            top[r] = most;
#pragma unroll
            for (unsigned part = 0; part < PARTS; part++)
                out[r][part] *= old;
        }
        __syncthreads(); /* all scores are computed: the tile is free */
        load(tile, a, v, begin, w.slice);
        __syncthreads();
        add_columns(out, share, tile, pairs);
    }
#pragma unroll
    for (unsigned r = 0; r < FORWARD_EACH; r++) {
        const uint64_t t = w.row + row + r;
        const float all = warp_sum(sum[r]);
        store(elements<E>(a.out) + ((w.first + t) * a.heads + w.h) * a.dim, a, w, out[r], t,
              1 / all, false);
        if (t < a.length && w.slice == 0 && DL_LANE == 0)
            a.lse[sum_at(a, w.first, w.h, t)] = top[r] + logf(all);
    }
}

DL_GPU_KERNEL(dl_attention_forward, dl_cuda_attention_arguments)
{
    __shared__ float rows[FORWARD_ROWS][WIDTH], tile[TILE][STRIDE], share[FORWARD_ROWS][TILE];
    attention_forward<float>(a, rows, tile, share);
}
DL_GPU_KERNEL(dl_attention_forward_bf16, dl_cuda_attention_arguments)
{
    __shared__ float rows[FORWARD_ROWS][WIDTH], tile[TILE][STRIDE], share[FORWARD_ROWS][TILE];
    attention_forward<bf16>(a, rows, tile, share);
}

/* delta = sum(dO O), which equals the sum of P dP over the keys. A warp for each query and head. */
template <typename E>
static __device__ __forceinline__ void attention_delta(const dl_cuda_attention_arguments &a)
{
    const uint64_t i = DL_WARP_INDEX / a.heads, h = DL_WARP_INDEX % a.heads;
    if (i >= a.rows * a.length) return;
    const E *x = elements<E>(a.dout) + (i * a.heads + h) * a.dim;
    const E *y = elements<E>(a.out) + (i * a.heads + h) * a.dim;
    float sum = 0;
    for (uint64_t d = DL_LANE; d < a.dim; d += DL_WARP)
        sum = fmaf(get(x[d]), get(y[d]), sum);
    sum = warp_sum(sum);
    if (DL_LANE == 0) a.delta[sum_at(a, i - i % a.length, h, i % a.length)] = sum;
}
DL_GPU_KERNELS(attention_delta, dl_cuda_attention_arguments)

/* dQ = dS K, where dS = P (dO V^T - delta) and P = exp(q k - lse). */
template <typename E>
static __device__ __forceinline__ void attention_queries(const attention &a,
                                                         float (&q_rows)[BACKWARD_ROWS][WIDTH],
                                                         float (&dout_rows)[BACKWARD_ROWS][WIDTH],
                                                         float (&tile)[TILE][STRIDE],
                                                         float (&share)[BACKWARD_ROWS][TILE])
{
    const work w = work_of(a, a.heads, BACKWARD_ROWS);
    const uint64_t kv = w.h / (a.heads / a.kv_heads);
    const matrix<E> q = queries_of<E>(a, w.first, w.h), dout = douts_of<E>(a, w.first, w.h);
    const matrix<E> k = keys_of<E>(a, w.first, kv), v = values_of<E>(a, w.first, kv);
    const unsigned row = DL_WARP_OF_BLOCK * BACKWARD_EACH, pairs = pairs_of(a, w.slice);
    float dq[BACKWARD_EACH][PARTS], score[BACKWARD_EACH], dp[BACKWARD_EACH];
    clear(dq);
    for (uint64_t begin = 0; begin < w.row + BACKWARD_ROWS && begin < a.length; begin += TILE) {
        scores_of(dp, dout_rows, tile, a, w, dout, v, begin, begin == 0);
        scores_of(score, q_rows, tile, a, w, q, k, begin, begin == 0);
#pragma unroll
        for (unsigned r = 0; r < BACKWARD_EACH; r++) {
            const uint64_t t = w.row + row + r, at = sum_at(a, w.first, w.h, t);
            float ds = 0;
            if (t < a.length && begin + DL_LANE <= t)
                ds = expf(score[r] - a.lse[at]) * (dp[r] - a.delta[at]);
            share[row + r][DL_LANE] = ds;
        }
        __syncwarp();
        add_columns(dq, share, tile, pairs);
    }
#pragma unroll
    for (unsigned r = 0; r < BACKWARD_EACH; r++) {
        const uint64_t t = w.row + row + r;
        store(elements<E>(a.dqkv) + place(a, w.first + t, w.h), a, w, dq[r], t, a.scale, true);
    }
}

DL_GPU_KERNEL(dl_attention_queries, dl_cuda_attention_arguments)
{
    __shared__ float q_rows[BACKWARD_ROWS][WIDTH], dout_rows[BACKWARD_ROWS][WIDTH];
    __shared__ float tile[TILE][STRIDE], share[BACKWARD_ROWS][TILE];
    attention_queries<float>(a, q_rows, dout_rows, tile, share);
}
DL_GPU_KERNEL(dl_attention_queries_bf16, dl_cuda_attention_arguments)
{
    __shared__ float q_rows[BACKWARD_ROWS][WIDTH], dout_rows[BACKWARD_ROWS][WIDTH];
    __shared__ float tile[TILE][STRIDE], share[BACKWARD_ROWS][TILE];
    attention_queries<bf16>(a, q_rows, dout_rows, tile, share);
}

/* dV = P^T dO and dK = dS^T Q: rows are keys, columns the queries of all heads that use them. */
template <typename E>
static __device__ __forceinline__ void attention_keys(const attention &a,
                                                      float (&k_rows)[BACKWARD_ROWS][WIDTH],
                                                      float (&v_rows)[BACKWARD_ROWS][WIDTH],
                                                      float (&tile)[TILE][STRIDE],
                                                      float (&share)[BACKWARD_ROWS][TILE])
{
    const work w = work_of(a, a.kv_heads, BACKWARD_ROWS);
    const uint64_t group = a.heads / a.kv_heads, begins = w.row / TILE * TILE;
    const matrix<E> k = keys_of<E>(a, w.first, w.h), v = values_of<E>(a, w.first, w.h);
    const unsigned row = DL_WARP_OF_BLOCK * BACKWARD_EACH, pairs = pairs_of(a, w.slice);
    float dk[BACKWARD_EACH][PARTS], dv[BACKWARD_EACH][PARTS];
    float score[BACKWARD_EACH], dp[BACKWARD_EACH];
    clear(dk);
    clear(dv);
    for (uint64_t h = w.h * group; h < (w.h + 1) * group; h++)
        for (uint64_t begin = begins; begin < a.length; begin += TILE) {
            const bool first = h == w.h * group && begin == begins;
            const matrix<E> q = queries_of<E>(a, w.first, h), dout = douts_of<E>(a, w.first, h);
            const uint64_t t = begin + DL_LANE, at = sum_at(a, w.first, h, t);
            scores_of(score, k_rows, tile, a, w, k, q, begin, first);
            scores_of(dp, v_rows, tile, a, w, v, dout, begin, first);
#pragma unroll
            for (unsigned r = 0; r < BACKWARD_EACH; r++) {
                float p = 0;
                if (t < a.length && w.row + row + r <= t) {
                    p = expf(score[r] - a.lse[at]);
                    dp[r] = p * (dp[r] - a.delta[at]);
                } else {
                    dp[r] = 0;
                }
                share[row + r][DL_LANE] = p;
            }
            __syncwarp();
            add_columns(dv, share, tile, pairs);
            __syncthreads(); /* tile and shares have been read */
#pragma unroll
            for (unsigned r = 0; r < BACKWARD_EACH; r++)
                share[row + r][DL_LANE] = dp[r];
            load(tile, a, q, begin, w.slice);
            __syncthreads();
            add_columns(dk, share, tile, pairs);
        }
#pragma unroll
    for (unsigned r = 0; r < BACKWARD_EACH; r++) {
        const uint64_t j = w.row + row + r;
        E *to = elements<E>(a.dqkv) + place(a, w.first + j, a.heads + w.h);
        store(to, a, w, dk[r], j, 1, true);
        store(to + a.kv_heads * a.dim, a, w, dv[r], j, 1, false);
    }
}

DL_GPU_KERNEL(dl_attention_keys, dl_cuda_attention_arguments)
{
    __shared__ float k_rows[BACKWARD_ROWS][WIDTH], v_rows[BACKWARD_ROWS][WIDTH];
    __shared__ float tile[TILE][STRIDE], share[BACKWARD_ROWS][TILE];
    attention_keys<float>(a, k_rows, v_rows, tile, share);
}
DL_GPU_KERNEL(dl_attention_keys_bf16, dl_cuda_attention_arguments)
{
    __shared__ float k_rows[BACKWARD_ROWS][WIDTH], v_rows[BACKWARD_ROWS][WIDTH];
    __shared__ float tile[TILE][STRIDE], share[BACKWARD_ROWS][TILE];
    attention_keys<bf16>(a, k_rows, v_rows, tile, share);
}
