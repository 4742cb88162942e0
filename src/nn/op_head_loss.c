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
#include "nn/cuda/start.h"
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

/* Positions of a block on a GPU. Its products and its warp for each position need thousands to keep
 * the card busy. The logits take at most 1 GiB, unless the vocabulary needs it for one position. */
static size_t block_positions_on_cuda(size_t vocab, size_t positions)
{
    const size_t most = dl_size_max(((size_t)1 << 28) / vocab, 1);
    return dl_size_min(dl_size_min(4096, most), positions);
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

/* The head's product; the softmax is not counted. */
static double flops(const dl_graph *g, const dl_node *node)
{
    return 2.0 * (double)g->weights[node->weight].rows * (double)g->weights[node->weight].columns;
}

/* The block at hand, for all parts. */
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

/* Of either device; the caller sets first and n. */
static block block_of(const dl_pass *p)
{
    const dl_weight *w = &p->graph->weights[p->node->weight];
    const attributes *a = (const void *)p->node->attributes;
    return (block){.pass = p,
                   .vocab = w->rows,
                   .channels = w->columns,
                   .z_loss = a->z_loss,
                   .logits = p->scratch,
                   .x = dl_data(p, p->node->in[0]),
                   .weight = dl_weight_data(p)};
}

/* Divides the scratch in the order in which scratch() counts it. */
static block block_on_cpu(const dl_pass *p)
{
    block b = block_of(p);
    size_t positions = p->graph->target.max_rows * p->graph->max_length;
    b.workspaces = b.logits + block_positions(b.vocab, positions) * b.vocab;
    b.losses = (void *)(b.workspaces + (size_t)p->graph->target.n_threads * DL_GEMM_WORKSPACE);
    return b;
}

/* This part's positions: logits, losses and dx. They need the part's own rows of the logits alone,
 * so all three follow without a barrier. */
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
            dl_softmax_loss(b->logits + i * b->vocab, b->vocab,
                            p->graph->pass.targets[b->first + i], p->batch.gain, b->z_loss);
    if (p->batch.mode != DL_TRAIN) return;
    dl_gemm_args dx = {'N',         'N',       b->n,
                       b->channels, b->vocab,  dl_grad(p, p->node->in[0]) + at,
                       b->logits,   b->weight, false};
    dl_gemm_part(&dx, part, n_parts, b->workspaces);
}

/* This part's rows of dW += d^T x, after all positions of the block are done. The first block
 * writes, unless the gradient accumulates. */
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
    block b = block_on_cpu(p);
    size_t step = block_positions(b.vocab, p->graph->target.max_rows * p->graph->max_length);
    for (b.first = 0; b.first < p->positions; b.first += b.n) {
        b.n = dl_size_min(step, p->positions - b.first);
        dl_pool_run(p->pool, losses_part, &b);
        if (p->batch.mode == DL_TRAIN) dl_pool_run(p->pool, weight_part, &b);
    }
    dl_tally_add(p->graph->pass.tally, b.losses, p->positions);
}

/* Logits of the last position of the one sequence. */
static void predict(const dl_pass *p)
{
    block b = block_on_cpu(p);
    dl_gemm_args logits = {'N',
                           'T',
                           1,
                           b.vocab,
                           b.channels,
                           p->graph->pass.logits,
                           b.x + (p->positions - 1) * b.channels,
                           b.weight,
                           false};
    dl_gemm(&logits, 0, 1, b.workspaces);
}

/* DL_TRAIN does nothing here: backward computes logits, losses and gradients together. */
static void forward(const dl_pass *p)
{
    if (p->batch.mode == DL_EVAL) all_blocks(p);
    if (p->batch.mode == DL_PREDICT) predict(p);
}

/* ---- on a GPU */

/* Bytes of n elements of bf16, up to a multiple of 16, which the library of products prefers. */
static size_t gradient_bytes(size_t n)
{
    return dl_size_round_up(2 * n, 16);
}

/* Logits of a block are f32. Their gradient is written over them. In bf16 it has an array of its
 * own, since a warp would write it over logits that its other threads still read. The losses of all
 * positions follow. */
static size_t scratch_on_cuda(const dl_graph *g, const dl_node *node)
{
    const size_t vocab = g->weights[node->weight].rows;
    const size_t positions = g->target.max_rows * g->max_length;
    const size_t n = block_positions_on_cuda(vocab, positions) * vocab;
    return n * sizeof(float) + (g->target.element == DILOCO_BF16 ? gradient_bytes(n) : 0) +
           positions * sizeof(dl_cuda_loss);
}

