/* decode.c - the forward pass of gpt.c for one position. Products and heads are split over the
 * pool; the operations between them are too small to split.
 *
 * Kept for each layer and head of keys: keys (turned by their positions) and values, [context][dim]
 * each. */
#include "model/decode.h"

#include "model/gpt.h"
#include "nn/position.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parameters of one layer, borrowed. q_norm and k_norm are NULL without qk_norm. */
typedef struct block {
    const float *norm1, *qkv, *q_norm, *k_norm, *o, *norm2, *gate_up, *down;
} block;

/* Room for one position. */
typedef struct row {
    float *x, *y, *qkv, *mixed; /* [channels], [channels], of q k v, [all] */
    float *gate_up, *inner;     /* [2 ffn], [ffn] */
    float *cosine, *sine;       /* [dim / 2], of this position */
    float *scores;              /* [heads][context] */
} row;

struct dl_decoder {
    dl_pool *pool;
    size_t layers, heads, kv_heads, dim, all, channels, ffn, vocab, context; /* all: heads dim */
    float eps;
    dl_rope rope;
    const float *table, *norm, *head;
    block *blocks;        /* owned */
    float *memory;        /* owned: all that follows */
    float *keys, *values; /* [layers][kv_heads][context][dim] */
    row row;
    size_t n; /* positions taken */

    /* Of the step in progress, for the functions that the pool runs. */
    size_t layer;
    float *logits;
};

/* ---- making */

/* The model's tensors. */
typedef struct list {
    const diloco_tensor *tensors;
    size_t n;
} list;

static const diloco_tensor *find(const list *model, const char *name)
{
    for (size_t i = 0; i < model->n; i++)
        if (strcmp(model->tensors[i].name, name) == 0) return &model->tensors[i];
    return NULL;
}

/* Returns NULL if the model has no such tensor. */
static const float *of_layer(const list *model, size_t layer, const char *what)
{
    char name[DILOCO_NAME_MAX + 1];
    snprintf(name, sizeof name, "model.layers.%zu.%s.weight", layer, what);
    const diloco_tensor *t = find(model, name);
    return t ? t->data : NULL;
}

/* q, k, v and gate, up follow one another in the parameters (gpt.c). */
static block block_of(const list *model, size_t layer)
{
    return (block){.norm1 = of_layer(model, layer, "input_layernorm"),
                   .qkv = of_layer(model, layer, "self_attn.q_proj"),
                   .q_norm = of_layer(model, layer, "self_attn.q_norm"),
                   .k_norm = of_layer(model, layer, "self_attn.k_norm"),
                   .o = of_layer(model, layer, "self_attn.o_proj"),
                   .norm2 = of_layer(model, layer, "post_attention_layernorm"),
                   .gate_up = of_layer(model, layer, "mlp.gate_proj"),
                   .down = of_layer(model, layer, "mlp.down_proj")};
}

static diloco_status read_shape(dl_decoder *d, const list *model, const dl_config *c)
{
    const diloco_tensor *table = find(model, "model.embed_tokens.weight"),
                        *head = find(model, "lm_head.weight");
    dl_gpt_shape s;
    DL_TRY(dl_gpt_shape_read(&s, c, table->shape[0]));
    d->layers = s.layers;
    d->heads = s.heads;
    d->kv_heads = s.kv_heads;
    d->dim = s.dim;
    d->all = s.heads * s.dim;
    d->channels = s.channels;
    d->ffn = s.ffn;
    d->vocab = s.vocab;
    d->context = (size_t)c->context;
    d->eps = s.eps;
    d->rope = s.rope;
    d->table = table->data;
    d->head = head ? head->data : table->data;
    d->norm = find(model, "model.norm.weight")->data;
    return DILOCO_OK;
}

/* Divides the memory at base; with base NULL it only counts floats. Each piece is a multiple of 16
 * floats, so that all of them begin at a cache line. */
