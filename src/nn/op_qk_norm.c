/* op_qk_norm.c - RMSNorm of each head of queries and of keys over its dim elements. All query heads
 * have one learned scale, and all key heads another; values pass through.
 *
 *     r = 1 / sqrt(mean(x^2) + eps),  y = x r w
 *     dx = r (w dy - x r^2 mean(w dy x)),  dw = sum over positions and heads of dy x r
 *
 * r is made again in the backward pass, which is cheaper than to keep it. Gradients are written
 * over x, which no operation needs by then. dw is added up by thread, then over the threads in
 * order. */
#include "nn/cpu/vec.h"
#include "nn/cuda/start.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

typedef struct attributes {
    size_t heads, kv_heads, dim;
    float eps;
} attributes;

int dl_qk_norm(dl_graph *g, int qkv, int weight, size_t heads, size_t kv_heads, float eps)
{
    attributes a = {heads, kv_heads, g->weights[weight].columns, eps};
    return dl_graph_add(g, &dl_op_qk_norm, qkv, DL_NO_VALUE, weight, 2, &a, sizeof a)->out[0];
}

static const attributes *attributes_of(const dl_node *node)
{
    return (const void *)node->attributes;
}

/* The gradient is written over the data, on every device: a head is read before it is written. */
static void shape(dl_graph *g, dl_node *node)
{
    const attributes *a = attributes_of(node);
    dl_value *in = &g->values[node->in[0]];
    DL_ASSERT(in->width == (a->heads + 2 * a->kv_heads) * a->dim);
    DL_ASSERT(g->weights[node->weight + 1].columns == a->dim);
    in->grad = in->data;
    node->out[0] = dl_graph_value(g, in->width);
}

/* Each thread's sums of dw, of queries and of keys. */
static size_t scratch(const dl_graph *g, const dl_node *node)
{
    return (size_t)g->target.n_threads * 2 * attributes_of(node)->dim * sizeof(float);
}

/* r = 1 / sqrt(mean(x^2) + eps) of one head. */
static inline DL_BODY float inverse_root(const float *x, size_t n, float eps)
{
    float squares = 0;
    DL_SUM(squares)
    for (size_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    return 1.0f / sqrtf(squares / (float)n + eps);
}

/* One position: w[2][dim] are the scales of queries and of keys. */
static inline DL_BODY void forward_body(float *y, const float *x, const float *w,
                                        const attributes *a)
{
    size_t n_heads = a->heads + a->kv_heads;
    for (size_t h = 0; h < n_heads; h++, x += a->dim, y += a->dim) {
        const float *scale = h < a->heads ? w : w + a->dim;
        float r = inverse_root(x, a->dim, a->eps);
        DL_EACH
        for (size_t i = 0; i < a->dim; i++)
            y[i] = x[i] * r * scale[i];
    }
    memcpy(y, x, a->kv_heads * a->dim * sizeof *y);
}
DL_KERNEL(forward_position, (float *y, const float *x, const float *w, const attributes *a),
          forward_body(y, x, w, a))

/* One position: x becomes its gradient, and dw is this thread's sum. `back` is r^3 mean(w dy x). */
static inline DL_BODY void backward_body(float *x, float *dw, const float *dy, const float *w,
                                         const attributes *a)
{
    size_t n_heads = a->heads + a->kv_heads;
    for (size_t h = 0; h < n_heads; h++, x += a->dim, dy += a->dim) {
        size_t which = h < a->heads ? 0 : a->dim;
        float r = inverse_root(x, a->dim, a->eps), dot = 0;
        DL_SUM(dot)
        for (size_t i = 0; i < a->dim; i++) {
            dot += dy[i] * x[i] * w[which + i];
            dw[which + i] += dy[i] * x[i] * r;
        }
        float back = r * r * r * dot / (float)a->dim;
        DL_EACH
        for (size_t i = 0; i < a->dim; i++)
            x[i] = r * w[which + i] * dy[i] - back * x[i];
    }
    memcpy(x, dy, a->kv_heads * a->dim * sizeof *x);
}
DL_KERNEL(backward_position,
          (float *x, float *dw, const float *dy, const float *w, const attributes *a),
          backward_body(x, dw, dy, w, a))

static void forward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t width = dl_width(p, p->node->in[0]), begin, end;
    const float *x = dl_data(p, p->node->in[0]), *w = dl_weight_data(p);
    float *y = dl_data(p, p->node->out[0]);
    dl_part_range(&begin, &end, p->positions, 16, part, n_parts);
    for (size_t i = begin; i < end; i++)
        dl_isa_call(forward_position)(y + i * width, x + i * width, w, attributes_of(p->node));
}

