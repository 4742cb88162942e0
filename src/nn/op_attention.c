/* op_attention.c - causal attention in tiles, after FlashAttention (Dao et al. 2022,
 * arXiv:2205.14135; 2023, arXiv:2307.08691).
 *
 * One task is a sequence and a head of keys and values. It packs them once: rotated, transposed
 * where a product wants it, padded to whole vectors. Then it takes QUERIES queries and KEYS keys at
 * a time, so scores exist as one tile of QUERIES x KEYS. Forward keeps each query's logsumexp;
 * backward makes the probabilities again from it:
 *
 *     P = exp(q k - lse),  dV = P^T dO,  dS = P (dO V^T - sum(dO O)),  dQ = dS K,  dK = dS^T Q
 *
 * Gradients are written over qkv: a task reads all of its columns before it writes them, and
 * no other task touches them. Threads split the tasks. */
#include "nn/cpu/tile.h"
#include "nn/cpu/vec.h"
#include "nn/cuda/start.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

/* A tile of scores is 16 KiB: half of an L1 cache. */
enum { QUERIES = 16, KEYS = 256 };
_Static_assert(KEYS % QUERIES == 0, "the first key after a tile's queries is in its last chunk");

typedef struct attributes {
    size_t heads, kv_heads, dim; /* dim: elements of a head */
    dl_rope rope;
} attributes;

int dl_attention(dl_graph *g, int qkv, size_t heads, size_t kv_heads, const dl_rope *rope)
{
    attributes a = {heads, kv_heads, g->values[qkv].width / (heads + 2 * kv_heads), *rope};
    return dl_graph_add(g, &dl_op_attention, qkv, DL_NO_VALUE, DL_NO_WEIGHT, 0, &a, sizeof a)
        ->out[0];
}

static const attributes *attributes_of(const dl_node *node)
{
    return (const void *)node->attributes;
}

static void shape(dl_graph *g, dl_node *node)
{
    const attributes *a = attributes_of(node);
    dl_value *in = &g->values[node->in[0]];
    DL_ASSERT(a->heads % a->kv_heads == 0 && a->dim % 2 == 0);
    DL_ASSERT(in->width == (a->heads + 2 * a->kv_heads) * a->dim);
    /* On a GPU one block would write gradients while another still reads the keys. */
    if (g->target.device == DL_DEVICE_CPU) in->grad = in->data;
    node->out[0] = dl_graph_value(g, a->heads * a->dim);
    node->saved = dl_graph_value_f32(g, a->heads); /* logsumexp, [rows][heads][length] */
    node->constant_bytes = g->max_length * a->dim * sizeof(float); /* cos, sin f32[length][dim/2] */
}

/* A position sees (length + 1) / 2 keys on average: the others are masked. Two products of dim
 * elements, each a multiplication and an addition. */
static double flops(const dl_graph *g, const dl_node *node)
{
    const attributes *a = attributes_of(node);
    return 2.0 * (double)(g->max_length + 1) * (double)(a->heads * a->dim);
}

/* Fills the table of the angles' cosines and sines for all positions. */
static void prepare(const dl_pass *p)
{
    const attributes *a = attributes_of(p->node);
    size_t half = a->dim / 2;
    float *cosine = p->node->constant, *sine = cosine + p->graph->max_length * half;
    for (size_t t = 0; t < p->graph->max_length; t++)
        dl_rope_angles(cosine + t * half, sine + t * half, &a->rope, t, a->dim);
}

/* ---- a task's workspace -------------------------------------------------------------- */

