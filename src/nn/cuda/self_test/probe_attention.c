/* probe_attention.c - causal attention against its formulas (nn/op_attention.c) in float64. */
#include "nn/cuda/self_test/self_test_rows.h"
#include "nn/cuda/start.h"

#include <math.h>

/* Each shape has more positions than a tile, and a last tile that is not full. Heads of the second
 * have two slices of elements. */
enum { MAX_DIM = 2 * (DL_CUDA_PAIRS + 1) };
typedef struct shape {
    size_t rows, length, heads, kv_heads, dim;
} shape;
static const shape shapes[] = {{2, 37, 4, 2, 6}, {1, 35, 2, 1, MAX_DIM}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };
static const float SCALE = 0.4f;
static const double ROUNDINGS = 2e-5;

/* The host's addresses. `turned` f32[rows * length][heads + kv_heads][dim]: queries, scaled, and
 * keys, both rotated. The kernels do not use it. */
typedef struct rooms {
    shape s;
    size_t n, all; /* positions, and heads of q, k and v */
    float *qkv, *cosine, *sine, *turned, *out, *lse, *dout, *delta, *dqkv;
} rooms;

static dl_cuda_attention_arguments arguments_of(const dl_probe *p, const rooms *r)
{
    return (dl_cuda_attention_arguments){.qkv = DL_PROBE_AT(p, r->qkv),
                                         .cosine = DL_PROBE_AT(p, r->cosine),
                                         .sine = DL_PROBE_AT(p, r->sine),
                                         .dout = DL_PROBE_AT(p, r->dout),
                                         .out = DL_PROBE_AT(p, r->out),
                                         .lse = DL_PROBE_AT(p, r->lse),
                                         .delta = DL_PROBE_AT(p, r->delta),
                                         .dqkv = DL_PROBE_AT(p, r->dqkv),
                                         .rows = r->s.rows,
                                         .length = r->s.length,
                                         .heads = r->s.heads,
                                         .kv_heads = r->s.kv_heads,
                                         .dim = r->s.dim,
                                         .scale = SCALE};
}

static rooms take_rooms(dl_probe *p, const shape *s)
{
    rooms r = {.s = *s, .n = s->rows * s->length, .all = s->heads + 2 * s->kv_heads};
    r.qkv = dl_probe_input(p, r.n * r.all * s->dim);
    r.cosine = dl_probe_input(p, s->length * s->dim / 2);
    r.sine = dl_probe_input(p, s->length * s->dim / 2);
    r.turned = dl_probe_output(p, r.n * (s->heads + s->kv_heads) * s->dim, ROUNDINGS);
    r.out = dl_probe_output(p, r.n * s->heads * s->dim, ROUNDINGS);
    r.lse = dl_probe_output(p, r.n * s->heads, ROUNDINGS);
    r.dout = dl_probe_input(p, r.n * s->heads * s->dim);
    r.delta = dl_probe_output(p, r.n * s->heads, ROUNDINGS);
    r.dqkv = dl_probe_output(p, r.n * r.all * s->dim, ROUNDINGS);
    dl_probe_values(p, r.qkv), dl_probe_values(p, r.out);
    dl_probe_values(p, r.dout), dl_probe_values(p, r.dqkv);
    return r;
}

/* ---- the formulas */

static void turn(const rooms *r)
{
    const size_t dim = r->s.dim, half = dim / 2, heads = r->s.heads + r->s.kv_heads;
    for (size_t i = 0; i < r->n; i++)
        for (size_t h = 0; h < heads; h++)
            for (size_t d = 0; d < half; d++) {
                const float *x = r->qkv + (i * r->all + h) * dim + d;
                float *y = r->turned + (i * heads + h) * dim + d;
                const double c = (double)r->cosine[i % r->s.length * half + d];
                const double s = (double)r->sine[i % r->s.length * half + d];
                const double k = h < r->s.heads ? (double)SCALE : 1;
                y[0] = (float)(((double)x[0] * c - (double)x[half] * s) * k);
                y[half] = (float)(((double)x[half] * c + (double)x[0] * s) * k);
            }
}

