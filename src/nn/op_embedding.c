/* op_embedding.c - rows of a table by token.
 *
 *     x[i] = table[token i],   dtable[t] = sum over the positions i with token t of dx[i]
 *
 * Backward, threads split the channels, so each column is added up in the order of the positions
 * whatever the number of threads. */
#include "nn/cuda/start.h"
#include "nn/op_rows.h"
#include "nn/ops.h"
#include "tensor/cuda/cuda_kernel.h"

#include <string.h>

int dl_embedding(dl_graph *g, int table)
{
    return dl_graph_add(g, &dl_op_embedding, DL_NO_VALUE, DL_NO_VALUE, table, 1, NULL, 0)->out[0];
}

/* The table is an end of the model. */
static void shape(dl_graph *g, dl_node *node)
{
    dl_graph_set_end(g, node->weight);
    node->out[0] = dl_graph_value(g, g->weights[node->weight].columns);
}

/* This part's positions. model/model.c has checked the tokens, which index the table. */
static void gather(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    size_t width = dl_width(p, p->node->out[0]), begin, end;
    const float *table = dl_weight_data(p);
    float *x = dl_data(p, p->node->out[0]);
    dl_part_range(&begin, &end, p->positions, 1, part, n_parts);
    for (size_t i = begin; i < end; i++)
        memcpy(x + i * width, table + (size_t)p->graph->pass.inputs[i] * width, width * sizeof *x);
}

static void forward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, gather, &copy);
}

/* This part's channels. Unless the gradient accumulates, rows of tokens that the batch does not
 * have get 0. */
static void scatter(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    const dl_weight *w = &p->graph->weights[p->node->weight];
    size_t width = w->columns, begin, end;
    float *table = dl_weight_grad(p);
    const float *dx = dl_grad(p, p->node->out[0]);
    dl_part_range(&begin, &end, width, 16, part, n_parts);
    for (size_t row = 0; row < w->rows && !dl_weight_adds(p); row++)
        memset(table + row * width + begin, 0, (end - begin) * sizeof *table);
    for (size_t i = 0; i < p->positions; i++) {
        float *to = table + (size_t)p->graph->pass.inputs[i] * width;
        const float *from = dx + i * width;
        for (size_t c = begin; c < end; c++)
            to[c] += from[c];
    }
}

static void backward(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, scatter, &copy);
}

/* ---- on a GPU */

static dl_cuda_embedding_arguments arguments_of(const dl_pass *p)
{
    const dl_weight *w = &p->graph->weights[p->node->weight];
    return (dl_cuda_embedding_arguments){.tokens = p->graph->pass.inputs,
                                         .positions = p->positions,
                                         .width = w->columns,
                                         .rows = w->rows,
                                         .add = dl_weight_adds(p)};
}

static void forward_on_cuda(const dl_pass *p)
{
    dl_cuda_embedding_arguments a = arguments_of(p);
    a.table = dl_weight_data(p);
    a.x = dl_data(p, p->node->out[0]);
    DL_CUDA_START_ON_VALUES(p, "dl_embedding_forward", a.positions * a.width, a);
}

/* A block of threads owns DL_CUDA_ROWS rows and looks at every token. It adds those of its rows in
 * their order, so there are no atomic additions. */
static void backward_on_cuda(const dl_pass *p)
{
    dl_cuda_embedding_arguments a = arguments_of(p);
    a.table = dl_weight_grad(p);
    a.x = dl_grad(p, p->node->out[0]);
    DL_CUDA_START_ON_VALUES(p, "dl_embedding_backward",
                            (a.rows + DL_CUDA_ROWS - 1) / DL_CUDA_ROWS * DL_GPU_THREADS, a);
}

const dl_op dl_op_embedding = {
    .name = "embedding",
    .shape = shape,
    .forward = {[DL_DEVICE_CPU] = forward, [DL_DEVICE_CUDA] = forward_on_cuda},
    .backward = {[DL_DEVICE_CPU] = backward, [DL_DEVICE_CUDA] = backward_on_cuda},
};
