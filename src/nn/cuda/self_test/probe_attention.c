/* probe_attention.c - causal attention against its formulas (nn/op_attention.c) in float64. */
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/self_test/self_test_rows.h"
#include "nn/cuda/start.h"

#include <math.h>

/* More keys than a warp has threads. */
enum { ROWS = 2, LENGTH = 37, HEADS = 4, KV_HEADS = 2, DIM = 6, HALF = DIM / 2 };
enum { TURNED = HEADS + KV_HEADS, ALL = HEADS + 2 * KV_HEADS, N = ROWS * LENGTH };
static const double ROUNDINGS = 2e-5;

/* The host's addresses. */
typedef struct rooms {
    float *qkv, *cosine, *sine, *turned, *out, *lse, *dout, *dqkv;
} rooms;

static dl_cuda_attention_arguments arguments_of(const dl_probe *p, const rooms *r)
{
    return (dl_cuda_attention_arguments){.qkv = DL_PROBE_AT(p, r->qkv),
                                         .cosine = DL_PROBE_AT(p, r->cosine),
                                         .sine = DL_PROBE_AT(p, r->sine),
                                         .dout = DL_PROBE_AT(p, r->dout),
                                         .turned = DL_PROBE_AT(p, r->turned),
                                         .out = DL_PROBE_AT(p, r->out),
                                         .lse = DL_PROBE_AT(p, r->lse),
                                         .dqkv = DL_PROBE_AT(p, r->dqkv),
                                         .rows = ROWS,
                                         .length = LENGTH,
                                         .heads = HEADS,
                                         .kv_heads = KV_HEADS,
                                         .dim = DIM,
                                         .scale = 0.4f};
}

static rooms take_rooms(dl_probe *p)
{
    rooms r = {.qkv = dl_probe_input(p, N * ALL * DIM),
               .cosine = dl_probe_input(p, LENGTH * HALF),
               .sine = dl_probe_input(p, LENGTH * HALF),
               .turned = dl_probe_output(p, N * TURNED * DIM, ROUNDINGS),
               .out = dl_probe_output(p, N * HEADS * DIM, ROUNDINGS),
               .lse = dl_probe_output(p, N * HEADS, ROUNDINGS),
               .dout = dl_probe_input(p, N * HEADS * DIM),
               .dqkv = dl_probe_output(p, N * ALL * DIM, ROUNDINGS)};
    return r;
}

/* ---- the formulas */

static void turn(const rooms *r, double scale)
{
    for (size_t i = 0; i < N; i++)
        for (size_t h = 0; h < TURNED; h++)
            for (size_t d = 0; d < HALF; d++) {
                const float *x = r->qkv + (i * ALL + h) * DIM + d;
                float *y = r->turned + (i * TURNED + h) * DIM + d;
                const double c = (double)r->cosine[i % LENGTH * HALF + d],
                             k = h < HEADS ? scale : 1;
                const double s = (double)r->sine[i % LENGTH * HALF + d];
                y[0] = (float)(((double)x[0] * c - (double)x[HALF] * s) * k);
                y[HALF] = (float)(((double)x[HALF] * c + (double)x[0] * s) * k);
            }
}

static void turn_back(const rooms *r, double *x, size_t i, double scale)
{
    for (size_t d = 0; d < HALF; d++) {
        const double c = (double)r->cosine[i % LENGTH * HALF + d];
        const double s = (double)r->sine[i % LENGTH * HALF + d];
        const double low = x[d] * scale, high = x[d + HALF] * scale;
        x[d] = low * c + high * s;
        x[d + HALF] = high * c - low * s;
    }
}

static double dot(const float *x, const float *y)
{
    double sum = 0;
    for (size_t d = 0; d < DIM; d++)
        sum += (double)x[d] * (double)y[d];
    return sum;
}

static const float *query_of(const rooms *r, size_t i, size_t h)
{
    return r->turned + (i * TURNED + h) * DIM;
}
static const float *key_of(const rooms *r, size_t i, size_t h)
{
    return r->turned + (i * TURNED + HEADS + h / (HEADS / KV_HEADS)) * DIM;
}
static const float *value_of(const rooms *r, size_t i, size_t h)
{
    return r->qkv + (i * ALL + HEADS + KV_HEADS + h / (HEADS / KV_HEADS)) * DIM;
}