static void turn_back(const rooms *r, double *x, size_t i, double scale)
{
    const size_t half = r->s.dim / 2;
    for (size_t d = 0; d < half; d++) {
        const double c = (double)r->cosine[i % r->s.length * half + d];
        const double s = (double)r->sine[i % r->s.length * half + d];
        const double low = x[d] * scale, high = x[d + half] * scale;
        x[d] = low * c + high * s;
        x[d + half] = high * c - low * s;
    }
}

static double dot(const rooms *r, const float *x, const float *y)
{
    double sum = 0;
    for (size_t d = 0; d < r->s.dim; d++)
        sum += (double)x[d] * (double)y[d];
    return sum;
}

static size_t kv_of(const rooms *r, size_t h)
{
    return h / (r->s.heads / r->s.kv_heads);
}
static const float *query_of(const rooms *r, size_t i, size_t h)
{
    return r->turned + (i * (r->s.heads + r->s.kv_heads) + h) * r->s.dim;
}
static const float *key_of(const rooms *r, size_t i, size_t h)
{
    return query_of(r, i, r->s.heads + kv_of(r, h));
}
static const float *value_of(const rooms *r, size_t i, size_t h)
{
    return r->qkv + (i * r->all + r->s.heads + r->s.kv_heads + kv_of(r, h)) * r->s.dim;
}
static size_t out_at(const rooms *r, size_t i, size_t h)
{
    return (i * r->s.heads + h) * r->s.dim;
}
static size_t sum_at(const rooms *r, size_t i, size_t h)
{
    const size_t t = i % r->s.length;
    return (i - t) * r->s.heads + h * r->s.length + t;
}

static void forward(const dl_probe *p, const rooms *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t h = 0; h < r->s.heads; h++) {
            double sum = 0, out[MAX_DIM] = {0};
            for (size_t j = i - i % r->s.length; j <= i; j++) {
                const double share = exp(dot(r, query_of(r, i, h), key_of(r, j, h)));
                sum += share;
                for (size_t d = 0; d < r->s.dim; d++)
                    out[d] += share * (double)value_of(r, j, h)[d];
            }
            for (size_t d = 0; d < r->s.dim; d++)
                r->out[out_at(r, i, h) + d] = (float)(out[d] / sum);
            r->lse[sum_at(r, i, h)] = (float)log(sum);
        }
    dl_probe_round(p, r->out, r->n * r->s.heads * r->s.dim);
}

static void deltas(const rooms *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t h = 0; h < r->s.heads; h++)
            r->delta[sum_at(r, i, h)] =
                (float)dot(r, r->dout + out_at(r, i, h), r->out + out_at(r, i, h));
}

/* The share of query i in key j, and the gradient of their score. */
static double share_of(const rooms *r, double *gradient, size_t i, size_t j, size_t h)
{
    const double lse = (double)r->lse[sum_at(r, i, h)], delta = (double)r->delta[sum_at(r, i, h)];
    const double share = exp(dot(r, query_of(r, i, h), key_of(r, j, h)) - lse);
    *gradient = share * (dot(r, r->dout + out_at(r, i, h), value_of(r, j, h)) - delta);
    return share;
}

static void put(const rooms *r, size_t i, size_t head, const double x[MAX_DIM])
{
    for (size_t d = 0; d < r->s.dim; d++)
        r->dqkv[(i * r->all + head) * r->s.dim + d] = (float)x[d];
}

static void query_gradients(const rooms *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t h = 0; h < r->s.heads; h++) {
            double dq[MAX_DIM] = {0}, gradient;
            for (size_t j = i - i % r->s.length; j <= i; j++) {
                (void)share_of(r, &gradient, i, j, h);
                for (size_t d = 0; d < r->s.dim; d++)
                    dq[d] += gradient * (double)key_of(r, j, h)[d];
            }
            turn_back(r, dq, i, (double)SCALE);
            put(r, i, h, dq);
        }
}

