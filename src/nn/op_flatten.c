/* op_flatten.c - planes [height][width][rows][channels] to rows [rows][channels][height][width]:
 * the order in which PyTorch flattens an image, so that the next weight means the same. */
#include "nn/op_rows.h"
#include "nn/ops.h"

typedef struct attributes {
    uint32_t places, channels;
} attributes;

int dl_flatten(dl_graph *g, dl_planes x)
{
    attributes a = {(uint32_t)(x.height * x.width), (uint32_t)x.channels};
    if (a.places == 1) return x.value; /* already is */
    return dl_graph_add(g, &dl_op_flatten, x.value, DL_NO_VALUE, DL_NO_WEIGHT, 0, &a, sizeof a)
        ->out[0];
}

static const attributes *attributes_of(const dl_node *node)
{
    return (const void *)node->attributes;
}

/* A constant stays one, so that nothing before it computes a gradient. */
static void shape(dl_graph *g, dl_node *node)
{
    const attributes *a = attributes_of(node);
    const dl_value x = g->values[node->in[0]];
    DL_ASSERT(x.width == (size_t)a->places * a->channels && g->max_length == 1);
    node->out[0] = dl_graph_value(g, x.width);
    g->values[node->out[0]].constant = x.constant;
}

/* Moves this part's rows from planes to flat, or back: the same exchange of indices both ways. */
static void move(const dl_pass *p, float *flat, float *planes, bool back, int part, int n_parts)
{
    const attributes *a = attributes_of(p->node);
    size_t begin, end, rows = p->batch.rows;
    dl_part_range(&begin, &end, rows, 1, part, n_parts);
    for (size_t row = begin; row < end; row++)
        for (size_t place = 0; place < a->places; place++) {
            float *x = planes + (place * rows + row) * a->channels;
            float *y = flat + row * a->channels * a->places + place;
            for (size_t c = 0; c < a->channels; c++)
                if (back)
                    x[c] = y[c * a->places];
                else
                    y[c * a->places] = x[c];
        }
}

static void forward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    move(p, dl_data(p, p->node->out[0]), dl_data(p, p->node->in[0]), false, part, n_parts);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, forward_part, &copy);
}

static void backward_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    move(p, dl_grad(p, p->node->out[0]), dl_grad(p, p->node->in[0]), true, part, n_parts);
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    if (!p->graph->values[p->node->in[0]].constant) dl_pool_run(p->pool, backward_part, &copy);
}

const dl_op dl_op_flatten = {
    .name = "flatten",
    .shape = shape,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = backward},
};
