/* op_linear.c - y = x W^T (+ bias), dx = dy W, dW = dy^T x, db = the sum of dy. Threads split the
 * positions of y and dx, the rows of dW and the columns of db. Of a constant x there is no dx. */
#include "nn/cpu/vec.h"
#include "nn/cuda/start.h"
#include "nn/gemm.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

typedef struct attributes {
    bool bias; /* the last weight */
} attributes;

static int add(dl_graph *g, int x, int weight, int n_weights, bool bias)
{
    attributes a = {bias};
    return dl_graph_add(g, &dl_op_linear, x, DL_NO_VALUE, weight, n_weights, &a, sizeof a)->out[0];
}

int dl_linear(dl_graph *g, int x, int weight, int n_weights)
{
    return add(g, x, weight, n_weights, false);
}

int dl_linear_bias(dl_graph *g, int x, int weight)
{
    DL_ASSERT(g->weights[weight + 1].columns == g->weights[weight].rows);
    return add(g, x, weight, 2, true);
}

/* Returns NULL for a linear operation without a bias. */
static const dl_weight *bias_of(const dl_graph *g, const dl_node *node)
{
    const attributes *a = (const void *)node->attributes;
    return a->bias ? &g->weights[node->weight + node->n_weights - 1] : NULL;
}

/* Returns the rows of all weights together, without the bias. Adjacent weights of equal width are
 * one matrix in memory. */
static size_t out_width(const dl_graph *g, const dl_node *node)
{
    size_t rows = 0;
    for (int i = 0; i < node->n_weights; i++) {
        if (&g->weights[node->weight + i] == bias_of(g, node)) break;
        DL_ASSERT(g->weights[node->weight + i].columns == g->values[node->in[0]].width);
        rows += g->weights[node->weight + i].rows;
    }
    return rows;
}

static void shape(dl_graph *g, dl_node *node)
{
    node->out[0] = dl_graph_value(g, out_width(g, node));
}

static size_t scratch(const dl_graph *g, const dl_node *node)
{
    (void)node;
    return (size_t)g->target.n_threads * DL_GEMM_WORKSPACE * sizeof(float);
}

/* A multiplication and an addition for each element of W. */
static double flops(const dl_graph *g, const dl_node *node)
{
    return 2.0 * (double)g->values[node->in[0]].width * (double)g->values[node->out[0]].width;
}

/* This part's rows of y. They begin as the bias, to which the product is added. */
static void product(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    dl_gemm_args y = {'N',
                      'T',
                      p->positions,
                      dl_width(p, p->node->out[0]),
                      dl_width(p, p->node->in[0]),
                      dl_data(p, p->node->out[0]),
                      dl_data(p, p->node->in[0]),
                      dl_weight_data(p),
                      false};
    const dl_weight *bias = bias_of(p->graph, p->node);
    size_t begin, end;
    dl_gemm_range(&begin, &end, y.m, part, n_parts);
    for (size_t i = begin; bias && i < end; i++)
        memcpy(y.c + i * y.n, p->graph->parameters + bias->offset, y.n * sizeof *y.c);
    y.add = bias != NULL;
    dl_gemm_part(&y, part, n_parts, p->scratch);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, product, &copy);
}

static inline DL_BODY void add_row_body(float *restrict sum, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += x[i];
}
DL_KERNEL(add_row, (float *sum, const float *x, size_t n), add_row_body(sum, x, n))

/* db of this part's columns, in the order of the positions: the same at any number of threads. */
static void bias_gradient(const dl_pass *p, int part, int n_parts)
{
    const dl_weight *bias = bias_of(p->graph, p->node);
    size_t begin, end, width = dl_width(p, p->node->out[0]);
    if (!bias) return;
    float *db = p->graph->gradients + bias->offset;
    const float *dy = dl_grad(p, p->node->out[0]);
    dl_part_range(&begin, &end, width, 16, part, n_parts);
    if (!dl_weight_adds(p)) memset(db + begin, 0, (end - begin) * sizeof *db);
    for (size_t i = 0; i < p->positions; i++)
        dl_isa_call(add_row)(db + begin, dy + i * width + begin, end - begin);
}

