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

static double flops(const dl_graph *g, const dl_node *node)
{
    return 2.0 * (double)g->values[node->in[0]].width * (double)g->values[node->out[0]].width;
}

static void product(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t in = dl_width(p, p->node->in[0]), out = dl_width(p, p->node->out[0]), begin, end;
    dl_gemm_args y = {.trans_a = 'N',
                      .trans_b = 'T',
                      .m = p->positions,
                      .n = out,
                      .k = in,
                      .a = dl_data(p, p->node->in[0]),
                      .lda = in,
                      .b = dl_weight_data(p),
                      .ldb = in,
                      .c = dl_data(p, p->node->out[0]),
                      .ldc = out};
    dl_part_range(&begin, &end, y.m, DL_GEMM_GRAIN, part, n_parts);
    dl_gemm_rows(&y, begin, end);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, product, &copy);
}

static void gradients(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t in = dl_width(p, p->node->in[0]), out = dl_width(p, p->node->out[0]), begin, end;
    const float *dy = dl_grad(p, p->node->out[0]);
    dl_gemm_args dx = {.trans_a = 'N',
                       .trans_b = 'N',
                       .m = p->positions,
                       .n = in,
                       .k = out,
                       .a = dy,
                       .lda = out,
                       .b = dl_weight_data(p),
                       .ldb = in,
                       .c = dl_grad(p, p->node->in[0]),
                       .ldc = in};
    dl_gemm_args dw = {.trans_a = 'T',
                       .trans_b = 'N',
                       .m = out,
                       .n = in,
                       .k = p->positions,
                       .a = dy,
                       .lda = out,
                       .b = dl_data(p, p->node->in[0]),
                       .ldb = in,
                       .c = dl_weight_grad(p),
                       .ldc = in,
                       .beta = dl_weight_adds(p) ? 1.0f : 0.0f};
    dl_part_range(&begin, &end, dx.m, DL_GEMM_GRAIN, part, n_parts);
    dl_gemm_rows(&dx, begin, end);
    dl_part_range(&begin, &end, dw.m, DL_GEMM_GRAIN, part, n_parts);
    dl_gemm_rows(&dw, begin, end);
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
    .flops = flops,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
