/* op_max_pool.c - y = the largest of x under a window; its gradient goes to the first tap that
 * has it, as in PyTorch. NaN is larger than every number, and of several the last one gets the
 * gradient, as there. Taps outside the image do not take part.
 *
 * Forward takes whole matrices [rows][channels] at once. Backward finds the tap again by comparing
 * x with y, so no index is kept. Output places are done in order, so a place in several windows
 * gets the sum of theirs in a fixed order. Threads split the rows. */
#include "nn/cpu/vec.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

dl_planes dl_max_pool(dl_graph *g, dl_planes x, size_t size, size_t stride, size_t pad)
{
    DL_ASSERT(2 * pad <= size); /* so that a window has a tap inside */
    dl_window w = dl_window_over(x, x.channels, size, stride, pad);
    const dl_node *node =
        dl_graph_add(g, &dl_op_max_pool, x.value, DL_NO_VALUE, DL_NO_WEIGHT, 0, &w, sizeof w);
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

/* Keeps the larger of y and x, and a NaN of either. */
static inline DL_BODY void larger_body(float *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i];
}
DL_KERNEL(larger, (float *y, const float *x, size_t n), larger_body(y, x, n))

/* Give dy to dx where x is y, and take it from `left`, so that no other tap gets it. */
static inline DL_BODY void give_body(float *restrict dx, float *restrict left,
                                     const float *restrict x, const float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float given = x[i] == y[i] ? left[i] : 0;
        dx[i] += given;
        left[i] = x[i] == y[i] ? 0 : left[i];
    }
}
DL_KERNEL(give, (float *dx, float *left, const float *x, const float *y, size_t n),
          give_body(dx, left, x, y, n))

/* The same for a y that is NaN, where no tap equals y: the tap that is NaN gets dy. */
static inline DL_BODY void give_nan_body(float *restrict dx, float *restrict left,
                                         const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float given = x[i] != x[i] ? left[i] : 0;
        dx[i] += given;
        left[i] = x[i] != x[i] ? 0 : left[i];
    }
}
DL_KERNEL(give_nan, (float *dx, float *left, const float *x, size_t n),
          give_nan_body(dx, left, x, n))

static bool has_nan(const float *y, size_t n)
{
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found |= y[i] != y[i];
    return found;
}

/* A part of the rows of every place, as floats of its matrix. */
static void range(size_t *begin, size_t *end, const dl_pass *p, int part, int n_parts)
{
    dl_part_range(begin, end, p->batch.rows * window_of(p->node)->in_channels, 16, part, n_parts);
}

/* y begins as the first tap inside, which exists because 2 pad <= size. */
static void forward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const dl_window *w = window_of(p->node);
    dl_tap taps[DL_WINDOW_MAX_TAPS];
    size_t begin, end, matrix = p->batch.rows * w->in_channels;
    const float *x = dl_data(p, p->node->in[0]);
    range(&begin, &end, p, part, n_parts);
    for (size_t place = 0; place < dl_window_out_places(w); place++) {
        float *y = dl_data(p, p->node->out[0]) + place * matrix + begin;
        size_t n = dl_window_list(taps, w, place);
        memcpy(y, x + taps[0].place * matrix + begin, (end - begin) * sizeof *y);
        for (size_t i = 1; i < n; i++)
            dl_isa_call(larger)(y, x + taps[i].place * matrix + begin, end - begin);
    }
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, forward_part, &copy);
}

/* Destroys dy: each tap takes its share, and the next one is offered the rest. NaN is offered from
 * the last tap to the first, in a second walk that only a window with a NaN needs. */
static void backward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const dl_window *w = window_of(p->node);
    dl_tap taps[DL_WINDOW_MAX_TAPS];
    size_t begin, end, matrix = p->batch.rows * w->in_channels;
    const float *x = dl_data(p, p->node->in[0]), *y = dl_data(p, p->node->out[0]);
    float *dx = dl_grad(p, p->node->in[0]), *dy = dl_grad(p, p->node->out[0]);
    range(&begin, &end, p, part, n_parts);
    for (size_t place = 0; place < dl_window_in_places(w); place++)
        memset(dx + place * matrix + begin, 0, (end - begin) * sizeof *dx);
    for (size_t place = 0; place < dl_window_out_places(w); place++) {
        size_t out = place * matrix + begin, n = dl_window_list(taps, w, place);
        for (size_t i = 0; i < n; i++) {
            size_t in = taps[i].place * matrix + begin;
            dl_isa_call(give)(dx + in, dy + out, x + in, y + out, end - begin);
        }
        if (!has_nan(y + out, end - begin)) continue;
        for (size_t i = n; i-- > 0;) {
            size_t in = taps[i].place * matrix + begin;
            dl_isa_call(give_nan)(dx + in, dy + out, x + in, end - begin);
        }
    }
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, backward_part, &copy);
}

const dl_op dl_op_max_pool = {
    .name = "max_pool",
    .keeps = DL_KEEP_IN0 | DL_KEEP_OUT0,
    .shape = shape,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