static size_t carve(dl_decoder *d, float *base)
{
    size_t kept = d->layers * d->kv_heads * d->context * d->dim, n = 0;
    struct {
        float **at;
        size_t n;
    } pieces[] = {{&d->keys, kept},
                  {&d->values, kept},
                  {&d->row.x, d->channels},
                  {&d->row.y, d->channels},
                  {&d->row.qkv, (d->heads + 2 * d->kv_heads) * d->dim},
                  {&d->row.mixed, d->all},
                  {&d->row.gate_up, 2 * d->ffn},
                  {&d->row.inner, d->ffn},
                  {&d->row.cosine, d->dim / 2},
                  {&d->row.sine, d->dim / 2},
                  {&d->row.scores, d->heads * d->context}};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        if (base) *pieces[i].at = base + n;
        n += dl_size_round_up(pieces[i].n, 16);
    }
    return n;
}

static diloco_status take_memory(dl_decoder *d)
{
    d->blocks = calloc(d->layers, sizeof *d->blocks);
    d->memory = aligned_alloc(64, carve(d, NULL) * sizeof(float));
    if (!d->blocks || !d->memory)
        return dl_fail(DILOCO_ENOMEM, "out of memory for the keys and values of %zu positions",
                       d->context);
    carve(d, d->memory);
    return DILOCO_OK;
}

diloco_status dl_decoder_create(dl_decoder **out, const diloco_tensor *tensors, size_t n,
                                const dl_config *config, dl_pool *pool)
{
    const list model = {tensors, n};
    *out = NULL;
    if (strcmp(config->model, "gpt") != 0)
        return dl_fail(DILOCO_EREFUSED, "a model %s generates no text", config->model);
    dl_decoder *d = calloc(1, sizeof *d);
    if (!d) return dl_fail(DILOCO_ENOMEM, "out of memory for a decoder");
    d->pool = pool;
    diloco_status status = read_shape(d, &model, config);
    if (!status) status = take_memory(d);
    if (status) {
        dl_decoder_destroy(d);
        return status;
    }
    for (size_t i = 0; i < d->layers; i++)
        d->blocks[i] = block_of(&model, i);
    *out = d;
    return DILOCO_OK;
}

void dl_decoder_destroy(dl_decoder *d)
{
    if (!d) return;
    free(d->blocks);
    free(d->memory);
    free(d);
}

size_t dl_decoder_length(const dl_decoder *d)
{
    return d->n;
}

void dl_decoder_reset(dl_decoder *d)
{
    d->n = 0;
}

/* ---- a step */

static float *kept_at(const dl_decoder *d, float *kept, size_t head, size_t position)
{
    return kept + ((d->layer * d->kv_heads + head) * d->context + position) * d->dim;
}

/* The functions below run on all threads, each with its rows of a product or its heads. An element
 * is one sum by one thread, so the number of threads changes no bit. */
static void qkv_part(void *context, int part, int n_parts)
{
    const dl_decoder *d = context;
    size_t begin, end, rows = (d->heads + 2 * d->kv_heads) * d->dim;
    dl_part_range(&begin, &end, rows, 16, part, n_parts);
    dl_position_product(d->row.qkv, d->blocks[d->layer].qkv, d->row.y, d->channels, begin, end);
}

static void attend_part(void *context, int part, int n_parts)
{
    const dl_decoder *d = context;
    size_t begin, end, group = d->heads / d->kv_heads;
    dl_part_range(&begin, &end, d->heads, 1, part, n_parts);
    for (size_t h = begin; h < end; h++)
        dl_position_attend(d->row.mixed + h * d->dim, d->row.qkv + h * d->dim,
                           kept_at(d, d->keys, h / group, 0), kept_at(d, d->values, h / group, 0),
                           d->n + 1, d->dim, d->row.scores + h * d->context);
}