static void key_gradients(const rooms *r)
{
    const size_t group = r->s.heads / r->s.kv_heads, length = r->s.length;
    for (size_t j = 0; j < r->n; j++)
        for (size_t kv = 0; kv < r->s.kv_heads; kv++) {
            double dk[MAX_DIM] = {0}, dv[MAX_DIM] = {0}, gradient;
            for (size_t h = kv * group; h < (kv + 1) * group; h++)
                for (size_t i = j; i < j - j % length + length; i++) {
                    const double share = share_of(r, &gradient, i, j, h);
                    for (size_t d = 0; d < r->s.dim; d++) {
                        dv[d] += share * (double)r->dout[out_at(r, i, h) + d];
                        dk[d] += gradient * (double)query_of(r, i, h)[d];
                    }
                }
            turn_back(r, dk, j, 1);
            put(r, j, r->s.heads + kv, dk);
            put(r, j, r->s.heads + r->s.kv_heads + kv, dv);
        }
}

/* ---- the cases. Each kernel gets what the CPU computed before it. */

static diloco_status forward_of(dl_probe *p, const shape *s)
{
    const rooms r = take_rooms(p, s);
    const dl_cuda_attention_arguments a = arguments_of(p, &r);
    turn(&r);
    dl_probe_run(p, dl_cuda_attention_threads(&a, a.heads, DL_CUDA_FORWARD_ROWS), &a, sizeof a);
    forward(p, &r);
    return dl_probe_compare(p);
}

static diloco_status delta_of(dl_probe *p, const shape *s)
{
    const rooms r = take_rooms(p, s);
    const dl_cuda_attention_arguments a = arguments_of(p, &r);
    turn(&r);
    forward(p, &r);
    dl_probe_run(p, r.n * a.heads * DL_CUDA_WARP, &a, sizeof a);
    deltas(&r);
    return dl_probe_compare(p);
}

static diloco_status queries_of(dl_probe *p, const shape *s)
{
    const rooms r = take_rooms(p, s);
    const dl_cuda_attention_arguments a = arguments_of(p, &r);
    turn(&r);
    forward(p, &r);
    deltas(&r);
    dl_probe_run(p, dl_cuda_attention_threads(&a, a.heads, DL_CUDA_BACKWARD_ROWS), &a, sizeof a);
    query_gradients(&r);
    return dl_probe_compare(p);
}

static diloco_status keys_of(dl_probe *p, const shape *s)
{
    const rooms r = take_rooms(p, s);
    const dl_cuda_attention_arguments a = arguments_of(p, &r);
    turn(&r);
    forward(p, &r);
    deltas(&r);
    dl_probe_run(p, dl_cuda_attention_threads(&a, a.kv_heads, DL_CUDA_BACKWARD_ROWS), &a, sizeof a);
    key_gradients(&r);
    return dl_probe_compare(p);
}

static diloco_status on_each_shape(dl_probe *p, diloco_status (*run)(dl_probe *, const shape *))
{
    for (size_t i = 0; i < N_SHAPES; i++) {
        dl_probe_begin(p);
        DL_TRY(run(p, &shapes[i]));
    }
    return DILOCO_OK;
}

diloco_status dl_probe_attention_forward(dl_probe *p)
{
    return on_each_shape(p, forward_of);
}
diloco_status dl_probe_attention_delta(dl_probe *p)
{
    return on_each_shape(p, delta_of);
}
diloco_status dl_probe_attention_queries(dl_probe *p)
{
    return on_each_shape(p, queries_of);
}
diloco_status dl_probe_attention_keys(dl_probe *p)
{
    return on_each_shape(p, keys_of);
}
