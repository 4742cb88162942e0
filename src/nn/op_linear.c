/* op_linear.c - y = x W^T, dx = dy W, dW = dy^T x. Threads split the positions of y and dx
 * and the rows of dW. */
#include "nn/gemm.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

int dl_linear(dl_graph *g, int x, int weight, int n_weights)
{
    return dl_graph_add(g, &dl_op_linear, x, DL_NO_VALUE, weight, n_weights, NULL, 0)->out[0];
}

static size_t out_width(const dl_graph *g, const dl_node *node)
{
    size_t rows = 0;
    for (int i = 0; i < node->n_weights; i++) {
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
    return (size_t)g->n_threads * DL_GEMM_WORKSPACE * sizeof(float);
}

static double flops(const dl_graph *g, const dl_node *node)
{
    return 2.0 * (double)g->values[node->in[0]].width * (double)g->values[node->out[0]].width;
}

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
    dl_gemm_part(&y, part, n_parts, p->scratch);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, product, &copy);
}

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
    dl_gemm_part(&dx, part, n_parts, p->scratch);
    dl_gemm_part(&dw, part, n_parts, p->scratch);
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, gradients, &copy);
}

const dl_op dl_op_linear = {
    .name = "linear",
    .keeps = DL_KEEP_IN0,
    .shape = shape,
    .scratch = scratch,
    .flops = flops,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