/* One head of keys and values of one sequence. The memory is the thread's, for all its tasks. */
typedef struct task {
    size_t length, padded;     /* positions; the same up to a multiple of QUERIES */
    size_t dim, width;         /* of a head; up to a multiple of DL_TILE_N */
    size_t stride, out_stride; /* elements from position to position in qkv and out */
    const float *cosine, *sine;
    float scale;
    /* f32[padded][width] unless said otherwise */
    float *q, *k, *v, *dout, *dq, *dk, *dv;
    float *kt, *vt;        /* [dim][padded] */
    float *score, *dscore; /* [QUERIES][KEYS] */
    float *out;            /* [QUERIES][width] */
    float *top, *sum;      /* [QUERIES] */
    float *delta, *lse;    /* [padded] */
} task;

/* Pieces are handed out as an arena does; with base NULL they are only counted. */
static size_t carve(task *t, float *base)
{
    size_t tall = t->padded * t->width, flat = t->padded * t->dim, n = 0;
    struct {
        float **at;
        size_t n;
    } pieces[] = {{&t->q, tall},
                  {&t->k, tall},
                  {&t->v, tall},
                  {&t->dout, tall},
                  {&t->dq, tall},
                  {&t->dk, tall},
                  {&t->dv, tall},
                  {&t->kt, flat},
                  {&t->vt, flat},
                  {&t->score, QUERIES * KEYS},
                  {&t->dscore, QUERIES * KEYS},
                  {&t->out, QUERIES * t->width},
                  {&t->top, QUERIES},
                  {&t->sum, QUERIES},
                  {&t->delta, t->padded},
                  {&t->lse, t->padded}};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        if (base) *pieces[i].at = base + n;
        n += dl_size_round_up(pieces[i].n, DL_TILE_N);
    }
    return n;
}

/* Returns a task without its memory and its angles. */
static task task_of(const attributes *a, size_t length)
{
    return (task){.length = length,
                  .padded = dl_size_round_up(length, QUERIES),
                  .dim = a->dim,
                  .width = dl_size_round_up(a->dim, DL_TILE_N),
                  .stride = (a->heads + 2 * a->kv_heads) * a->dim,
                  .out_stride = a->heads * a->dim,
                  .scale = 1.0f / sqrtf((float)a->dim)};
}

static size_t scratch(const dl_graph *g, const dl_node *node)
{
    task t = task_of(attributes_of(node), g->max_length);
    return (size_t)g->target.n_threads * carve(&t, NULL) * sizeof(float);
}

/* ---- packing ------------------------------------------------------------------------- */

/* to[position][width] = from[position][dim] * scale, rotated if asked; padding is zero. */
static inline DL_BODY void pack(float *restrict to, const float *restrict from, size_t stride,
                                const task *t, float scale, bool rotate)
{
    size_t half = t->dim / 2;
    for (size_t i = 0; i < t->length; i++, to += t->width, from += stride) {
        const float *c = t->cosine + i * half, *s = t->sine + i * half;
        if (rotate)
            for (size_t d = 0; d < half; d++) {
                to[d] = (from[d] * c[d] - from[d + half] * s[d]) * scale;
                to[d + half] = (from[d + half] * c[d] + from[d] * s[d]) * scale;
            }
        else
            for (size_t d = 0; d < t->dim; d++)
                to[d] = from[d];
        for (size_t d = t->dim; d < t->width; d++)
            to[d] = 0;
    }
    memset(to, 0, (t->padded - t->length) * t->width * sizeof *to);
}

/* The opposite of pack, for gradients: a rotation's transpose is the rotation by -angle. */
static inline DL_BODY void unpack(float *restrict to, size_t stride, const float *restrict from,
                                  const task *t, float scale, bool rotate)
{
    size_t half = t->dim / 2;
    for (size_t i = 0; i < t->length; i++, to += stride, from += t->width) {
        const float *c = t->cosine + i * half, *s = t->sine + i * half;
        if (rotate)
            for (size_t d = 0; d < half; d++) {
                to[d] = (from[d] * c[d] + from[d + half] * s[d]) * scale;
                to[d + half] = (from[d + half] * c[d] - from[d] * s[d]) * scale;
            }
        else
            for (size_t d = 0; d < t->dim; d++)
                to[d] = from[d];
    }
}

