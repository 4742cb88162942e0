/* op_class_loss.c - softmax cross-entropy of logits that are there as a whole: the end of a
 * classifier.
 *
 *     loss = logsumexp(x) - x[target],   dx = gain (softmax(x) - onehot(target))
 *
 * When training, all is done in the backward call, dx written over x. */
#include "nn/op_rows.h"
#include "nn/ops.h"
#include "nn/softmax.h"

#include <string.h>

void dl_class_loss(dl_graph *g, int logits)
{
    dl_graph_add(g, &dl_op_class_loss, logits, DL_NO_VALUE, DL_NO_WEIGHT, 0, NULL, 0);
}

/* The gradient is written over the logits, so their producer may not read them in backward. */
static void shape(dl_graph *g, dl_node *node)
{
    dl_value *x = &g->values[node->in[0]];
    DL_ASSERT(dl_may_overwrite(g, node->in[0]));
    x->grad = x->data;
    g->n_logits = x->width;
}

/* A loss for every position, so that their sum has a fixed order. */
static size_t scratch(const dl_graph *g, const dl_node *node)
{
    (void)node;
    return g->target.max_rows * g->max_length * sizeof(dl_target_loss);
}

static void losses_part(void *context, int part, int n_parts)
{
    const dl_pass *p = context;
    dl_target_loss *losses = p->scratch;
    size_t begin, end, width = dl_width(p, p->node->in[0]);
    float *x = dl_data(p, p->node->in[0]);
    dl_part_range(&begin, &end, p->positions, 1, part, n_parts);
    for (size_t i = begin; i < end; i++)
        losses[i] =
            dl_softmax_loss(x + i * width, width, p->graph->pass.targets[i], p->batch.gain, 0);
}

static void all_losses(const dl_pass *p)
{
    dl_pass copy = *p;
    dl_pool_run(p->pool, losses_part, &copy);
    dl_tally_add(p->graph->pass.tally, p->scratch, p->positions);
}

/* The losses of DL_EVAL overwrite the logits as well, which nothing reads afterwards. */
static void forward(const dl_pass *p)
{
    if (p->batch.mode == DL_EVAL) all_losses(p);
    if (p->batch.mode == DL_PREDICT) {
        size_t width = dl_width(p, p->node->in[0]);
        memcpy(p->graph->pass.logits, dl_data(p, p->node->in[0]) + (p->positions - 1) * width,
               width * sizeof(float));
    }
}

const dl_op dl_op_class_loss = {
    .name = "class_loss",
    .keeps = DL_KEEP_IN0,
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch},
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = all_losses},
};
