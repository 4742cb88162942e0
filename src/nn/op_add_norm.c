/* op_add_norm.c - residual sum and RMSNorm in one walk.
 *
 *     s = x + delta,  r = 1 / sqrt(mean(s^2) + eps),  y = s r w
 *     ds += r (w dy - s r^2 mean(w dy s)),  dw = sum over positions of dy s r
 *
 * The gradients of x, delta and s are one buffer: it carries the residual stream's gradient
 * down the whole model, and each norm adds its part. r is saved. dw is added up by thread,
 * then over the threads in order. */
#include "nn/cpu/vec.h"
#include "nn/cuda/start.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

typedef struct attributes {
    float eps; /* added to the mean square */
} attributes;

int dl_add_norm(dl_graph *g, int *sum, int x, int delta, int weight, float eps)
{
    dl_node *node = dl_graph_add(g, &dl_op_add_norm, x, delta, weight, 1, &(attributes){eps},
                                 sizeof(attributes));
    if (sum) *sum = node->out[0];
    return node->out[1];
}

/* out[0] is s, out[1] is y, and saved is r, one number a position. */
static void shape(dl_graph *g, dl_node *node)
{
    int x = node->in[0], delta = node->in[1];
    size_t width = g->values[x].width;
    int sum = dl_graph_value(g, width);
    DL_ASSERT(g->weights[node->weight].columns == width);
    g->values[sum].grad = g->values[x].grad;
    if (delta == DL_NO_VALUE) {
        g->values[sum].data = g->values[x].data;
    } else {
        DL_ASSERT(g->values[delta].width == width);
        g->values[delta].grad = g->values[x].grad;
    }
    node->out[0] = sum;
    node->out[1] = dl_graph_value(g, width);
    node->saved = dl_graph_value_f32(g, 1);
}

/* A sum of dw for each thread. */
static size_t scratch(const dl_graph *g, const dl_node *node)
{
    return (size_t)g->target.n_threads * g->weights[node->weight].columns * sizeof(float);
}

/* One position. delta NULL: s is x and stays as it is. DL_SUM lets the compiler add in lanes, so r
 * depends on the instruction set in its last bits. */
static inline DL_BODY void forward_body(float *y, float *r, float *s, const float *x,
                                        const float *delta, const float *w, size_t n, float eps)
{
    float squares = 0;
    if (delta) {
        DL_SUM(squares)
        for (size_t i = 0; i < n; i++) {
            s[i] = x[i] + delta[i];
            squares += s[i] * s[i];
        }
    } else {
        DL_SUM(squares)
        for (size_t i = 0; i < n; i++)
            squares += s[i] * s[i];
    }
    float scale = 1.0f / sqrtf(squares / (float)n + eps);
    DL_EACH
    for (size_t i = 0; i < n; i++)
        y[i] = s[i] * scale * w[i];
    *r = scale;
}
DL_KERNEL(forward_row,
          (float *y, float *r, float *s, const float *x, const float *delta, const float *w,
           size_t n, float eps),
          forward_body(y, r, s, x, delta, w, n, eps))

/* One position. `back` is r^3 mean(w dy s) of the formula above; dw is this thread's sum. add: ds
 * holds the gradient of the residual stream already. */
static inline DL_BODY void backward_body(float *ds, float *dw, const float *dy, const float *s,
                                         const float *w, size_t n, float r, bool add)
{
    float dot = 0;
    DL_SUM(dot)
    for (size_t i = 0; i < n; i++) {
        dot += dy[i] * s[i] * w[i];
        dw[i] += dy[i] * s[i] * r;
    }
    float back = r * r * r * dot / (float)n;
    DL_EACH
    for (size_t i = 0; i < n; i++)
        ds[i] = (add ? ds[i] : 0) + r * w[i] * dy[i] - back * s[i];
}
DL_KERNEL(backward_row,
          (float *ds, float *dw, const float *dy, const float *s, const float *w, size_t n, float r,
           bool add),
          backward_body(ds, dw, dy, s, w, n, r, add))

