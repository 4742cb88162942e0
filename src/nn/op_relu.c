/* op_relu.c - y = max(x, 0), dx = dy where y > 0, both in place: the operation before reads x no
 * more. A NaN stays one. */
#include "nn/cpu/vec.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

int dl_relu(dl_graph *g, int x)
{
    return dl_graph_add(g, &dl_op_relu, x, DL_NO_VALUE, DL_NO_WEIGHT, 0, NULL, 0)->out[0];
}

/* y has x's buffers, for data and gradient. */
static void shape(dl_graph *g, dl_node *node)
{
    const dl_value *x = &g->values[node->in[0]];
    DL_ASSERT(dl_may_overwrite(g, node->in[0]) && !x->constant);
    int data = x->data, grad = x->grad;
    node->out[0] = dl_graph_value(g, x->width);
    g->values[node->out[0]].data = data;
    g->values[node->out[0]].grad = grad;
}

/* The comparison is false for a NaN, which stays. */
static inline DL_BODY void forward_body(float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}
DL_KERNEL(forward_range, (float *y, size_t n), forward_body(y, n))

/* y > 0 exactly where x > 0, so x itself is not needed. */
static inline DL_BODY void backward_body(float *restrict dy, const float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dy[i] = y[i] > 0 ? dy[i] : 0;
}
DL_KERNEL(backward_range, (float *dy, const float *y, size_t n), backward_body(dy, y, n))

static void forward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t begin, end, n = p->positions * dl_width(p, p->node->out[0]);
    dl_part_range(&begin, &end, n, 16, part, n_parts);
    dl_isa_call(forward_range)(dl_data(p, p->node->out[0]) + begin, end - begin);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, forward_part, &copy);
}

static void backward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t begin, end, n = p->positions * dl_width(p, p->node->out[0]);
    dl_part_range(&begin, &end, n, 16, part, n_parts);
    dl_isa_call(backward_range)(dl_grad(p, p->node->out[0]) + begin,
                                dl_data(p, p->node->out[0]) + begin, end - begin);
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, backward_part, &copy);
}

const dl_op dl_op_relu = {
    .name = "relu",
    .keeps = DL_KEEP_OUT0,
    .in_place = true,
    .shape = shape,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