/* This part's rows of dx, rows of dW and columns of db. */
static void gradients(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t in = dl_width(p, p->node->in[0]), out = dl_width(p, p->node->out[0]);
    const float *dy = dl_grad(p, p->node->out[0]);
    dl_gemm_args dx = {
        'N', 'N', p->positions, in, out, dl_grad(p, p->node->in[0]), dy, dl_weight_data(p), false};
    dl_gemm_args dw = {'T',
                       'N',
                       out,
                       in,
                       p->positions,
                       dl_weight_grad(p),
                       dy,
                       dl_data(p, p->node->in[0]),
                       dl_weight_adds(p)};
    if (!p->graph->values[p->node->in[0]].constant) dl_gemm_part(&dx, part, n_parts, p->scratch);
    dl_gemm_part(&dw, part, n_parts, p->scratch);
    bias_gradient(p, part, n_parts);
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, gradients, &copy);
}

/* ---- on a GPU */

static void forward_on_cuda(const dl_pass *p)
{
    const size_t in = dl_width(p, p->node->in[0]), out = dl_width(p, p->node->out[0]);
    const dl_weight *bias = bias_of(p->graph, p->node);
    const dl_cuda_product_arguments y = {.c = dl_data(p, p->node->out[0]),
                                         .a = dl_data(p, p->node->in[0]),
                                         .b = dl_cuda_weights(p),
                                         .bias = bias ? p->graph->parameters + bias->offset : NULL,
                                         .m = p->positions,
                                         .n = out,
                                         .k = in,
                                         .a_row = in,
                                         .a_column = 1,
                                         .b_row = 1,
                                         .b_column = in};
    dl_cuda_product(p, &y);
}

/* db = sum over positions of dy, by one thread a channel. */
static void bias_gradient_on_cuda(const dl_pass *p)
{
    const dl_weight *bias = bias_of(p->graph, p->node);
    if (!bias) return;
    const dl_cuda_bias_arguments a = {.db = p->graph->gradients + bias->offset,
                                      .dy = dl_grad(p, p->node->out[0]),
                                      .positions = p->positions,
                                      .width = dl_width(p, p->node->out[0]),
                                      .add = dl_weight_adds(p)};
    DL_CUDA_START_ON_VALUES(p, "dl_bias_gradient", a.width, a);
}

/* dx = dy W and dW = dy^T x, as on the CPU, by a kernel each. */
static void backward_on_cuda(const dl_pass *p)
{
    const size_t in = dl_width(p, p->node->in[0]), out = dl_width(p, p->node->out[0]);
    const float *dy = dl_grad(p, p->node->out[0]);
    const dl_cuda_product_arguments dx = {.c = dl_grad(p, p->node->in[0]),
                                          .a = dy,
                                          .b = dl_cuda_weights(p),
                                          .m = p->positions,
                                          .n = in,
                                          .k = out,
                                          .a_row = out,
                                          .a_column = 1,
                                          .b_row = in,
                                          .b_column = 1};
    const dl_cuda_product_arguments dw = {.c = dl_weight_grad(p),
                                          .a = dy,
                                          .b = dl_data(p, p->node->in[0]),
                                          .m = out,
                                          .n = in,
                                          .k = p->positions,
                                          .a_row = 1,
                                          .a_column = out,
                                          .b_row = in,
                                          .b_column = 1,
                                          .add = dl_weight_adds(p)};
    dl_cuda_product_f32(p, &dw); /* first: dx may be written over x */
    if (!p->graph->values[p->node->in[0]].constant) dl_cuda_product(p, &dx);
    bias_gradient_on_cuda(p);
}

const dl_op dl_op_linear = {
    .name = "linear",
    .keeps = DL_KEEP_IN0,
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch},
    .flops = flops,
    .forward = {[DL_DEVICE_CPU] = forward, [DL_DEVICE_CUDA] = forward_on_cuda},
    .backward = {[DL_DEVICE_CPU] = backward, [DL_DEVICE_CUDA] = backward_on_cuda},
};
