/* op_head_loss.c - the head's product and softmax cross-entropy, a block of positions at a
 * time, so that logits f32[positions][vocab] never exist as a whole.
 *
 * When training, all is done in the backward call while a block is at hand:
 *
 *     logits = x W^T,  p = softmax(logits),  l = logsumexp(logits)
 *     d = gain ((1 + 2 z_loss l) p - onehot),  dx = d W,  dW += d^T x
 *
 * A block's loss, d and dx are split over its positions, dW over the vocabulary. Losses are
 * kept by position and added up in float64 in their order. */
#include "nn/gemm.h"
#include "nn/op_rows.h"
#include "nn/ops.h"
#include "nn/softmax.h"

typedef struct attributes {
    float z_loss;
} attributes;

void dl_head_loss(dl_graph *g, int x, int weight, float z_loss)
{
    dl_graph_add(g, &dl_op_head_loss, x, DL_NO_VALUE, weight, 1, &(attributes){z_loss},
                 sizeof(attributes));
}

static void shape(dl_graph *g, dl_node *node)
{
    DL_ASSERT(g->values[node->in[0]].width == g->weights[node->weight].columns);
    dl_graph_set_end(g, node->weight);
    g->n_logits = g->weights[node->weight].rows;
}

/* Positions of a block: about two million logits, but enough for dW's product to pay. */
static size_t block_positions(size_t vocab, size_t positions)
{
    size_t wanted = dl_size_max(((size_t)1 << 21) / vocab, 128);
    return dl_size_min(dl_size_round_up(wanted, DL_GEMM_ROWS), positions);
}

/* Logits of a block, a loss for every position, the products' workspaces. */
static size_t scratch(const dl_graph *g, const dl_node *node)
{
    size_t vocab = g->weights[node->weight].rows, positions = g->target.max_rows * g->max_length;
    return (block_positions(vocab, positions) * vocab +
            (size_t)g->target.n_threads * DL_GEMM_WORKSPACE) *
               sizeof(float) +
           positions * sizeof(dl_target_loss);
}

static double flops(const dl_graph *g, const dl_node *node)
{
    return 2.0 * (double)g->weights[node->weight].rows * (double)g->weights[node->weight].columns;
}

typedef struct block {
    const dl_pass *pass;
    size_t first, n; /* positions */
    size_t vocab, channels;
    float z_loss;
    float *logits;          /* [n][vocab], later their gradient */
    float *workspaces;      /* [threads][DL_GEMM_WORKSPACE] */
    dl_target_loss *losses; /* [positions] */
    const float *x, *weight;
} block;

static block block_of(const dl_pass *p)
{
    const dl_weight *w = &p->graph->weights[p->node->weight];
    size_t positions = p->graph->target.max_rows * p->graph->max_length;
    const attributes *a = (const void *)p->node->attributes;
    block b = {.pass = p,
               .vocab = w->rows,
               .channels = w->columns,
               .z_loss = a->z_loss,
               .logits = p->scratch};
    b.workspaces = b.logits + block_positions(b.vocab, positions) * b.vocab;
    b.losses = (void *)(b.workspaces + (size_t)p->graph->target.n_threads * DL_GEMM_WORKSPACE);
    b.x = dl_data(p, p->node->in[0]);
    b.weight = dl_weight_data(p);
    return b;
}

static void losses_part(void *context, int part, int n_parts)
{
    const block *b = context;
    const dl_pass *p = b->pass;
    size_t begin, end, at = b->first * b->channels;
    dl_gemm_args logits = {'N',       'T',       b->n,      b->vocab, b->channels,
                           b->logits, b->x + at, b->weight, false};
    dl_gemm_part(&logits, part, n_parts, b->workspaces);
    dl_gemm_range(&begin, &end, b->n, part, n_parts);
    for (size_t i = begin; i < end; i++)
        b->losses[b->first + i] =
            dl_softmax_loss(b->logits + i * b->vocab, b->vocab, p->graph->targets[b->first + i],
                            p->batch.gain, b->z_loss);
    if (p->batch.mode != DL_TRAIN) return;
    dl_gemm_args dx = {'N',         'N',       b->n,
                       b->channels, b->vocab,  dl_grad(p, p->node->in[0]) + at,
                       b->logits,   b->weight, false};
    dl_gemm_part(&dx, part, n_parts, b->workspaces);
}

static void weight_part(void *context, int part, int n_parts)
{
    const block *b = context;
    dl_gemm_args dw = {'T',
                       'N',
                       b->vocab,
                       b->channels,
                       b->n,
                       dl_weight_grad(b->pass),
                       b->logits,
                       b->x + b->first * b->channels,
                       dl_weight_adds(b->pass) || b->first > 0};
    dl_gemm_part(&dw, part, n_parts, b->workspaces);
}

static void all_blocks(const dl_pass *p)
{
    block b = block_of(p);
    size_t step = block_positions(b.vocab, p->graph->target.max_rows * p->graph->max_length);
    for (b.first = 0; b.first < p->positions; b.first += b.n) {
        b.n = dl_size_min(step, p->positions - b.first);
        dl_pool_run(p->pool, losses_part, &b);
        if (p->batch.mode == DL_TRAIN) dl_pool_run(p->pool, weight_part, &b);
    }
    dl_tally_add(p->graph->tally, b.losses, p->positions);
}

/* Logits of the last position of the one sequence. */
static void predict(const dl_pass *p)
{
    block b = block_of(p);
    dl_gemm_args logits = {'N',
                           'T',
                           1,
                           b.vocab,
                           b.channels,
                           p->graph->logits,
                           b.x + (p->positions - 1) * b.channels,
                           b.weight,
                           false};
    dl_gemm(&logits, 0, 1, b.workspaces);
}

static void forward(const dl_pass *p)
{
    if (p->batch.mode == DL_EVAL) all_blocks(p);
    if (p->batch.mode == DL_PREDICT) predict(p);
}

const dl_op dl_op_head_loss = {
    .name = "head_loss",
    .keeps = DL_KEEP_IN0,
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch},
    .flops = flops,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = all_blocks},
};
