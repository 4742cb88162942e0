/* gpt.c - a decoder as Llama is (Touvron et al. 2023, arXiv:2302.13971): RMSNorm before each
 * half, rotary positions, grouped-query attention, SwiGLU, no biases. Tensors are named and
 * shaped as Hugging Face's LlamaForCausalLM names and shapes them; q, k, v and gate, up follow
 * one another so that each group is one product. With qk_norm the scales are named as in Hugging
 * Face's Qwen3.
 *
 * Initial values: normal with deviation 0.02, those of the products that end in the residual stream
 * divided by sqrt(2 layers) (GPT-2), norms 1. */
#include "model/gpt.h"
#include "model/model_rows.h"
#include "nn/ops.h"

#include <math.h>

/* A token is an int32_t. The default ffn is a multiple of FFN_GRAIN, for whole vectors in the
 * products. */
enum { MAX_VOCAB = INT32_MAX, FFN_GRAIN = 32 };

/* ---- the shape */

/* Fills heads, kv_heads and dim from the options, of which 0 means a default; s->channels is set
 * before. */
static diloco_status read_heads(dl_gpt_shape *s, const dl_config *c)
{
    s->heads = (size_t)c->heads;
    s->kv_heads = (size_t)(c->kv_heads ? c->kv_heads : c->heads);
    s->dim = (size_t)c->head_dim;
    if (s->dim == 0 && s->channels % s->heads)
        return dl_fail(DILOCO_EINVAL,
                       "parameters.model.heads = %zu does not divide parameters.model.channels = "
                       "%zu: set parameters.model.head_dim, or heads that do",
                       s->heads, s->channels);
    if (s->dim == 0) s->dim = s->channels / s->heads;
    if (s->dim % 2)
        return dl_fail(DILOCO_EINVAL,
                       "parameters.model.%s = %zu is odd: rotary positions turn pairs",
                       c->head_dim ? "head_dim" : "channels / heads", s->dim);
    if (s->heads % s->kv_heads == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "parameters.model.kv_heads = %zu does not divide parameters.model.heads = %zu",
                   s->kv_heads, s->heads);
}

static diloco_status read_rope(dl_rope *out, const dl_config *c)
{
    *out = (dl_rope){.theta = c->rope_theta,
                     .scaling = c->rope_scaling,
                     .factor = c->rope_factor,
                     .low = c->rope_low,
                     .high = c->rope_high,
                     .original = (double)c->rope_original};
    if (out->scaling != DL_ROPE_LLAMA3 || out->low < out->high) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "parameters.model.rope_low_freq_factor = %g is not below "
                   "parameters.model.rope_high_freq_factor = %g: pairs between them turn partly "
                   "more slowly",
                   out->low, out->high);
}

diloco_status dl_gpt_shape_read(dl_gpt_shape *out, const dl_config *c, size_t vocab)
{
    dl_gpt_shape s = {.layers = (size_t)c->layers,
                      .channels = (size_t)c->channels,
                      .ffn = (size_t)c->ffn,
                      .vocab = c->vocab ? (size_t)c->vocab : vocab,
                      .eps = (float)c->norm_eps,
                      .z_loss = (float)c->z_loss,
                      .tied = c->tied,
                      .qk_norm = c->qk_norm};
    DL_TRY(read_heads(&s, c));
    DL_TRY(read_rope(&s.rope, c));
    if (s.vocab < vocab || s.vocab == 0 || s.vocab > MAX_VOCAB)
        return dl_fail(DILOCO_EINVAL,
                       "parameters.model.vocab = %zu: the tokenizer has %zu tokens, the most is %d",
                       s.vocab, vocab, MAX_VOCAB);
    /* 8/3 channels: SwiGLU has three matrices, and so as many parameters as two of 4 channels
     * (arXiv:2002.05202). */
    if (s.ffn == 0) s.ffn = dl_size_round_up((8 * s.channels + 2) / 3, FFN_GRAIN);
    *out = s;
    return DILOCO_OK;
}

/* ---- the graph */

static const float DEVIATION = 0.02f;