static void backward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const attributes *a = attributes_of(p->node);
    size_t width = dl_width(p, p->node->in[0]), begin, end;
    float *x = dl_data(p, p->node->in[0]), *dw = (float *)p->scratch + (size_t)part * 2 * a->dim;
    const float *dy = dl_grad(p, p->node->out[0]), *w = dl_weight_data(p);
    memset(dw, 0, 2 * a->dim * sizeof *dw);
    dl_part_range(&begin, &end, p->positions, 16, part, n_parts);
    for (size_t i = begin; i < end; i++)
        dl_isa_call(backward_position)(x + i * width, dw, dy + i * width, w, a);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, forward_part, &copy);
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    size_t n = 2 * attributes_of(p->node)->dim;
    float *dw = dl_weight_grad(p);
    dl_pool_run(p->pool, backward_part, &copy);
    if (!dl_weight_adds(p)) memset(dw, 0, n * sizeof *dw);
    for (int part = 0; part < dl_pool_size(p->pool); part++)
        for (size_t i = 0; i < n; i++)
            dw[i] += ((const float *)p->scratch)[(size_t)part * n + i];
}

/* ---- on a GPU */

/* Memory of backward: r of each head, then the chunks' sums of dw. */
static size_t scratch_on_cuda(const dl_graph *g, const dl_node *node)
{
    const attributes *a = attributes_of(node);
    const size_t positions = g->target.max_rows * g->max_length;
    return (positions * (a->heads + a->kv_heads) + dl_cuda_chunks(positions) * 2 * a->dim) *
           sizeof(float);
}

static dl_cuda_qk_norm_arguments arguments_of(const dl_pass *p)
{
    const attributes *a = attributes_of(p->node);
    return (dl_cuda_qk_norm_arguments){.x = dl_data(p, p->node->in[0]),
                                       .w = dl_weight_data(p),
                                       .positions = p->positions,
                                       .heads = a->heads,
                                       .kv_heads = a->kv_heads,
                                       .dim = a->dim,
                                       .eps = a->eps};
}

static void forward_on_cuda(const dl_pass *p)
{
    dl_cuda_qk_norm_arguments a = arguments_of(p);
    a.y = dl_data(p, p->node->out[0]);
    DL_CUDA_START_ON_VALUES(p, "dl_qk_norm_forward",
                            a.positions * (a.heads + 2 * a.kv_heads) * DL_CUDA_WARP, a);
}

/* dx may be x, so the kernel that writes it is the last one. The others read x before. */
static void backward_on_cuda(const dl_pass *p)
{
    dl_cuda_qk_norm_arguments a = arguments_of(p);
    const size_t heads = a.heads + a.kv_heads, width = 2 * a.dim;
    a.dy = dl_grad(p, p->node->out[0]);
    a.dx = dl_grad(p, p->node->in[0]);
    a.r = p->scratch;
    a.partial = a.r + a.positions * heads;
    const dl_cuda_norm_arguments sum = {.partial = a.partial,
                                        .dw = dl_weight_grad(p),
                                        .positions = a.positions,
                                        .width = width,
                                        .dw_adds = dl_weight_adds(p)};
    DL_CUDA_START_ON_VALUES(p, "dl_qk_norm_roots", a.positions * heads * DL_CUDA_WARP, a);
    DL_CUDA_START_ON_VALUES(p, "dl_qk_norm_partial", dl_cuda_chunks(a.positions) * width, a);
    DL_CUDA_START(p, "dl_norm_weight", width, sum);
    DL_CUDA_START_ON_VALUES(p, "dl_qk_norm_backward",
                            a.positions * (heads + a.kv_heads) * DL_CUDA_WARP, a);
}

const dl_op dl_op_qk_norm = {
    .name = "qk_norm",
    .keeps = DL_KEEP_IN0,
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch, [DL_DEVICE_CUDA] = scratch_on_cuda},
    .forward = {[DL_DEVICE_CPU] = forward, [DL_DEVICE_CUDA] = forward_on_cuda},
    .backward = {[DL_DEVICE_CPU] = backward, [DL_DEVICE_CUDA] = backward_on_cuda},
};