static void forward(const rooms *r)
{
    for (size_t i = 0; i < N; i++)
        for (size_t h = 0; h < HEADS; h++) {
            const size_t first = i - i % LENGTH;
            double sum = 0, out[DIM] = {0};
            for (size_t j = first; j <= i; j++) {
                const double p = exp(dot(query_of(r, i, h), key_of(r, j, h)));
                sum += p;
                for (size_t d = 0; d < DIM; d++)
                    out[d] += p * (double)value_of(r, j, h)[d];
            }
            for (size_t d = 0; d < DIM; d++)
                r->out[(i * HEADS + h) * DIM + d] = (float)(out[d] / sum);
            r->lse[first * HEADS + h * LENGTH + i % LENGTH] = (float)log(sum);
        }
}

/* The share of query i in key j, and the gradient of their score. */
static double share_of(const rooms *r, double *gradient, size_t i, size_t j, size_t h)
{
    const float *dout = r->dout + (i * HEADS + h) * DIM, *out = r->out + (i * HEADS + h) * DIM;
    const size_t first = i - i % LENGTH;
    const double lse = (double)r->lse[first * HEADS + h * LENGTH + i % LENGTH];
    const double share = exp(dot(query_of(r, i, h), key_of(r, j, h)) - lse);
    *gradient = share * (dot(dout, value_of(r, j, h)) - dot(dout, out));
    return share;
}

static void put(const rooms *r, size_t i, size_t head, const double x[DIM])
{
    for (size_t d = 0; d < DIM; d++)
        r->dqkv[(i * ALL + head) * DIM + d] = (float)x[d];
}

static void query_gradients(const rooms *r, double scale)
{
    for (size_t i = 0; i < N; i++)
        for (size_t h = 0; h < HEADS; h++) {
            double dq[DIM] = {0}, gradient;
            for (size_t j = i - i % LENGTH; j <= i; j++) {
                (void)share_of(r, &gradient, i, j, h);
                for (size_t d = 0; d < DIM; d++)
                    dq[d] += gradient * (double)key_of(r, j, h)[d];
            }
            turn_back(r, dq, i, scale);
            put(r, i, h, dq);
        }
}

static void key_gradients(const rooms *r)
{
    const size_t group = HEADS / KV_HEADS;
    for (size_t j = 0; j < N; j++)
        for (size_t kv = 0; kv < KV_HEADS; kv++) {
            double dk[DIM] = {0}, dv[DIM] = {0}, gradient;
            for (size_t h = kv * group; h < (kv + 1) * group; h++)
                for (size_t i = j; i < j - j % LENGTH + LENGTH; i++) {
                    const double share = share_of(r, &gradient, i, j, h);
                    for (size_t d = 0; d < DIM; d++) {
                        dv[d] += share * (double)r->dout[(i * HEADS + h) * DIM + d];
                        dk[d] += gradient * (double)query_of(r, i, h)[d];
                    }
                }
            turn_back(r, dk, j, 1);
            put(r, j, HEADS + kv, dk);
            put(r, j, HEADS + KV_HEADS + kv, dv);
        }
}

/* ---- the cases. Each kernel gets what the CPU computed before. */

diloco_status dl_probe_attention_turn(dl_probe *p)
{
    const rooms r = take_rooms(p);
    const dl_cuda_attention_arguments a = arguments_of(p, &r);
    dl_probe_run(p, (size_t)N * TURNED * HALF, &a, sizeof a);
    turn(&r, (double)a.scale);
    return dl_probe_compare(p);
}

diloco_status dl_probe_attention_forward(dl_probe *p)
{
    const rooms r = take_rooms(p);
    const dl_cuda_attention_arguments a = arguments_of(p, &r);
    turn(&r, (double)a.scale);
    dl_probe_run(p, (size_t)N * HEADS * DL_CUDA_WARP, &a, sizeof a);
    forward(&r);
    return dl_probe_compare(p);
}

diloco_status dl_probe_attention_queries(dl_probe *p)
{
    const rooms r = take_rooms(p);
    const dl_cuda_attention_arguments a = arguments_of(p, &r);
    turn(&r, (double)a.scale);
    forward(&r);
    dl_probe_run(p, (size_t)N * HEADS * DL_CUDA_WARP, &a, sizeof a);
    query_gradients(&r, (double)a.scale);
    return dl_probe_compare(p);
}

diloco_status dl_probe_attention_keys(dl_probe *p)
{
    const rooms r = take_rooms(p);
    const dl_cuda_attention_arguments a = arguments_of(p, &r);
    turn(&r, (double)a.scale);
    forward(&r);
    dl_probe_run(p, (size_t)N * KV_HEADS * DL_CUDA_WARP, &a, sizeof a);
    key_gradients(&r);
    return dl_probe_compare(p);
}
