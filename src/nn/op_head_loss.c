/* op_head_loss.c - the head's product and softmax cross-entropy, a block of positions at a
 * time, so that logits f32[positions][vocab] never exist as a whole.
 *
 * When training, all is done in the backward call while a block is at hand:
 *
 *     logits = x W^T,  p = softmax(logits),  d = gain (p - onehot),  dx = d W,  dW += d^T x
 *
 * A block's loss, d and dx are split over its positions, dW over the vocabulary. Losses are
 * kept by position and added up in float64 in their order. */
#include "nn/cpu/vec.h"
#include "nn/gemm.h"
#include "nn/op_rows.h"
#include "nn/ops.h"

void dl_head_loss(dl_graph *g, int x, int weight)
{
    dl_graph_add(g, &dl_op_head_loss, x, DL_NO_VALUE, weight, 1, NULL, 0);
}

static void shape(dl_graph *g, dl_node *node)
{
    DL_ASSERT(g->values[node->in[0]].width == g->weights[node->weight].columns);
    g->n_logits = g->weights[node->weight].rows;
}

/* Positions of a block: about two million logits, but enough for dW's product to pay. */
static size_t block_positions(size_t vocab, size_t positions)
{
    size_t wanted = dl_size_max(((size_t)1 << 21) / vocab, 128);
    return dl_size_min(dl_size_round_up(wanted, DL_GEMM_GRAIN), positions);
}

/* Logits of a block, then a loss for every position. */
static size_t scratch(const dl_graph *g, const dl_node *node)
{
    size_t vocab = g->weights[node->weight].rows, positions = g->max_rows * g->max_length;
    return (block_positions(vocab, positions) * vocab + positions) * sizeof(float);
}

static double flops(const dl_graph *g, const dl_node *node)
{
    return 2.0 * (double)g->weights[node->weight].rows * (double)g->weights[node->weight].columns;
}

/* x becomes softmax(x) * gain, *lse the logsumexp. */
static inline DL_BODY void softmax_body(float *x, float *lse, size_t n, float gain)
{
    float lanes[DL_LANES], top = -INFINITY, rest = 0;
    size_t i = 0;
    for (size_t l = 0; l < DL_LANES; l++)
        lanes[l] = -INFINITY;
    for (; i + DL_LANES <= n; i += DL_LANES)
        for (size_t l = 0; l < DL_LANES; l++)
            lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (size_t l = 0; l < DL_LANES; l++)
        top = lanes[l] > top ? lanes[l] : top;

    for (i = 0; i < n; i++)
        x[i] = dl_exp(x[i] - top);
    dl_vec sums = {0};
    for (i = 0; i + DL_LANES <= n; i += DL_LANES)
        sums += DL_CVEC(x + i);
    for (; i < n; i++)
        rest += x[i];
    float sum = dl_vec_sum(&sums) + rest, share = gain / sum;
    for (i = 0; i < n; i++)
        x[i] *= share;
    *lse = top + logf(sum);
}
DL_KERNEL(softmax, (float *x, float *lse, size_t n, float gain), softmax_body(x, lse, n, gain))

typedef struct block {
    const dl_pass *pass;
    size_t first, n; /* positions */
    size_t vocab, channels;
    float *logits; /* [n][vocab], later their gradient */
    float *losses; /* [positions] */
    const float *x, *weight;
} block;

static block block_of(const dl_pass *p)
{
    const dl_weight *w = &p->graph->weights[p->node->weight];
    block b = {.pass = p,
               .vocab = w->rows,
               .channels = w->columns,
               .logits = p->scratch,
               .x = dl_data(p, p->node->in[0]),
               .weight = dl_weight_data(p)};
    size_t max_positions = p->graph->max_rows * p->graph->max_length;
    b.losses = b.logits + block_positions(b.vocab, max_positions) * b.vocab;
    return b;
}

