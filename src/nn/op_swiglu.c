/* op_swiglu.c - y = silu(g) * u, silu(g) = g s with s = 1 / (1 + e^-g) (Shazeer 2020,
 * arXiv:2002.05202). The input is [positions][2][width]: gate, then up.
 *
 *     du = dy g s,   dg = dy u s (1 + g (1 - s))
 *
 * Both gradients are written over g and u, which are not read any more. */
#include "nn/cpu/vec.h"
#include "nn/cuda/start.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

int dl_swiglu(dl_graph *g, int gate_up)
{
    return dl_graph_add(g, &dl_op_swiglu, gate_up, DL_NO_VALUE, DL_NO_WEIGHT, 0, NULL, 0)->out[0];
}

/* The gradient is written over the data: backward reads an element before it writes it. */
static void shape(dl_graph *g, dl_node *node)
{
    dl_value *in = &g->values[node->in[0]];
    DL_ASSERT(in->width % 2 == 0);
    in->grad = in->data;
    node->out[0] = dl_graph_value(g, in->width / 2);
}

static inline DL_BODY void forward_body(float *restrict y, const float *restrict g,
                                        const float *restrict u, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = g[i] * dl_sigmoid(g[i]) * u[i];
}
DL_KERNEL(forward_row, (float *y, const float *g, const float *u, size_t n),
          forward_body(y, g, u, n))

static inline DL_BODY void backward_body(float *restrict g, float *restrict u,
                                         const float *restrict dy, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = dl_sigmoid(g[i]), silu = g[i] * s;
        g[i] = dy[i] * u[i] * (s + silu * (1.0f - s));
        u[i] = dy[i] * silu;
    }
}
DL_KERNEL(backward_row, (float *g, float *u, const float *dy, size_t n), backward_body(g, u, dy, n))

static void forward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t width = dl_width(p, p->node->out[0]), begin, end;
    const float *x = dl_data(p, p->node->in[0]);
    float *y = dl_data(p, p->node->out[0]);
    dl_part_range(&begin, &end, p->positions, 16, part, n_parts);
    for (size_t i = begin; i < end; i++)
        forward_row[dl_isa_chosen()](y + i * width, x + 2 * i * width, x + (2 * i + 1) * width,
                                     width);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, forward_part, &copy);
}

static void backward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t width = dl_width(p, p->node->out[0]), begin, end;
    float *x = dl_grad(p, p->node->in[0]); /* holds the data, becomes the gradient */
    const float *dy = dl_grad(p, p->node->out[0]);
    dl_part_range(&begin, &end, p->positions, 16, part, n_parts);
    for (size_t i = begin; i < end; i++)
        backward_row[dl_isa_chosen()](x + 2 * i * width, x + (2 * i + 1) * width, dy + i * width,
                                      width);
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, backward_part, &copy);
}

/* ---- on a GPU */

static dl_cuda_swiglu_arguments arguments_of(const dl_pass *p)
{
    return (dl_cuda_swiglu_arguments){.x = dl_data(p, p->node->in[0]),
                                      .y = dl_data(p, p->node->out[0]),
                                      .dy = dl_grad(p, p->node->out[0]),
                                      .positions = p->positions,
                                      .width = dl_width(p, p->node->out[0])};
}

static void forward_on_cuda(const dl_pass *p)
{
    const dl_cuda_swiglu_arguments a = arguments_of(p);
    DL_CUDA_START_ON_VALUES(p, "dl_swiglu_forward", a.positions * a.width, a);
}

static void backward_on_cuda(const dl_pass *p)
{
    const dl_cuda_swiglu_arguments a = arguments_of(p);
    DL_CUDA_START_ON_VALUES(p, "dl_swiglu_backward", a.positions * a.width, a);
}

const dl_op dl_op_swiglu = {
    .name = "swiglu",
    .keeps = DL_KEEP_IN0,
    .shape = shape,
    .forward = {[DL_DEVICE_CPU] = forward, [DL_DEVICE_CUDA] = forward_on_cuda},
    .backward = {[DL_DEVICE_CPU] = backward, [DL_DEVICE_CUDA] = backward_on_cuda},
};
