/* op.h - an operation: a row with a function for each kind of device.
 *
 * Adding an operation is a file with such a row, its name in ops.c, and a function in ops.h
 * with which models add it to a graph.
 *
 * An operation reads and writes backend memory through dl_pass; it never waits, allocates or
 * reports to the host. */
#ifndef DL_NN_OP_H
#define DL_NN_OP_H

#include "nn/graph.h"

/* One call of an operation. Everything is borrowed for the call. */
typedef struct dl_pass {
    const dl_graph *graph;
    const dl_node *node;
    dl_batch batch;
    size_t positions; /* rows * length */
    dl_pool *pool;
    void *scratch; /* op->scratch[device] bytes, anything in it, also NaN */
} dl_pass;

typedef void (*dl_op_fn)(const dl_pass *pass);

/* Values whose data backward reads. The plan keeps these from forward to backward; the memory of
 * others is reused after their consumer. */
enum { DL_KEEP_IN0 = 1, DL_KEEP_IN1 = 2, DL_KEEP_OUT0 = 4, DL_KEEP_OUT1 = 8 };

struct dl_op {
    const char *name;
    unsigned keeps;
    bool in_place; /* overwrites its input's data, and its output's gradient becomes its input's */

    /* Make the outputs with dl_graph_value, and `saved` where needed. Two buffers that are
     * to be one (a gradient written over its data) are joined by giving both values the
     * same buffer; sizes must agree. Wrong widths are the model's bug. */
    void (*shape)(dl_graph *graph, dl_node *node);

    /* Bytes needed during one call at max_rows and max_length, by device, since a GPU cuts its work
     * differently. NULL: none. */
    size_t (*scratch[DL_N_DEVICES])(const dl_graph *graph, const dl_node *node);

    /* Matrix-product operations a position takes forward, at max_length. NULL: none. */
    double (*flops)(const dl_graph *graph, const dl_node *node);

    /* Fill node->constant, once. NULL: it has none. */
    dl_op_fn prepare[DL_N_DEVICES];
    dl_op_fn forward[DL_N_DEVICES];

    /* Read the outputs' gradients, write (not add to) the inputs' gradients, and write or
     * add the weight's (dl_weight_adds). */
    dl_op_fn backward[DL_N_DEVICES];
};

/* Returns a row of op_rows.h by its place, which numbers dl_profile; NULL after the last. */
const dl_op *dl_op_at(size_t i);

/* Places of a node's data, in backend memory. The elements have the value's type, whatever the
 * pointer's: operations of a device with a narrower type convert it. */
static inline float *dl_buffer_place(const dl_graph *g, int buffer)
{
    return (float *)(void *)(g->work.activations + g->buffers[buffer].offset);
}
static inline float *dl_data(const dl_pass *p, int value)
{
    return dl_buffer_place(p->graph, p->graph->values[value].data);
}
static inline float *dl_grad(const dl_pass *p, int value)
{
    return dl_buffer_place(p->graph, p->graph->values[value].grad);
}
static inline size_t dl_width(const dl_pass *p, int value)
{
    return p->graph->values[value].width;
}
/* The first of the node's weights; adjacent ones follow without a gap. */
static inline float *dl_weight_data(const dl_pass *p)
{
    return p->graph->parameters + p->graph->weights[p->node->weight].offset;
}
static inline float *dl_weight_grad(const dl_pass *p)
{
    return p->graph->gradients + p->graph->weights[p->node->weight].offset;
}
static inline const dl_weight *dl_weight_at(const dl_pass *p, int i)
{
    return &p->graph->weights[p->node->weight + i];
}
/* The operation that made a value; NULL: none yet. */
static inline const dl_op *dl_producer(const dl_graph *g, int value)
{
    int node = g->values[value].producer;
    return node < 0 ? NULL : g->nodes[node].op;
}
/* For op->shape. Returns true if the node may write over a value's data. It may not if the value's
 * producer reads it in backward, or made two values in one memory. */
static inline bool dl_may_overwrite(const dl_graph *g, int value)
{
    const dl_op *by = dl_producer(g, value);
    int node = g->values[value].producer;
    return by && !(by->keeps & (DL_KEEP_OUT0 | DL_KEEP_OUT1)) &&
           g->nodes[node].out[1] == DL_NO_VALUE;
}
/* Returns true if backward has to add to the weight's gradient. It does for later micro-batches of
 * a step, and where another node with the same weight has written it. */
static inline bool dl_weight_adds(const dl_pass *p)
{
    return p->batch.accumulate || p->node->grad_adds;
}

#endif