/* The loss of one position; its logits become their gradient. */
static float position_loss(float *logits, size_t vocab, int32_t target, float gain)
{
    if (target < 0) {
        memset(logits, 0, vocab * sizeof *logits);
        return 0;
    }
    float right = logits[target], lse;
    softmax[dl_isa_chosen()](logits, &lse, vocab, gain);
    logits[target] -= gain;
    return lse - right;
}

static void losses_part(void *context, int part, int n_parts)
{
    const block *b = context;
    const dl_pass *p = b->pass;
    bool back = p->batch.mode == DL_TRAIN;
    size_t begin, end;
    dl_gemm_args logits = {.trans_a = 'N',
                           .trans_b = 'T',
                           .m = b->n,
                           .n = b->vocab,
                           .k = b->channels,
                           .a = b->x + b->first * b->channels,
                           .lda = b->channels,
                           .b = b->weight,
                           .ldb = b->channels,
                           .c = b->logits,
                           .ldc = b->vocab};
    dl_part_range(&begin, &end, b->n, DL_GEMM_GRAIN, part, n_parts);
    dl_gemm_rows(&logits, begin, end);
    for (size_t i = begin; i < end; i++)
        b->losses[b->first + i] = position_loss(b->logits + i * b->vocab, b->vocab,
                                                p->graph->targets[b->first + i], p->batch.gain);
    if (!back) return;
    dl_gemm_args dx = {.trans_a = 'N',
                       .trans_b = 'N',
                       .m = b->n,
                       .n = b->channels,
                       .k = b->vocab,
                       .a = b->logits,
                       .lda = b->vocab,
                       .b = b->weight,
                       .ldb = b->channels,
                       .c = dl_grad(p, p->node->in[0]) + b->first * b->channels,
                       .ldc = b->channels};
    dl_gemm_rows(&dx, begin, end);
}

static void weight_part(void *context, int part, int n_parts)
{
    const block *b = context;
    bool adds = dl_weight_adds(b->pass) || b->first > 0;
    size_t begin, end;
    dl_gemm_args dw = {.trans_a = 'T',
                       .trans_b = 'N',
                       .m = b->vocab,
                       .n = b->channels,
                       .k = b->n,
                       .a = b->logits,
                       .lda = b->vocab,
                       .b = b->x + b->first * b->channels,
                       .ldb = b->channels,
                       .c = dl_weight_grad(b->pass),
                       .ldc = b->channels,
                       .beta = adds ? 1.0f : 0.0f};
    dl_part_range(&begin, &end, b->vocab, DL_GEMM_GRAIN, part, n_parts);
    dl_gemm_rows(&dw, begin, end);
}

static void all_blocks(const dl_pass *p)
{
    block b = block_of(p);
    size_t step = block_positions(b.vocab, p->graph->max_rows * p->graph->max_length);
    for (b.first = 0; b.first < p->positions; b.first += b.n) {
        b.n = dl_size_min(step, p->positions - b.first);
        dl_pool_run(p->pool, losses_part, &b);
        if (p->batch.mode == DL_TRAIN) dl_pool_run(p->pool, weight_part, &b);
    }
    for (size_t i = 0; i < p->positions; i++)
        *p->graph->loss += (double)b.losses[i];
}

/* Logits of the last position of the one sequence. */
static void predict(const dl_pass *p)
{
    block b = block_of(p);
    dl_gemm(&(dl_gemm_args){.trans_a = 'N',
                            .trans_b = 'T',
                            .m = 1,
                            .n = b.vocab,
                            .k = b.channels,
                            .a = b.x + (p->positions - 1) * b.channels,
                            .lda = b.channels,
                            .b = b.weight,
                            .ldb = b.channels,
                            .c = p->graph->logits,
                            .ldc = b.vocab});
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
    .scratch = scratch,
    .flops = flops,
    .forward = {[DL_DEVICE_CPU] = forward},
    .backward = {[DL_DEVICE_CPU] = all_blocks},
};