/* Adds one layer. *x is the residual stream, and *delta the last product's result that is not yet
 * added to it: the next norm adds it in the same walk (nn/op_add_norm.c). Both are replaced. The
 * order of the weights matters: q, k, v are adjacent, and so are gate and up. */
static void add_block(dl_graph *g, const dl_gpt_shape *s, size_t layer, int *x, int *delta)
{
    const float inner = DEVIATION, last = DEVIATION / sqrtf(2.0f * (float)s->layers);
    const size_t all = s->heads * s->dim, kv = s->kv_heads * s->dim;
#define NAME(what) "model.layers.%zu." what ".weight", layer
    int q =
        dl_graph_weight(g, all, s->channels, DL_INITIAL_NORMAL, inner, NAME("self_attn.q_proj"));
    dl_graph_weight(g, kv, s->channels, DL_INITIAL_NORMAL, inner, NAME("self_attn.k_proj"));
    dl_graph_weight(g, kv, s->channels, DL_INITIAL_NORMAL, inner, NAME("self_attn.v_proj"));
    int o = dl_graph_weight(g, s->channels, all, DL_INITIAL_NORMAL, last, NAME("self_attn.o_proj"));
    int gate =
        dl_graph_weight(g, s->ffn, s->channels, DL_INITIAL_NORMAL, inner, NAME("mlp.gate_proj"));
    dl_graph_weight(g, s->ffn, s->channels, DL_INITIAL_NORMAL, inner, NAME("mlp.up_proj"));
    int down =
        dl_graph_weight(g, s->channels, s->ffn, DL_INITIAL_NORMAL, last, NAME("mlp.down_proj"));
    int norm1 = dl_graph_weight(g, 0, s->channels, DL_INITIAL_ONES, 0, NAME("input_layernorm"));
    int norm2 =
        dl_graph_weight(g, 0, s->channels, DL_INITIAL_ONES, 0, NAME("post_attention_layernorm"));
    int y = dl_add_norm(g, x, *x, *delta, norm1, s->eps);
    y = dl_linear(g, y, q, 3);
    if (s->qk_norm) {
        int norms = dl_graph_weight(g, 0, s->dim, DL_INITIAL_ONES, 0, NAME("self_attn.q_norm"));
        dl_graph_weight(g, 0, s->dim, DL_INITIAL_ONES, 0, NAME("self_attn.k_norm"));
        y = dl_qk_norm(g, y, norms, s->heads, s->kv_heads, s->eps);
    }
#undef NAME
    y = dl_attention(g, y, s->heads, s->kv_heads, &s->rope);
    *delta = dl_linear(g, y, o, 1);
    y = dl_add_norm(g, x, *x, *delta, norm2, s->eps);
    *delta = dl_linear(g, dl_swiglu(g, dl_linear(g, y, gate, 2)), down, 1);
}

diloco_status dl_gpt_build(dl_graph **out, const dl_config *config, const dl_sample *sample,
                           const dl_graph_target *target)
{
    dl_gpt_shape s;
    /* At most, of a block (with qk_norm) and of both ends together. */
    enum { NODES = 9, WEIGHTS = 11, ENDS = 3 };
    DL_TRY(dl_gpt_shape_read(&s, config, sample->classes));
    DL_TRY(dl_graph_create(out, NODES * (int)s.layers + ENDS, WEIGHTS * (int)s.layers + ENDS,
                           (size_t)config->context, target));
    dl_graph *g = *out;
    int delta = DL_NO_VALUE;
    int table = dl_graph_weight(g, s.vocab, s.channels, DL_INITIAL_NORMAL, DEVIATION,
                                "model.embed_tokens.weight");
    int x = dl_embedding(g, table);
    for (size_t layer = 0; layer < s.layers; layer++)
        add_block(g, &s, layer, &x, &delta);
    int norm = dl_graph_weight(g, 0, s.channels, DL_INITIAL_ONES, 0, "model.norm.weight");
    int y = dl_add_norm(g, NULL, x, delta, norm, s.eps);
    int head = s.tied ? table
                      : dl_graph_weight(g, s.vocab, s.channels, DL_INITIAL_NORMAL, DEVIATION,
                                        "lm_head.weight");
    dl_head_loss(g, y, head, s.z_loss);
    return DILOCO_OK;
}
