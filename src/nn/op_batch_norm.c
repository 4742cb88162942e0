/* op_batch_norm.c - y = (x - mean) / sqrt(var + eps) * w + b by channel, over places and rows
 * (Ioffe, Szegedy 2015, arXiv:1502.03167), as torch.nn.BatchNorm2d with momentum:
 *
 *     training    mean, var of the batch (var divided by n);
 *                 running_mean += momentum (mean - running_mean)
 *                 running_var  += momentum (var n / (n - 1) - running_var)
 *                 num_batches_tracked += 1
 *     otherwise   the running ones, which stay
 *
 *     xhat = (x - mean) / sqrt(var + eps)
 *     dx = w / sqrt(var + eps) (dy - mean(dy) - xhat mean(dy xhat))
 *     dw = sum dy xhat,  db = sum dy
 *
 * dx is written over x. The weights are five, adjacent: weight, bias, running_mean, running_var,
 * num_batches_tracked; the last three are buffers, written here and averaged by a run.
 *
 * Sums are of x less its first row, so that a large mean costs no digits; they are added up in
 * float32 over STRETCH rows and in float64 over those. With n = 1 there is no unbiased variance;
 * the biased one, 0, is taken. A running variance below 0, which an outer optimizer with momentum
 * can make (apply_outer_optimizer_to = all_floating), counts as 0. */
#include "nn/cpu/vec.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

enum { STRETCH = 256 }; /* rows */
enum { WEIGHT, BIAS, MEAN, VARIANCE, COUNT, N_WEIGHTS };

typedef struct attributes {
    uint32_t places, channels; /* places: height * width */
    float momentum, eps;
} attributes;

int dl_batch_norm_weights(dl_graph *g, size_t channels, const char *name)
{
    int first = dl_graph_weight(g, 0, channels, DL_INITIAL_ONES, 0, "%s.weight", name);
    dl_graph_weight(g, 0, channels, DL_INITIAL_ZEROS, 0, "%s.bias", name);
    int mean = dl_graph_weight(g, 0, channels, DL_INITIAL_ZEROS, 0, "%s.running_mean", name);
    int var = dl_graph_weight(g, 0, channels, DL_INITIAL_ONES, 0, "%s.running_var", name);
    dl_graph_set_role(g, mean, DILOCO_BUFFER);
    dl_graph_set_role(g, var, DILOCO_BUFFER);
    dl_graph_counter(g, "%s.num_batches_tracked", name);
    return first;
}

dl_planes dl_batch_norm(dl_graph *g, dl_planes x, int weights, float momentum, float eps)
{
    attributes a = {(uint32_t)(x.height * x.width), (uint32_t)x.channels, momentum, eps};
    DL_ASSERT(g->weights[weights].columns == x.channels);
    DL_ASSERT(g->weights[weights + COUNT].dtype == DILOCO_I64);
    x.value =
        dl_graph_add(g, &dl_op_batch_norm, x.value, DL_NO_VALUE, weights, N_WEIGHTS, &a, sizeof a)
            ->out[0];
    return x;
}

static const attributes *attributes_of(const dl_node *node)
{
    return (const void *)node->attributes;
}

static void shape(dl_graph *g, dl_node *node)
{
    const attributes *a = attributes_of(node);
    dl_value *x = &g->values[node->in[0]];
    size_t width = x->width, positions = g->target.max_rows * g->max_length;
    DL_ASSERT(width == (size_t)a->places * a->channels);
    DL_ASSERT(dl_may_overwrite(g, node->in[0]) && !x->constant);
    x->grad = x->data;
    node->out[0] = dl_graph_value(g, width);
    /* Mean and 1 / deviation of each channel, for all rows together. */
    node->saved = dl_graph_value_f32(g, (2 * (size_t)a->channels + positions - 1) / positions);
}

/* One thread's two sums of each channel, over its rows and over a stretch of them. */
typedef struct sums {
    double *first, *second;
    float *some_first, *some_second;
} sums;

static size_t sums_bytes(const attributes *a)
{
    return dl_size_round_up(a->channels * 2 * (sizeof(double) + sizeof(float)), 64);
}

static sums sums_of(const dl_pass *p, int part)
{
    const attributes *a = attributes_of(p->node);
    double *at = (double *)(void *)((char *)p->scratch + (size_t)part * sums_bytes(a));
    float *floats = (float *)(void *)(at + 2 * (size_t)a->channels);
    return (sums){at, at + a->channels, floats, floats + a->channels};
}

/* Each thread's sums, then factors(). */
static size_t scratch(const dl_graph *g, const dl_node *node)
{
    const attributes *a = attributes_of(node);
    return (size_t)g->target.n_threads * sums_bytes(a) + 2 * (size_t)a->channels * sizeof(float);
}