static void forward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const dl_node *node = p->node;
    const attributes *a = (const void *)node->attributes;
    size_t width = dl_width(p, node->in[0]), begin, end;
    const float *x = dl_data(p, node->in[0]), *w = dl_weight_data(p);
    const float *delta = node->in[1] == DL_NO_VALUE ? NULL : dl_data(p, node->in[1]);
    float *s = dl_data(p, node->out[0]), *y = dl_data(p, node->out[1]),
          *r = dl_data(p, node->saved);
    dl_part_range(&begin, &end, p->positions, 16, part, n_parts);
    for (size_t i = begin; i < end; i++)
        forward_row[dl_isa_chosen()](y + i * width, r + i, s + i * width, x + i * width,
                                     delta ? delta + i * width : NULL, w, width, a->eps);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, forward_part, &copy);
}

static void backward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const dl_node *node = p->node;
    size_t width = dl_width(p, node->in[0]), begin, end;
    float *ds = dl_grad(p, node->out[0]), *dw = (float *)p->scratch + (size_t)part * width;
    const float *dy = dl_grad(p, node->out[1]), *s = dl_data(p, node->out[0]);
    const float *w = dl_weight_data(p), *r = dl_data(p, node->saved);
    bool add = p->graph->values[node->out[0]].consumer >= 0;
    memset(dw, 0, width * sizeof *dw);
    dl_part_range(&begin, &end, p->positions, 16, part, n_parts);
    for (size_t i = begin; i < end; i++)
        backward_row[dl_isa_chosen()](ds + i * width, dw, dy + i * width, s + i * width, w, width,
                                      r[i], add);
}

/* The threads' sums of dw are added in their order. So dw, unlike a product, depends on the number
 * of threads. */
static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    size_t width = dl_width(p, p->node->in[0]);
    float *dw = dl_weight_grad(p);
    dl_pool_run(p->pool, backward_part, &copy);
    if (!dl_weight_adds(p)) memset(dw, 0, width * sizeof *dw);
    for (int part = 0; part < dl_pool_size(p->pool); part++)
        for (size_t i = 0; i < width; i++)
            dw[i] += ((const float *)p->scratch)[(size_t)part * width + i];
}

/* ---- on a GPU */

static size_t scratch_on_cuda(const dl_graph *g, const dl_node *node)
{
    return dl_cuda_chunks(g->target.max_rows * g->max_length) * g->weights[node->weight].columns *
           sizeof(float);
}

static dl_cuda_norm_arguments arguments_of(const dl_pass *p)
{
    const dl_node *node = p->node;
    const attributes *a = (const void *)node->attributes;
    return (dl_cuda_norm_arguments){.s = dl_data(p, node->out[0]),
                                    .y = dl_data(p, node->out[1]),
                                    .r = dl_data(p, node->saved),
                                    .x = dl_data(p, node->in[0]),
                                    .delta =
                                        node->in[1] == DL_NO_VALUE ? NULL : dl_data(p, node->in[1]),
                                    .weight = dl_weight_data(p),
                                    .positions = p->positions,
                                    .width = dl_width(p, node->in[0]),
                                    .eps = a->eps};
}

static void forward_on_cuda(const dl_pass *p)
{
    const dl_cuda_norm_arguments a = arguments_of(p);
    DL_CUDA_START_ON_VALUES(p, "dl_norm_forward", a.positions * DL_CUDA_WARP, a);
}

/* dw by chunks of positions, then over the chunks: two kernels, because no kernel adds atomically.
 */
static void backward_on_cuda(const dl_pass *p)
{
    dl_cuda_norm_arguments a = arguments_of(p);
    a.dy = dl_grad(p, p->node->out[1]);
    a.ds = dl_grad(p, p->node->out[0]);
    a.dw = dl_weight_grad(p);
    a.partial = p->scratch;
    a.ds_adds = p->graph->values[p->node->out[0]].consumer >= 0;
    a.dw_adds = dl_weight_adds(p);
    DL_CUDA_START_ON_VALUES(p, "dl_norm_backward", a.positions * DL_CUDA_WARP, a);
    DL_CUDA_START_ON_VALUES(p, "dl_norm_partial", dl_cuda_chunks(a.positions) * a.width, a);
    DL_CUDA_START(p, "dl_norm_weight", a.width, a);
}

const dl_op dl_op_add_norm = {
    .name = "add_norm",
    .keeps = DL_KEEP_OUT0,
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch, [DL_DEVICE_CUDA] = scratch_on_cuda},
    .forward = {[DL_DEVICE_CPU] = forward, [DL_DEVICE_CUDA] = forward_on_cuda},
    .backward = {[DL_DEVICE_CPU] = backward, [DL_DEVICE_CUDA] = backward_on_cuda},
};