/* to[dim][padded] from [padded][width], so that scores read whole vectors of keys. */
static inline DL_BODY void transpose(float *restrict to, const float *restrict from, const task *t)
{
    for (size_t i = 0; i < t->padded; i += DL_TILE_N)
        for (size_t d = 0; d < t->dim; d++)
            for (size_t l = 0; l < DL_TILE_N; l++)
                to[d * t->padded + i + l] = from[(i + l) * t->width + d];
}

/* ---- tiles --------------------------------------------------------------------------- */

/* Keys [key, key + n) that queries from `first` on look at: n is a multiple of QUERIES. */
static inline DL_BODY size_t chunk(size_t first, size_t key)
{
    size_t left = first + QUERIES - key;
    return left < KEYS ? left : KEYS;
}

/* One tile of a product of QUERIES rows and n columns: scores q k^T, or dO V^T. */
static inline DL_BODY void scores(const task *t, float *to, const float *rows, const float *columns,
                                  size_t first, size_t key, size_t n, int lanes)
{
    dl_tile_product(&(dl_tile){.c = to,
                               .c_row = KEYS,
                               .m = QUERIES,
                               .n = n,
                               .k = t->dim,
                               .a = rows + first * t->width,
                               .a_row = t->width,
                               .a_col = 1,
                               .b = columns + key,
                               .b_row = t->padded},
                    lanes);
}

/* Keys after each query get -infinity, whose exponential is exactly 0. A chunk begins at or before
 * its queries, so no row is masked as a whole. */
static inline DL_BODY void mask(float *score, size_t first, size_t key, size_t n)
{
    if (key + n <= first) return;
    for (size_t i = 0; i < QUERIES; i++)
        for (size_t j = first + i + 1 - key; j < n; j++)
            score[i * KEYS + j] = -INFINITY;
}

/* x = exp(x - top); gives the sum. */
static inline DL_BODY float row_exp(float *x, size_t n, float top)
{
    float sum = 0;
    DL_SUM(sum)
    for (size_t j = 0; j < n; j++) {
        x[j] = dl_exp_negative(x[j] - top);
        sum += x[j];
    }
    return sum;
}

/* The online softmax (Milakov, Gimelshein 2018, arXiv:1805.02867). Scores become exp(score - m),
 * where m is the largest so far. Earlier sums are multiplied by exp(old m - m). */
static inline DL_BODY void online_softmax(task *t, size_t n, bool begin, int lanes)
{
    for (size_t i = 0; i < QUERIES; i++) {
        float *row = t->score + i * KEYS, top = dl_row_max(row, n, lanes);
        if (!begin && t->top[i] > top) top = t->top[i];
        float sum = row_exp(row, n, top);
        if (!begin) {
            float shrink = dl_exp_negative(t->top[i] - top);
            sum += shrink * t->sum[i];
            for (size_t d = 0; d < t->width; d++)
                t->out[i * t->width + d] *= shrink;
        }
        t->top[i] = top;
        t->sum[i] = sum;
    }
}

/* ---- forward ------------------------------------------------------------------------- */

/* QUERIES queries from `first` on, over all chunks of keys up to the last of these queries. Rows
 * after the sequence's end are computed, since memory is padded, and not stored. */
static inline DL_BODY void queries_forward(task *t, float *out, float *lse, size_t first, int lanes)
{
    for (size_t key = 0; key < first + QUERIES; key += KEYS) {
        size_t n = chunk(first, key);
        scores(t, t->score, t->q, t->kt, first, key, n, lanes);
        mask(t->score, first, key, n);
        online_softmax(t, n, key == 0, lanes);
        dl_tile_product(&(dl_tile){.c = t->out,
                                   .c_row = t->width,
                                   .m = QUERIES,
                                   .n = t->width,
                                   .k = n,
                                   .a = t->score,
                                   .a_row = KEYS,
                                   .a_col = 1,
                                   .b = t->v + key * t->width,
                                   .b_row = t->width,
                                   .add = key > 0},
                        lanes);
    }
    for (size_t i = 0; i < QUERIES && first + i < t->length; i++) {
        float share = 1.0f / t->sum[i];
        for (size_t d = 0; d < t->dim; d++)
            out[(first + i) * t->out_stride + d] = t->out[i * t->width + d] * share;
        lse[first + i] = t->top[i] + logf(t->sum[i]);
    }
}