/* After the sums: two numbers a channel, which the second pass over the data applies. */
static float *factors(const dl_pass *p)
{
    const dl_graph *g = p->graph;
    return (float *)(void *)((char *)p->scratch +
                             (size_t)g->target.n_threads * sums_bytes(attributes_of(p->node)));
}

/* The data of one of the five weights; not of COUNT, which is no float. */
static float *weight_at(const dl_pass *p, int which)
{
    return p->graph->parameters + dl_weight_at(p, which)->offset;
}

/* Returns how many values a channel has in the batch: n of the formulas. */
static size_t n_rows(const dl_pass *p)
{
    return attributes_of(p->node)->places * p->batch.rows;
}

/* ---- sums by channel */

/* Adds d = x - from to s, and d^2 to s2, of n rows. `from` is the batch's first row. */
static inline DL_BODY void moments_body(float *restrict s, float *restrict s2,
                                        const float *restrict x, const float *restrict from,
                                        size_t n, size_t width)
{
    for (size_t r = 0; r < n; r++, x += width)
        for (size_t c = 0; c < width; c++) {
            float d = x[c] - from[c];
            s[c] += d;
            s2[c] += d * d;
        }
}
DL_KERNEL(moments, (float *s, float *s2, const float *x, const float *from, size_t n, size_t width),
          moments_body(s, s2, x, from, n, width))

/* Adds dy to s, and dy (x - mean) to s2, of n rows. */
static inline DL_BODY void products_body(float *restrict s, float *restrict s2,
                                         const float *restrict dy, const float *restrict x,
                                         const float *restrict mean, size_t n, size_t width)
{
    for (size_t r = 0; r < n; r++, x += width, dy += width)
        for (size_t c = 0; c < width; c++) {
            s[c] += dy[c];
            s2[c] += dy[c] * (x[c] - mean[c]);
        }
}
DL_KERNEL(products,
          (float *s, float *s2, const float *dy, const float *x, const float *mean, size_t n,
           size_t width),
          products_body(s, s2, dy, x, mean, n, width))

/* Adds up this part's rows: products with dy, or moments if dy is NULL. */
static void add_up(const dl_pass *p, const float *x, const float *dy, const float *from, int part,
                   int n_parts)
{
    size_t begin, end, width = attributes_of(p->node)->channels;
    sums s = sums_of(p, part);
    memset(s.first, 0, 2 * width * sizeof *s.first);
    dl_part_range(&begin, &end, n_rows(p), 16, part, n_parts);
    for (size_t row = begin; row < end; row += STRETCH) {
        size_t n = dl_size_min(STRETCH, end - row), at = row * width;
        memset(s.some_first, 0, 2 * width * sizeof *s.some_first);
        if (dy)
            dl_isa_call(products)(s.some_first, s.some_second, dy + at, x + at, from, n, width);
        else
            dl_isa_call(moments)(s.some_first, s.some_second, x + at, from, n, width);
        for (size_t c = 0; c < width; c++) {
            s.first[c] += (double)s.some_first[c];
            s.second[c] += (double)s.some_second[c];
        }
    }
}

/* Adds the sums of all parts to part 0's, in their order, and returns these. */
static sums gather(const dl_pass *p)
{
    sums all = sums_of(p, 0);
    for (int part = 1; part < dl_pool_size(p->pool); part++) {
        sums s = sums_of(p, part);
        for (size_t c = 0; c < attributes_of(p->node)->channels; c++) {
            all.first[c] += s.first[c];
            all.second[c] += s.second[c];
        }
    }
    return all;
}

/* ---- forward */

static void moments_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const float *x = dl_data(p, p->node->in[0]);
    add_up(p, x, NULL, x, part, n_parts);
}

/* Sets mean and 1 / deviation of the batch, and moves the running ones. With d = x - first row, the
 * mean is first + mean(d), and the variance mean(d^2) - mean(d)^2, which a rounding may make
 * negative. */
static void take_moments(const dl_pass *p, float *mean, float *scale)
{
    const attributes *a = attributes_of(p->node);
    const float *x = dl_data(p, p->node->in[0]);
    float *running_mean = weight_at(p, MEAN), *running_var = weight_at(p, VARIANCE);
    double n = (double)n_rows(p), momentum = (double)a->momentum;
    sums s = gather(p);
    for (size_t c = 0; c < a->channels; c++) {
        double off = s.first[c] / n, var = s.second[c] / n - off * off;
        double m = (double)x[c] + off, unbiased = n > 1 ? var * n / (n - 1) : var;
        var = var > 0 ? var : 0;
        mean[c] = (float)m;
        scale[c] = (float)(1 / sqrt(var + (double)a->eps));
        running_mean[c] += (float)(momentum * (m - (double)running_mean[c]));
        running_var[c] += (float)(momentum * (unbiased - (double)running_var[c]));
    }
    p->graph->counters[dl_weight_at(p, COUNT)->offset]++;
}

