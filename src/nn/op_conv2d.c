/* op_conv2d.c - a convolution with W f32[out][in][size][size], by the products of conv.h:
 *
 *     y[p]  = bias + sum over taps t:  x[s(p, t)] W_t       s(p, t): the place under tap t of p
 *     dx[s] = sum over taps t and places p with s(p, t) = s:  dy[p] W_t^T
 *     dW_t  = sum over places p:  x[s(p, t)]^T dy[p],       dbias = sum over places and rows of dy
 *
 * A constant x, the image itself, gets no dx. */
#include "nn/conv.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

#include "nn/cpu/vec.h"

typedef struct attributes {
    dl_window window;
    bool bias; /* the weight after the first */
} attributes;

dl_planes dl_conv2d(dl_graph *g, dl_planes x, int weight, bool bias, size_t size, size_t stride,
                    size_t pad)
{
    attributes a = {dl_window_over(x, g->weights[weight].rows, size, stride, pad), bias};
    DL_ASSERT(g->weights[weight].columns == size * size * x.channels);
    const dl_node *node =
        dl_graph_add(g, &dl_op_conv2d, x.value, DL_NO_VALUE, weight, bias ? 2 : 1, &a, sizeof a);
    return (dl_planes){node->out[0], a.window.out_height, a.window.out_width,
                       a.window.out_channels};
}

static const attributes *attributes_of(const dl_node *node)
{
    return (const void *)node->attributes;
}

static void shape(dl_graph *g, dl_node *node)
{
    const attributes *a = attributes_of(node);
    DL_ASSERT(g->values[node->in[0]].width ==
              dl_window_in_places(&a->window) * a->window.in_channels);
    DL_ASSERT(!a->bias || g->weights[node->weight + 1].columns == a->window.out_channels);
    node->out[0] = dl_graph_value(g, dl_window_out_places(&a->window) * a->window.out_channels);
}

/* The packed weight, later the weight's gradient by taps; then each part's own. */
static size_t shared_floats(const dl_window *w)
{
    return dl_size_max(dl_conv_packed(w, false), dl_conv_packed(w, true));
}

/* Each part's own: a chunk of dy and a tile of dl_conv_weights, or its sum of a bias's gradient. */
static size_t own_floats(const dl_window *w, size_t rows)
{
    size_t own = dl_size_max(dl_conv_workspace(w, rows), DL_CONV_BESIDE);
    return dl_size_round_up(dl_size_max(own, w->out_channels), 16);
}

static size_t scratch(const dl_graph *g, const dl_node *node)
{
    const dl_window *w = &attributes_of(node)->window;
    return (shared_floats(w) + (size_t)g->target.n_threads * own_floats(w, g->target.max_rows)) *
           sizeof(float);
}

/* Counts the taps inside the image only, since those outside are not computed. */
static double flops(const dl_graph *g, const dl_node *node)
{
    const dl_window *w = &attributes_of(node)->window;
    double taps = 0;
    dl_tap list[DL_WINDOW_MAX_TAPS];
    (void)g;
    for (size_t place = 0; place < dl_window_out_places(w); place++)
        taps += (double)dl_window_list(list, w, place);
    return 2.0 * taps * w->in_channels * w->out_channels;
}

/* ---- calls */

/* One product of a convolution, for all parts. */
typedef struct call {
    const dl_pass *pass;
    dl_conv conv;
    float *shared; /* shared_floats(); all parts write it, then all read it */
} call;

static call call_of(const dl_pass *p, bool back)
{
    const attributes *a = attributes_of(p->node);
    return (call){p, {&a->window, p->batch.rows, back}, p->scratch};
}

static float *own(const call *c, int part)
{
    const dl_window *w = c->conv.window;
    return c->shared + shared_floats(w) +
           (size_t)part * own_floats(w, c->pass->graph->target.max_rows);
}

/* ---- the parts' functions; each dl_pool_run of one is a barrier */