/* One head of keys and values and the `group` query heads that share it. out and lse belong
 * to the first of these. */
static inline DL_BODY void forward_body(task *t, float *out, float *lse, const float *q,
                                        const float *k, const float *v, size_t group, int lanes)
{
    pack(t->k, k, t->stride, t, 1.0f, true);
    transpose(t->kt, t->k, t);
    pack(t->v, v, t->stride, t, 1.0f, false);
    for (size_t h = 0; h < group; h++) {
        pack(t->q, q + h * t->dim, t->stride, t, t->scale, true);
        for (size_t first = 0; first < t->length; first += QUERIES)
            queries_forward(t, out + h * t->dim, lse + h * t->length, first, lanes);
    }
}

/* ---- backward ------------------------------------------------------------------------ */

/* The same tiles again, with the formulas at the top of the file. dk and dv are added up over the
 * queries, dq over the keys. Padded queries have dO = 0, and so add nothing to dk and dv. */
static inline DL_BODY void queries_backward(task *t, size_t first, int lanes)
{
    for (size_t key = 0; key < first + QUERIES; key += KEYS) {
        size_t n = chunk(first, key);
        scores(t, t->score, t->q, t->kt, first, key, n, lanes);
        mask(t->score, first, key, n);
        scores(t, t->dscore, t->dout, t->vt, first, key, n, lanes);
        for (size_t i = 0; i < QUERIES; i++) {
            float *p = t->score + i * KEYS, *ds = t->dscore + i * KEYS;
            float lse = t->lse[first + i], delta = t->delta[first + i];
            for (size_t j = 0; j < n; j++) {
                p[j] = dl_exp_negative(p[j] - lse);
                ds[j] = p[j] * (ds[j] - delta);
            }
        }
        dl_tile product = {.c_row = t->width,
                           .m = n,
                           .n = t->width,
                           .k = QUERIES,
                           .a_row = 1,
                           .a_col = KEYS,
                           .b_row = t->width,
                           .add = true};
        product.c = t->dv + key * t->width;
        product.a = t->score;
        product.b = t->dout + first * t->width;
        dl_tile_product(&product, lanes);
        product.c = t->dk + key * t->width;
        product.a = t->dscore;
        product.b = t->q + first * t->width;
        dl_tile_product(&product, lanes);
        dl_tile_product(&(dl_tile){.c = t->dq + first * t->width,
                                   .c_row = t->width,
                                   .m = QUERIES,
                                   .n = t->width,
                                   .k = n,
                                   .a = t->dscore,
                                   .a_row = KEYS,
                                   .a_col = 1,
                                   .b = t->k + key * t->width,
                                   .b_row = t->width,
                                   .add = key > 0},
                        lanes);
    }
}

/* Loads delta[position] = sum(dout * out), and the logsumexp, for one query head; both are 0 where
 * padded. delta is the row sum of dS's formula (Dao 2023, arXiv:2307.08691, algorithm 2): it equals
 * sum(P dP) over the keys. */
static inline DL_BODY void load_rows(task *t, const float *out, const float *lse)
{
    for (size_t i = 0; i < t->length; i++) {
        const float *x = t->dout + i * t->width, *y = out + i * t->out_stride;
        float sum = 0;
        DL_SUM(sum)
        for (size_t d = 0; d < t->dim; d++)
            sum += x[d] * y[d];
        t->delta[i] = sum;
        t->lse[i] = lse[i];
    }
    for (size_t i = t->length; i < t->padded; i++)
        t->delta[i] = t->lse[i] = 0;
}