/* Logits of n positions from `first`. */
static void logits_on_cuda(const block *b, float *to, size_t first, size_t n)
{
    float *x = dl_data(b->pass, b->pass->node->in[0]);
    const dl_cuda_product_arguments a = {.c = to,
                                         .a = dl_cuda_value_at(b->pass, x, first * b->channels),
                                         .b = dl_cuda_weights(b->pass),
                                         .m = n,
                                         .n = b->vocab,
                                         .k = b->channels,
                                         .a_row = b->channels,
                                         .a_column = 1,
                                         .b_row = 1,
                                         .b_column = b->channels};
    dl_cuda_product_f32(b->pass, &a);
}

/* dW += d^T x and dx = d W of one block. */
static void gradients_on_cuda(const block *b, const float *gradient)
{
    const dl_pass *p = b->pass;
    const size_t at = b->first * b->channels;
    float *x = dl_data(p, p->node->in[0]), *dx_data = dl_grad(p, p->node->in[0]);
    const dl_cuda_product_arguments dw = {.c = dl_weight_grad(p),
                                          .a = gradient,
                                          .b = dl_cuda_value_at(p, x, at),
                                          .m = b->vocab,
                                          .n = b->channels,
                                          .k = b->n,
                                          .a_row = 1,
                                          .a_column = b->vocab,
                                          .b_row = b->channels,
                                          .b_column = 1,
                                          .add = dl_weight_adds(p) || b->first > 0};
    const dl_cuda_product_arguments dx = {.c = dl_cuda_value_at(p, dx_data, at),
                                          .a = gradient,
                                          .b = dl_cuda_weights(p),
                                          .m = b->n,
                                          .n = b->channels,
                                          .k = b->vocab,
                                          .a_row = b->vocab,
                                          .a_column = 1,
                                          .b_row = b->channels,
                                          .b_column = 1};
    dl_cuda_product_f32(p, &dw);
    dl_cuda_product(p, &dx);
}

/* As on the CPU, with the scratch of scratch_on_cuda. */
static void all_blocks_on_cuda(const dl_pass *p)
{
    block b = block_of(p);
    const size_t positions = p->graph->target.max_rows * p->graph->max_length;
    const size_t step = block_positions_on_cuda(b.vocab, positions);
    float *gradient = b.logits, *after = b.logits + step * b.vocab;
    if (dl_cuda_is_bf16(p)) {
        gradient = after;
        after += gradient_bytes(step * b.vocab) / sizeof *after;
    }
    dl_cuda_loss *losses = (void *)after;
    for (b.first = 0; b.first < p->positions; b.first += b.n) {
        b.n = dl_size_min(step, p->positions - b.first);
        const dl_cuda_loss_arguments a = {.logits = b.logits,
                                          .gradient = gradient,
                                          .targets = p->graph->pass.targets + b.first,
                                          .losses = losses + b.first,
                                          .n = b.n,
                                          .vocab = b.vocab,
                                          .gain = p->batch.gain,
                                          .z_loss = b.z_loss};
        logits_on_cuda(&b, b.logits, b.first, b.n);
        DL_CUDA_START_ON_VALUES(p, "dl_softmax_of_logits", a.n * DL_CUDA_WARP, a);
        if (p->batch.mode == DL_TRAIN) gradients_on_cuda(&b, gradient);
    }
    const dl_cuda_tally_arguments sum = {.loss = &p->graph->pass.tally->loss,
                                         .n_correct = &p->graph->pass.tally->n_correct,
                                         .losses = losses,
                                         .n = p->positions};
    DL_CUDA_START(p, "dl_add_to_tally", DL_GPU_THREADS, sum);
}

static void forward_on_cuda(const dl_pass *p)
{
    const block b = block_of(p);
    if (p->batch.mode == DL_EVAL) all_blocks_on_cuda(p);
    if (p->batch.mode == DL_PREDICT) logits_on_cuda(&b, p->graph->pass.logits, p->positions - 1, 1);
}

const dl_op dl_op_head_loss = {
    .name = "head_loss",
    .keeps = DL_KEEP_IN0,
    .shape = shape,
    .scratch = {[DL_DEVICE_CPU] = scratch, [DL_DEVICE_CUDA] = scratch_on_cuda},
    .flops = flops,
    .forward = {[DL_DEVICE_CPU] = forward, [DL_DEVICE_CUDA] = forward_on_cuda},
    .backward = {[DL_DEVICE_CPU] = all_blocks, [DL_DEVICE_CUDA] = all_blocks_on_cuda},
};