static void out_part(void *context, int part, int n_parts)
{
    const dl_decoder *d = context;
    size_t begin, end;
    dl_part_range(&begin, &end, d->channels, 16, part, n_parts);
    dl_position_product(d->row.y, d->blocks[d->layer].o, d->row.mixed, d->all, begin, end);
    for (size_t i = begin; i < end; i++)
        d->row.x[i] += d->row.y[i];
}

static void inner_part(void *context, int part, int n_parts)
{
    const dl_decoder *d = context;
    size_t begin, end;
    const float *w = d->blocks[d->layer].gate_up;
    dl_part_range(&begin, &end, d->ffn, 16, part, n_parts);
    dl_position_product(d->row.gate_up, w, d->row.y, d->channels, begin, end);
    dl_position_product(d->row.gate_up + d->ffn, w + d->ffn * d->channels, d->row.y, d->channels,
                        begin, end);
    dl_position_swiglu(d->row.inner + begin, d->row.gate_up + begin,
                       d->row.gate_up + d->ffn + begin, end - begin);
}

static void down_part(void *context, int part, int n_parts)
{
    const dl_decoder *d = context;
    size_t begin, end;
    dl_part_range(&begin, &end, d->channels, 16, part, n_parts);
    dl_position_product(d->row.y, d->blocks[d->layer].down, d->row.inner, d->ffn, begin, end);
    for (size_t i = begin; i < end; i++)
        d->row.x[i] += d->row.y[i];
}

static void head_part(void *context, int part, int n_parts)
{
    const dl_decoder *d = context;
    size_t begin, end;
    dl_part_range(&begin, &end, d->vocab, 16, part, n_parts);
    dl_position_product(d->logits, d->head, d->row.y, d->channels, begin, end);
}

/* Normalizes and rotates queries and keys, and stores the new key and value for later positions.
 * Query head h then uses the keys of head h / (heads / kv_heads). */
static void place_heads(dl_decoder *d)
{
    const block *b = &d->blocks[d->layer];
    for (size_t h = 0; h < d->heads + d->kv_heads; h++) {
        float *x = d->row.qkv + h * d->dim;
        const float *norm = h < d->heads ? b->q_norm : b->k_norm;
        if (norm) dl_position_norm(x, x, norm, d->dim, d->eps);
        dl_position_turn(x, d->row.cosine, d->row.sine, d->dim);
    }
    const float *k = d->row.qkv + d->heads * d->dim, *v = k + d->kv_heads * d->dim;
    for (size_t h = 0; h < d->kv_heads; h++) {
        memcpy(kept_at(d, d->keys, h, d->n), k + h * d->dim, d->dim * sizeof *k);
        memcpy(kept_at(d, d->values, h, d->n), v + h * d->dim, d->dim * sizeof *v);
    }
}

/* A step reads every parameter once, which bounds its speed by the memory's bandwidth; attention
 * adds O(n) for n positions. */
void dl_decoder_step(dl_decoder *d, float *logits, int32_t token)
{
    DL_ASSERT(d->n < d->context && token >= 0 && (size_t)token < d->vocab);
    memcpy(d->row.x, d->table + (size_t)token * d->channels, d->channels * sizeof *d->row.x);
    dl_rope_angles(d->row.cosine, d->row.sine, &d->rope, d->n, d->dim);
    for (d->layer = 0; d->layer < d->layers; d->layer++) {
        const block *b = &d->blocks[d->layer];
        dl_position_norm(d->row.y, d->row.x, b->norm1, d->channels, d->eps);
        dl_pool_run(d->pool, qkv_part, d);
        place_heads(d);
        dl_pool_run(d->pool, attend_part, d);
        dl_pool_run(d->pool, out_part, d);
        dl_position_norm(d->row.y, d->row.x, b->norm2, d->channels, d->eps);
        dl_pool_run(d->pool, inner_part, d);
        dl_pool_run(d->pool, down_part, d);
    }
    d->n++;
    if (!logits) return;
    d->logits = logits;
    dl_position_norm(d->row.y, d->row.x, d->norm, d->channels, d->eps);
    dl_pool_run(d->pool, head_part, d);
}