/* Outside of training: the running mean and variance. saved is written for forward alone. */
static void take_running(const dl_pass *p, float *mean, float *scale)
{
    const attributes *a = attributes_of(p->node);
    const float *var = weight_at(p, VARIANCE);
    memcpy(mean, weight_at(p, MEAN), a->channels * sizeof *mean);
    for (size_t c = 0; c < a->channels; c++)
        scale[c] = 1 / sqrtf((var[c] > 0 ? var[c] : 0) + a->eps);
}

/* y = x factor + shift, with factor = w / deviation and shift = b - mean factor. */
static inline DL_BODY void apply_body(float *restrict y, const float *restrict x,
                                      const float *restrict factor, const float *restrict shift,
                                      size_t n, size_t width)
{
    for (size_t r = 0; r < n; r++, x += width, y += width)
        for (size_t c = 0; c < width; c++)
            y[c] = x[c] * factor[c] + shift[c];
}
DL_KERNEL(apply,
          (float *y, const float *x, const float *factor, const float *shift, size_t n,
           size_t width),
          apply_body(y, x, factor, shift, n, width))

static void forward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t begin, end, width = attributes_of(p->node)->channels;
    const float *f = factors(p);
    dl_part_range(&begin, &end, n_rows(p), 16, part, n_parts);
    dl_isa_call(apply)(dl_data(p, p->node->out[0]) + begin * width,
                       dl_data(p, p->node->in[0]) + begin * width, f, f + width, end - begin,
                       width);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    size_t width = attributes_of(p->node)->channels;
    float *mean = dl_data(p, p->node->saved), *scale = mean + width, *f = factors(p);
    if (p->batch.mode == DL_TRAIN) {
        dl_pool_run(p->pool, moments_part, &copy);
        take_moments(p, mean, scale);
    } else {
        take_running(p, mean, scale);
    }
    for (size_t c = 0; c < width; c++) {
        f[c] = scale[c] * weight_at(p, WEIGHT)[c];
        f[width + c] = weight_at(p, BIAS)[c] - mean[c] * f[c];
    }
    dl_pool_run(p->pool, forward_part, &copy);
}

/* ---- backward */

static void products_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    add_up(p, dl_data(p, p->node->in[0]), dl_grad(p, p->node->out[0]), dl_data(p, p->node->saved),
           part, n_parts);
}

/* x becomes dx = w / deviation * (dy - mean_dy - (x - mean) * back); it is the same memory. */
static inline DL_BODY void back_body(float *restrict x, const float *restrict dy,
                                     const float *restrict mean, const float *restrict mean_dy,
                                     const float *restrict back, const float *restrict scale,
                                     const float *restrict w, size_t n, size_t width)
{
    for (size_t r = 0; r < n; r++, x += width, dy += width)
        for (size_t c = 0; c < width; c++)
            x[c] = w[c] * scale[c] * (dy[c] - mean_dy[c] - (x[c] - mean[c]) * back[c]);
}
DL_KERNEL(back_rows,
          (float *x, const float *dy, const float *mean, const float *mean_dy, const float *back,
           const float *scale, const float *w, size_t n, size_t width),
          back_body(x, dy, mean, mean_dy, back, scale, w, n, width))

static void backward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t begin, end, width = attributes_of(p->node)->channels;
    const float *mean = dl_data(p, p->node->saved), *f = factors(p);
    dl_part_range(&begin, &end, n_rows(p), 16, part, n_parts);
    dl_isa_call(back_rows)(dl_grad(p, p->node->in[0]) + begin * width,
                           dl_grad(p, p->node->out[0]) + begin * width, mean, f, f + width,
                           mean + width, weight_at(p, WEIGHT), end - begin, width);
}

/* Writes or adds one element of the gradient of WEIGHT or BIAS. */
static void add_gradient(const dl_pass *p, int which, size_t c, double value)
{
    float *to = p->graph->gradients + dl_weight_at(p, which)->offset + c;
    *to = (dl_weight_adds(p) ? *to : 0) + (float)value;
}

/* First the sums over all rows, then dx, which needs them. s.second is sum dy (x - mean), so dw is
 * that times r = 1 / deviation, and the factor of x - mean in dx is its mean times r^2. */
static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    size_t width = attributes_of(p->node)->channels;
    const float *scale = dl_data(p, p->node->saved) + width;
    float *f = factors(p);
    double n = (double)n_rows(p);
    dl_pool_run(p->pool, products_part, &copy);
    sums s = gather(p);
    for (size_t c = 0; c < width; c++) {
        double r = (double)scale[c];
        f[c] = (float)(s.first[c] / n);
        f[width + c] = (float)(s.second[c] / n * r * r);
        add_gradient(p, WEIGHT, c, s.second[c] * r);
        add_gradient(p, BIAS, c, s.first[c]);
    }
    dl_pool_run(p->pool, backward_part, &copy);
}

const dl_op dl_op_batch_norm = {
    .name = "batch_norm",
    .keeps = DL_KEEP_IN0,
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch},
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
