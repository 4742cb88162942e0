/* probe_qk_norm.c - the norm of heads against its formulas (nn/op_qk_norm.c) in float64. */
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/self_test/self_test_rows.h"
#include "nn/cuda/start.h"

#include <math.h>

/* Three chunks, and over a block of threads of everything. */
enum { HEADS = 3, KV_HEADS = 2, DIM = 45, POSITIONS = 2 * DL_CUDA_CHUNK + 3 };
enum { NORMED = HEADS + KV_HEADS, ALL = HEADS + 2 * KV_HEADS, N = POSITIONS * ALL * DIM };
static const double ROUNDINGS = 2e-5;
static const float EPS = 1e-3f;

typedef struct rooms {
    float *x, *w, *r, *dy;
} rooms;

static rooms take_rooms(dl_probe *p)
{
    rooms r = {.x = dl_probe_input(p, N),
               .w = dl_probe_input(p, (size_t)2 * DIM),
               .r = dl_probe_output(p, (size_t)POSITIONS * NORMED, ROUNDINGS),
               .dy = dl_probe_input(p, N)};
    dl_probe_values(p, r.x), dl_probe_values(p, r.dy);
    return r;
}

static dl_cuda_qk_norm_arguments arguments_of(const dl_probe *p, const rooms *r)
{
    return (dl_cuda_qk_norm_arguments){.x = DL_PROBE_AT(p, r->x),
                                       .w = DL_PROBE_AT(p, r->w),
                                       .dy = DL_PROBE_AT(p, r->dy),
                                       .r = DL_PROBE_AT(p, r->r),
                                       .positions = POSITIONS,
                                       .heads = HEADS,
                                       .kv_heads = KV_HEADS,
                                       .dim = DIM,
                                       .eps = EPS};
}

static const float *scales_of(const rooms *r, size_t h)
{
    return h < HEADS ? r->w : r->w + DIM;
}

static void roots(const rooms *r)
{
    for (size_t k = 0; k < (size_t)POSITIONS * NORMED; k++) {
        const float *x = r->x + (k / NORMED * ALL + k % NORMED) * DIM;
        double sum = 0;
        for (size_t d = 0; d < DIM; d++)
            sum += (double)x[d] * (double)x[d];
        r->r[k] = (float)(1 / sqrt(sum / DIM + (double)EPS));
    }
}

diloco_status dl_probe_qk_norm_roots(dl_probe *p)
{
    const rooms r = take_rooms(p);
    const dl_cuda_qk_norm_arguments a = arguments_of(p, &r);
    dl_probe_run(p, (size_t)POSITIONS * NORMED * DL_CUDA_WARP, &a, sizeof a);
    roots(&r);
    return dl_probe_compare(p);
}

diloco_status dl_probe_qk_norm_forward(dl_probe *p)
{
    const rooms r = take_rooms(p);
    dl_cuda_qk_norm_arguments a = arguments_of(p, &r);
    float *y = dl_probe_values(p, dl_probe_output(p, N, ROUNDINGS));
    roots(&r); /* not the kernel's, which makes them again */
    a.y = DL_PROBE_AT(p, y);
    dl_probe_run(p, (size_t)POSITIONS * ALL * DL_CUDA_WARP, &a, sizeof a);
    for (size_t e = 0; e < N; e++) {
        const size_t i = e / (ALL * DIM), h = e / DIM % ALL;
        const float factor = h < NORMED ? r.r[i * NORMED + h] * scales_of(&r, h)[e % DIM] : 1;
        y[e] = r.x[e] * factor;
    }
    return dl_probe_compare(p);
}

diloco_status dl_probe_qk_norm_partial(dl_probe *p)
{
    enum { CHUNKS = 3 };
    const rooms r = take_rooms(p);
    dl_cuda_qk_norm_arguments a = arguments_of(p, &r);
    float *partial = dl_probe_output(p, (size_t)CHUNKS * 2 * DIM, ROUNDINGS);
    roots(&r);
    a.partial = DL_PROBE_AT(p, partial);
    dl_probe_run(p, (size_t)CHUNKS * 2 * DIM, &a, sizeof a);
    for (size_t e = 0; e < (size_t)CHUNKS * 2 * DIM; e++) {
        const size_t d = e % DIM, begin = e / (2 * (size_t)DIM) * DL_CUDA_CHUNK;
        const bool of_queries = e / DIM % 2 == 0;
        double sum = 0;
        for (size_t i = begin; i < begin + DL_CUDA_CHUNK && i < POSITIONS; i++)
            for (size_t h = of_queries ? 0 : HEADS; h < (of_queries ? HEADS : NORMED); h++) {
                const size_t at = (i * ALL + h) * DIM + d;
                sum += (double)r.dy[at] * (double)r.x[at] * (double)r.r[i * NORMED + h];
            }
        partial[e] = (float)sum;
    }
    return dl_probe_compare(p);
}

/* One head: x becomes its gradient. */
static void backward(const rooms *r, size_t i, size_t h)
{
    const float *dy = r->dy + (i * ALL + h) * DIM, *w = scales_of(r, h);
    const double root = h < NORMED ? (double)r->r[i * NORMED + h] : 0;
    float *x = r->x + (i * ALL + h) * DIM;
    double dot = 0;
    for (size_t d = 0; d < DIM; d++)
        dot += (double)dy[d] * (double)x[d] * (double)w[d];
    for (size_t d = 0; d < DIM; d++) {
        const double back = root * root * root * dot / DIM * (double)x[d];
        x[d] = h < NORMED ? (float)(root * (double)w[d] * (double)dy[d] - back) : dy[d];
    }
}

diloco_status dl_probe_qk_norm_backward(dl_probe *p)
{
    rooms r = {.x = dl_probe_change(p, N, ROUNDINGS)};
    r.w = dl_probe_input(p, (size_t)2 * DIM);
    r.r = dl_probe_output(p, (size_t)POSITIONS * NORMED, 0);
    r.dy = dl_probe_input(p, N);
    dl_probe_values(p, r.x), dl_probe_values(p, r.dy);
    dl_cuda_qk_norm_arguments a = arguments_of(p, &r);
    roots(&r);
    a.dx = DL_PROBE_AT(p, r.x);
    dl_probe_run(p, (size_t)POSITIONS * ALL * DL_CUDA_WARP, &a, sizeof a);
    for (size_t k = 0; k < (size_t)POSITIONS * ALL; k++)
        backward(&r, k / ALL, k % ALL);
    return dl_probe_compare(p);
}
