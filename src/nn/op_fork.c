/* op_fork.c - one value for two uses: both outputs are x, in x's memory, and dx = the sum of their
 * gradients. A value has one consumer (graph.c), so that only this operation adds gradients.
 *
 * The second output's gradient has the memory of x's: the second user writes it there, or the sum
 * (op_add.c) already has it there. The first one's is added. */
#include "nn/cpu/vec.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

void dl_fork(dl_graph *g, int x, int *first, int *second)
{
    const dl_node *node = dl_graph_add(g, &dl_op_fork, x, DL_NO_VALUE, DL_NO_WEIGHT, 0, NULL, 0);
    *first = node->out[0];
    *second = node->out[1];
}

/* Neither user may overwrite the data, which dl_may_overwrite sees by the second output. */
static void shape(dl_graph *g, dl_node *node)
{
    dl_value x = g->values[node->in[0]];
    DL_ASSERT(!x.constant);
    for (int k = 0; k < 2; k++) {
        node->out[k] = dl_graph_value(g, x.width);
        g->values[node->out[k]].data = x.data;
    }
    g->values[node->out[1]].grad = x.grad;
}

/* Both outputs have x's memory. */
static void forward(const dl_pass *p)
{
    (void)p; /* nothing moves */
}

static inline DL_BODY void add_body(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}
DL_KERNEL(add_range, (float *to, const float *from, size_t n), add_body(to, from, n))

static void backward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t begin, end, n = p->positions * dl_width(p, p->node->in[0]);
    dl_part_range(&begin, &end, n, 16, part, n_parts);
    dl_isa_call(add_range)(dl_grad(p, p->node->in[0]) + begin, dl_grad(p, p->node->out[0]) + begin,
                           end - begin);
}

/* dx += the first output's gradient; the second one is in dx already. */
static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, backward_part, &copy);
}

const dl_op dl_op_fork = {
    .name = "fork",
    .shape = shape,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