/* q, k and v hold the data and become the gradients. k and v are packed before the heads, and each
 * head's q before it is overwritten. The scale is part of the packed q, so dk needs none. */
static inline DL_BODY void backward_body(task *t, float *q, float *k, float *v, const float *out,
                                         const float *dout, const float *lse, size_t group,
                                         int lanes)
{
    pack(t->k, k, t->stride, t, 1.0f, true);
    transpose(t->kt, t->k, t);
    pack(t->v, v, t->stride, t, 1.0f, false);
    transpose(t->vt, t->v, t);
    memset(t->dk, 0, t->padded * t->width * sizeof *t->dk);
    memset(t->dv, 0, t->padded * t->width * sizeof *t->dv);
    for (size_t h = 0; h < group; h++) {
        pack(t->q, q + h * t->dim, t->stride, t, t->scale, true);
        pack(t->dout, dout + h * t->dim, t->out_stride, t, 1.0f, false);
        load_rows(t, out + h * t->dim, lse + h * t->length);
        for (size_t first = 0; first < t->length; first += QUERIES)
            queries_backward(t, first, lanes);
        unpack(q + h * t->dim, t->stride, t->dq, t, t->scale, true);
    }
    unpack(k, t->stride, t->dk, t, 1.0f, true);
    unpack(v, t->stride, t->dv, t, 1.0f, false);
}

/* ---- dispatch ------------------------------------------------------------------------ */

DL_TILE_KERNEL(head_forward,
               (task * t, float *out, float *lse, const float *q, const float *k, const float *v,
                size_t group),
               forward_body(t, out, lse, q, k, v, group, lanes))
DL_TILE_KERNEL(head_backward,
               (task * t, float *q, float *k, float *v, const float *out, const float *dout,
                const float *lse, size_t group),
               backward_body(t, q, k, v, out, dout, lse, group, lanes))

/* Runs this part's tasks. lse is [rows][heads][length]; its heads of one task are adjacent. */
static void run_tasks(const dl_pass *p, int part, int n_parts, bool back)
{
    const attributes *a = attributes_of(p->node);
    size_t group = a->heads / a->kv_heads, half = a->dim / 2, begin, end;
    dl_isa isa = dl_isa_chosen();
    task t = task_of(a, p->batch.length);
    t.cosine = p->node->constant;
    t.sine = t.cosine + p->graph->max_length * half;
    carve(&t, (float *)p->scratch + (size_t)part * carve(&t, NULL));
    dl_part_range(&begin, &end, p->batch.rows * a->kv_heads, 1, part, n_parts);
    for (size_t i = begin; i < end; i++) {
        size_t row = i / a->kv_heads, kv = i % a->kv_heads, at = row * p->batch.length;
        float *q = dl_data(p, p->node->in[0]) + at * t.stride + kv * group * a->dim;
        float *k = dl_data(p, p->node->in[0]) + at * t.stride + (a->heads + kv) * a->dim;
        float *v = k + a->kv_heads * a->dim;
        float *out = dl_data(p, p->node->out[0]) + at * t.out_stride + kv * group * a->dim;
        float *lse = dl_data(p, p->node->saved) + at * a->heads + kv * group * p->batch.length;
        if (!back) {
            head_forward[isa](&t, out, lse, q, k, v, group);
        } else {
            const float *dout =
                dl_grad(p, p->node->out[0]) + at * t.out_stride + kv * group * a->dim;
            head_backward[isa](&t, q, k, v, out, dout, lse, group);
        }
    }
}

static void forward_part(void *context, int part, int n_parts)
{
    run_tasks(context, part, n_parts, false);
}
static void backward_part(void *context, int part, int n_parts)
{
    run_tasks(context, part, n_parts, true);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, forward_part, &copy);
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, backward_part, &copy);
}

