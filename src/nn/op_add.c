/* op_add.c - y = a + b, written over a. The gradients of both are dy itself, in one memory, so
 * neither may come from an operation that turns its gradient into another in place. */
#include "nn/cpu/vec.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

int dl_add(dl_graph *g, int a, int b)
{
    return dl_graph_add(g, &dl_op_add, a, b, DL_NO_WEIGHT, 0, NULL, 0)->out[0];
}

/* Joins the gradients of a, b and y in b's buffer. An in_place producer would turn its output's
 * gradient into its input's, and the other input would then read a wrong one. */
static void shape(dl_graph *g, dl_node *node)
{
    dl_value *a = &g->values[node->in[0]], *b = &g->values[node->in[1]];
    DL_ASSERT(a->width == b->width && !a->constant && !b->constant);
    DL_ASSERT(dl_may_overwrite(g, node->in[0]));
    DL_ASSERT(!dl_producer(g, node->in[0])->in_place && !dl_producer(g, node->in[1])->in_place);
    int data = a->data, grad = b->grad;
    a->grad = grad;
    node->out[0] = dl_graph_value(g, a->width);
    g->values[node->out[0]].data = data;
    g->values[node->out[0]].grad = grad;
}

static inline DL_BODY void add_body(float *restrict a, const float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] += b[i];
}
DL_KERNEL(add_range, (float *a, const float *b, size_t n), add_body(a, b, n))

static void forward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t begin, end, n = p->positions * dl_width(p, p->node->out[0]);
    dl_part_range(&begin, &end, n, 16, part, n_parts);
    dl_isa_call(add_range)(dl_data(p, p->node->out[0]) + begin, dl_data(p, p->node->in[1]) + begin,
                           end - begin);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, forward_part, &copy);
}

static void backward(const dl_pass *p)
{
    (void)p; /* the gradients are where they belong */
}

const dl_op dl_op_add = {
    .name = "add",
    .shape = shape,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
