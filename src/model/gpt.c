/* gpt.c - a decoder as Llama is (Touvron et al. 2023, arXiv:2302.13971): RMSNorm before each
 * half, rotary positions, grouped-query attention, SwiGLU, no biases. Tensors are named and
 * shaped as Hugging Face's LlamaForCausalLM names and shapes them; q, k, v and gate, up follow
 * one another so that each group is one product. With qk_norm the scales are named as in Hugging
 * Face's Qwen3.
 *
 * Initial values: normal with deviation 0.02, those of the products that end in the residual stream
 * divided by sqrt(2 layers) (GPT-2), norms 1. */
#include "model/rows.h"
#include "nn/ops.h"

#include <math.h>

typedef struct shape {
    size_t layers, heads, kv_heads, dim, channels, ffn, vocab;
    float eps, deviation, z_loss;
    double theta;
    bool tied, qk_norm;
} shape;

enum { MAX_VOCAB = INT32_MAX, FFN_GRAIN = 32 };

static diloco_status read_shape(shape *out, const dl_config *c, size_t vocab)
{
    shape s = {.layers = (size_t)c->layers,
               .heads = (size_t)c->heads,
               .kv_heads = (size_t)(c->kv_heads ? c->kv_heads : c->heads),
               .channels = (size_t)c->channels,
               .ffn = (size_t)c->ffn,
               .vocab = c->vocab ? (size_t)c->vocab : vocab,
               .eps = (float)c->norm_eps,
               .deviation = 0.02f,
               .z_loss = (float)c->z_loss,
               .theta = c->rope_theta,
               .tied = c->tied,
               .qk_norm = c->qk_norm};
    if (s.channels % s.heads)
        return dl_fail(
            DILOCO_EINVAL,
            "parameters.model.heads = %zu does not divide parameters.model.channels = %zu", s.heads,
            s.channels);
    s.dim = s.channels / s.heads;
    if (s.dim % 2)
        return dl_fail(
            DILOCO_EINVAL,
            "parameters.model.channels / heads = %zu is odd: rotary positions turn pairs", s.dim);
    if (s.heads % s.kv_heads)
        return dl_fail(
            DILOCO_EINVAL,
            "parameters.model.kv_heads = %zu does not divide parameters.model.heads = %zu",
            s.kv_heads, s.heads);
    if (s.vocab < vocab || s.vocab == 0 || s.vocab > MAX_VOCAB)
        return dl_fail(DILOCO_EINVAL,
                       "parameters.model.vocab = %zu: the tokenizer has %zu tokens, the most is %d",
                       s.vocab, vocab, MAX_VOCAB);
    if (s.ffn == 0) s.ffn = dl_size_round_up((8 * s.channels + 2) / 3, FFN_GRAIN);
    *out = s;
    return DILOCO_OK;
}

/* One block: the stream and what is still to be added to it go in and come out. */
static void add_block(dl_graph *g, const shape *s, size_t layer, int *x, int *delta)
{
    float inner = s->deviation, last = s->deviation / sqrtf(2.0f * (float)s->layers);
    size_t kv = s->kv_heads * s->dim;
#define NAME(what) "model.layers.%zu." what ".weight", layer
    int q = dl_graph_weight(g, s->channels, s->channels, DL_INITIAL_NORMAL, inner,
                            NAME("self_attn.q_proj"));
    dl_graph_weight(g, kv, s->channels, DL_INITIAL_NORMAL, inner, NAME("self_attn.k_proj"));
    dl_graph_weight(g, kv, s->channels, DL_INITIAL_NORMAL, inner, NAME("self_attn.v_proj"));
    int o = dl_graph_weight(g, s->channels, s->channels, DL_INITIAL_NORMAL, last,
                            NAME("self_attn.o_proj"));
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
    y = dl_attention(g, y, s->heads, s->kv_heads, s->theta);
    *delta = dl_linear(g, y, o, 1);
    y = dl_add_norm(g, x, *x, *delta, norm2, s->eps);
    *delta = dl_linear(g, dl_swiglu(g, dl_linear(g, y, gate, 2)), down, 1);
}

diloco_status dl_gpt_build(dl_graph **out, const dl_config *config, const dl_sample *sample,
                           size_t max_rows, int n_threads)
{
    shape s = {0};
    enum { NODES = 9, WEIGHTS = 11, ENDS = 3 }; /* of a block; and of both ends */
    DL_TRY(read_shape(&s, config, sample->classes));
    DL_TRY(dl_graph_create(out, NODES * (int)s.layers + ENDS, WEIGHTS * (int)s.layers + ENDS,
                           max_rows, (size_t)config->context, n_threads));
    dl_graph *g = *out;
    int delta = DL_NO_VALUE;
    int table = dl_graph_weight(g, s.vocab, s.channels, DL_INITIAL_NORMAL, s.deviation,
                                "model.embed_tokens.weight");
    int x = dl_embedding(g, table);
    for (size_t layer = 0; layer < s.layers; layer++)
        add_block(g, &s, layer, &x, &delta);
    int norm = dl_graph_weight(g, 0, s.channels, DL_INITIAL_ONES, 0, "model.norm.weight");
    int y = dl_add_norm(g, NULL, x, delta, norm, s.eps);
    int head = s.tied ? table
                      : dl_graph_weight(g, s.vocab, s.channels, DL_INITIAL_NORMAL, s.deviation,
                                        "lm_head.weight");
    dl_head_loss(g, y, head, s.z_loss);
    return DILOCO_OK;
}