/* ---- on a GPU */

/* The table of angles goes to the device in pieces, since an operation allocates nothing. */
static void prepare_on_cuda(const dl_pass *p)
{
    enum { PIECE = 256 };
    float cosine[PIECE], sine[PIECE];
    const attributes *a = attributes_of(p->node);
    const size_t half = a->dim / 2, n = p->graph->max_length * half;
    float *table = p->node->constant;
    for (size_t at = 0, count; at < n; at += count) {
        count = dl_size_min(n - at, PIECE);
        for (size_t i = 0; i < count; i++) {
            const double angle = dl_rope_angle(&a->rope, (at + i) / half, (at + i) % half, a->dim);
            cosine[i] = (float)cos(angle);
            sine[i] = (float)sin(angle);
        }
        dl_backend_copy_in(p->graph->backend, table + at, cosine, count * sizeof *cosine);
        dl_backend_copy_in(p->graph->backend, table + n + at, sine, count * sizeof *sine);
    }
}

/* delta of each query and head. Kernels rotate what they load, and scores exist in tiles only. */
static size_t scratch_on_cuda(const dl_graph *g, const dl_node *node)
{
    return g->target.max_rows * g->max_length * attributes_of(node)->heads * sizeof(float);
}

static dl_cuda_attention_arguments arguments_of(const dl_pass *p)
{
    const attributes *a = attributes_of(p->node);
    const float *cosine = p->node->constant;
    return (dl_cuda_attention_arguments){.qkv = dl_data(p, p->node->in[0]),
                                         .cosine = cosine,
                                         .sine = cosine + p->graph->max_length * (a->dim / 2),
                                         .out = dl_data(p, p->node->out[0]),
                                         .lse = dl_data(p, p->node->saved),
                                         .delta = p->scratch,
                                         .rows = p->batch.rows,
                                         .length = p->batch.length,
                                         .heads = a->heads,
                                         .kv_heads = a->kv_heads,
                                         .dim = a->dim,
                                         .scale = 1.0f / sqrtf((float)a->dim)};
}

static void forward_on_cuda(const dl_pass *p)
{
    const dl_cuda_attention_arguments a = arguments_of(p);
    DL_CUDA_START_ON_VALUES(p, "dl_attention_forward",
                            dl_cuda_attention_threads(&a, a.heads, DL_CUDA_FORWARD_ROWS), a);
}

static void backward_on_cuda(const dl_pass *p)
{
    dl_cuda_attention_arguments a = arguments_of(p);
    a.dout = dl_grad(p, p->node->out[0]);
    a.dqkv = dl_grad(p, p->node->in[0]);
    DL_CUDA_START_ON_VALUES(p, "dl_attention_delta", p->positions * a.heads * DL_CUDA_WARP, a);
    DL_CUDA_START_ON_VALUES(p, "dl_attention_queries",
                            dl_cuda_attention_threads(&a, a.heads, DL_CUDA_BACKWARD_ROWS), a);
    DL_CUDA_START_ON_VALUES(p, "dl_attention_keys",
                            dl_cuda_attention_threads(&a, a.kv_heads, DL_CUDA_BACKWARD_ROWS), a);
}

const dl_op dl_op_attention = {
    .name = "attention",
    .keeps = DL_KEEP_IN0 | DL_KEEP_OUT0,
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch, [DL_DEVICE_CUDA] = scratch_on_cuda},
    .flops = flops,
    .prepare = {[DL_DEVICE_CPU] = prepare, [DL_DEVICE_CUDA] = prepare_on_cuda},
    .forward = {[DL_DEVICE_CPU] = forward, [DL_DEVICE_CUDA] = forward_on_cuda},
    .backward = {[DL_DEVICE_CPU] = backward, [DL_DEVICE_CUDA] = backward_on_cuda},
};