static void pack(void *context, int part, int n_parts)
{
    const call *c = context;
    dl_conv_pack(c->shared, dl_weight_data(c->pass), &c->conv, part, n_parts);
}

static const float *bias_of(const dl_pass *p)
{
    const dl_graph *g = p->graph;
    if (!attributes_of(p->node)->bias) return NULL;
    return g->parameters + g->weights[p->node->weight + 1].offset;
}

static void product(void *context, int part, int n_parts)
{
    const call *c = context;
    const dl_pass *p = c->pass;
    dl_conv_product(dl_data(p, p->node->out[0]), dl_data(p, p->node->in[0]), c->shared, bias_of(p),
                    &c->conv, own(c, part), part, n_parts);
}

static void forward(const dl_pass *p)
{
    call c = call_of(p, false);
    dl_pool_run(p->pool, pack, &c);
    dl_pool_run(p->pool, product, &c);
}

static void input_gradient(void *context, int part, int n_parts)
{
    const call *c = context;
    const dl_pass *p = c->pass;
    dl_conv_product(dl_grad(p, p->node->in[0]), dl_grad(p, p->node->out[0]), c->shared, NULL,
                    &c->conv, own(c, part), part, n_parts);
}

static void weight_taps(void *context, int part, int n_parts)
{
    const call *c = context;
    const dl_pass *p = c->pass;
    dl_conv_weights(c->shared, dl_data(p, p->node->in[0]), dl_grad(p, p->node->out[0]), &c->conv,
                    own(c, part), part, n_parts);
}

static inline DL_BODY void add_rows_body(float *restrict sum, const float *restrict x, size_t n,
                                         size_t width)
{
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < width; i++)
            sum[i] += x[r * width + i];
}
DL_KERNEL(add_rows, (float *sum, const float *x, size_t n, size_t width),
          add_rows_body(sum, x, n, width))

/* Adds up dy over this part's places, into its own memory. */
static void bias_part(void *context, int part, int n_parts)
{
    const call *c = context;
    const dl_window *w = c->conv.window;
    size_t begin, end, out = w->out_channels, rows = c->conv.rows;
    float *sum = own(c, part);
    dl_part_range(&begin, &end, dl_window_out_places(w), 1, part, n_parts);
    memset(sum, 0, out * sizeof *sum);
    dl_isa_call(add_rows)(sum, dl_grad(c->pass, c->pass->node->out[0]) + begin * rows * out,
                          (end - begin) * rows, out);
}

/* Adds the parts' sums in their order. */
static void bias_gradient(const call *c)
{
    const dl_pass *p = c->pass;
    size_t out = c->conv.window->out_channels;
    float *db = p->graph->gradients + p->graph->weights[p->node->weight + 1].offset;
    dl_pool_run(p->pool, bias_part, (void *)(uintptr_t)c);
    if (!dl_weight_adds(p)) memset(db, 0, out * sizeof *db);
    for (int part = 0; part < dl_pool_size(p->pool); part++)
        for (size_t i = 0; i < out; i++)
            db[i] += own(c, part)[i];
}

static void unpack(void *context, int part, int n_parts)
{
    const call *c = context;
    dl_conv_unpack(dl_weight_grad(c->pass), c->shared, &c->conv, dl_weight_adds(c->pass), part,
                   n_parts);
}

/* The order matters twice: `shared` holds the packed weight until dx is done, and dW by taps after
 * it. bias_gradient uses the parts' own memory, which weight_taps needs before. */
static void backward(const dl_pass *p)
{
    call c = call_of(p, true);
    if (!p->graph->values[p->node->in[0]].constant) {
        dl_pool_run(p->pool, pack, &c);
        dl_pool_run(p->pool, input_gradient, &c);
    }
    dl_pool_run(p->pool, weight_taps, &c);
    dl_pool_run(p->pool, unpack, &c);
    if (attributes_of(p->node)->bias) bias_gradient(&c);
}

const dl_op dl_op_conv2d = {
    .name = "conv2d",
    .keeps = DL_KEEP_IN0,
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch},
    .flops = flops,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
