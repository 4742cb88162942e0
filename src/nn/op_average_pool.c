/* op_average_pool.c - y = the mean of x under a window. The divisor is the window's whole size, as
 * in PyTorch (count_include_pad): taps outside the image count as zeros. A window as large as
 * the image is what PyTorch calls adaptive pooling to 1 x 1. */
#include "nn/cpu/vec.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

dl_planes dl_average_pool(dl_graph *g, dl_planes x, size_t size, size_t stride, size_t pad)
{
    dl_window w = dl_window_over(x, x.channels, size, stride, pad);
    const dl_node *node =
        dl_graph_add(g, &dl_op_average_pool, x.value, DL_NO_VALUE, DL_NO_WEIGHT, 0, &w, sizeof w);
    return (dl_planes){node->out[0], w.out_height, w.out_width, x.channels};
}

static const dl_window *window_of(const dl_node *node)
{
    return (const void *)node->attributes;
}

static void shape(dl_graph *g, dl_node *node)
{
    const dl_window *w = window_of(node);
    DL_ASSERT(g->values[node->in[0]].width == dl_window_in_places(w) * w->in_channels);
    node->out[0] = dl_graph_value(g, dl_window_out_places(w) * w->out_channels);
}

/* to += factor * from, of n adjacent rows and channels. */
static inline DL_BODY void add_body(float *restrict to, const float *restrict from, float factor,
                                    size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += factor * from[i];
}
DL_KERNEL(add_share, (float *to, const float *from, float factor, size_t n),
          add_body(to, from, factor, n))

/* One place of `to`, floats [begin, end) of its matrix: the mean's share of each tap's place. */
static void gather(float *to, const float *from, const dl_tap *taps, size_t n, const dl_pass *p,
                   size_t begin, size_t end)
{
    const dl_window *w = window_of(p->node);
    size_t matrix = p->batch.rows * w->in_channels;
    float share = 1 / (float)dl_window_taps(w);
    memset(to + begin, 0, (end - begin) * sizeof *to);
    for (size_t i = 0; i < n; i++)
        dl_isa_call(add_share)(to + begin, from + taps[i].place * matrix + begin, share,
                               end - begin);
}

/* A part has some rows and channels of every place, not some places: so both passes split alike. */
static void forward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const dl_window *w = window_of(p->node);
    dl_tap taps[DL_WINDOW_MAX_TAPS];
    size_t begin, end, matrix = p->batch.rows * w->in_channels;
    dl_part_range(&begin, &end, matrix, 16, part, n_parts);
    for (size_t place = 0; place < dl_window_out_places(w); place++) {
        size_t n = dl_window_list(taps, w, place);
        gather(dl_data(p, p->node->out[0]) + place * matrix, dl_data(p, p->node->in[0]), taps, n, p,
               begin, end);
    }
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, forward_part, &copy);
}

/* dx = sum over the windows on a place of dy / size^2: the same sum, with taps listed from the
 * input. Each place is written once, and needs no atomic addition. */
static void backward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const dl_window *w = window_of(p->node);
    dl_tap taps[DL_WINDOW_MAX_TAPS];
    size_t begin, end, matrix = p->batch.rows * w->in_channels;
    dl_part_range(&begin, &end, matrix, 16, part, n_parts);
    for (size_t place = 0; place < dl_window_in_places(w); place++) {
        size_t n = dl_window_list_back(taps, w, place);
        gather(dl_grad(p, p->node->in[0]) + place * matrix, dl_grad(p, p->node->out[0]), taps, n, p,
               begin, end);
    }
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, backward_part, &copy);
}

const dl_op dl_op_average_pool = {
    .name = "average_pool",
    .shape = shape,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
