/* export_gguf.c - GGUF version 3 (github.com/ggml-org/ggml, docs/gguf.md), as llama.cpp reads it:
 *
 *     "GGUF" | u32 version | u64 tensors | u64 values | the values | the tensors' table | data
 *
 * all little-endian, strings as u64 length and bytes, sizes of a tensor from its innermost
 * dimension, each tensor's data at a multiple of 32. Vectors stay F32.
 *
 * llama.cpp's "llama" turns pairs (2i, 2i + 1) of a head by its positions, Hugging Face's and
 * ours turn (i, i + dim/2): the rows of q and k are reordered so that both do the same. Its "qwen3"
 * turns halves. */
#include "train/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 3, ALIGN = 32, U32 = 4, F32 = 6, STRING = 8 }; /* types of values */

/* ---- values */

static void put_string(dl_pieces *p, const char *text)
{
    dl_pieces_u(p, strlen(text), 8);
    dl_pieces_add(p, text, strlen(text));
}

static void put_key(dl_pieces *p, const char *arch, const char *key, unsigned type)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    put_string(p, name);
    dl_pieces_u(p, type, 4);
}

static void put_u32(dl_pieces *p, const char *arch, const char *key, int64_t value)
{
    put_key(p, arch, key, U32);
    dl_pieces_u(p, (uint64_t)value, 4);
}

static void put_f32(dl_pieces *p, const char *arch, const char *key, double value)
{
    float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(p, arch, key, F32);
    dl_pieces_u(p, bits, 4);
}

static void put_text(dl_pieces *p, const char *arch, const char *key, const char *value)
{
    put_key(p, arch, key, STRING);
    put_string(p, value);
}

/* Types of tensors, and of a file in which most are of one. */
static unsigned tensor_type(const char *dtype)
{
    return strcmp(dtype, "F16") == 0 ? 1 : strcmp(dtype, "BF16") == 0 ? 30 : 0;
}
static unsigned file_type(const char *dtype)
{
    return strcmp(dtype, "F16") == 0 ? 1 : strcmp(dtype, "BF16") == 0 ? 32 : 0;
}

enum { N_VALUES = 14 };

static void put_values(dl_pieces *p, const dl_export *e, size_t ffn)
{
    const dl_config *c = e->config;
    const char *arch = c->qk_norm ? "qwen3" : "llama";
    put_text(p, "general", "architecture", arch);
    put_text(p, "general", "name", "diloco");
    put_u32(p, "general", "file_type", file_type(e->dtype));
    put_u32(p, arch, "vocab_size", c->vocab);
    put_u32(p, arch, "context_length", c->context);
    put_u32(p, arch, "embedding_length", c->channels);
    put_u32(p, arch, "block_count", c->layers);
    put_u32(p, arch, "feed_forward_length", (int64_t)ffn);
    put_u32(p, arch, "attention.head_count", c->heads);
    put_u32(p, arch, "attention.head_count_kv", c->kv_heads ? c->kv_heads : c->heads);
    put_u32(p, arch, "rope.dimension_count", c->channels / c->heads);
    put_f32(p, arch, "attention.layer_norm_rms_epsilon", c->norm_eps);
    put_f32(p, arch, "rope.freq_base", c->rope_theta);
    put_text(p, "tokenizer.ggml", "model", "none");
}

/* ---- tensors */

/* "model.layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight" */
static diloco_status name_of(char out[96], const char *name)
{
    static const char *const ends[][2] = {{"model.embed_tokens.weight", "token_embd.weight"},
                                          {"model.norm.weight", "output_norm.weight"},
                                          {"lm_head.weight", "output.weight"}};
    static const char *const parts[][2] = {
        {"self_attn.q_proj", "attn_q"},          {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},          {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},     {"self_attn.k_norm", "attn_k_norm"},
        {"mlp.gate_proj", "ffn_gate"},           {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},           {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", "ffn_norm"}};
    unsigned layer;
    char part[64];
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (strcmp(ends[i][0], name) == 0) {
            snprintf(out, 96, "%s", ends[i][1]);
            return DILOCO_OK;
        }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(part, sizeof part, ".%s.weight", parts[i][0]);
        const char *at = strstr(name, part);
        if (at && sscanf(name, "model.layers.%u", &layer) == 1) {
            snprintf(out, 96, "blk.%u.%s.weight", layer, parts[i][1]);
            return DILOCO_OK;
        }
    }
    return dl_fail(DILOCO_EREFUSED, "tensor %s has no name in gguf", name);
}

static bool is_turned(const dl_export *e, const char *name)
{
    return !e->config->qk_norm &&
           (strstr(name, ".q_proj.weight") || strstr(name, ".k_proj.weight"));
}

static void put_table(dl_pieces *p, const dl_st_tensor *t, const char *name, size_t offset)
{
    put_string(p, name);
    dl_pieces_u(p, (uint64_t)t->n_dims, 4);
    for (int d = t->n_dims; d-- > 0;)
        dl_pieces_u(p, t->shape[d], 8);
    dl_pieces_u(p, tensor_type(t->dtype), 4);
    dl_pieces_u(p, offset, 8);
}

/* Row i of each head's first half, row i of its second half, row i + 1 of its first, … */
static void put_turned(dl_pieces *p, const dl_st_tensor *t, dl_span data, size_t dim)
{
    size_t row = data.len / t->shape[0], half = dim / 2;
    const unsigned char *from = data.data;
    for (size_t head = 0; head < t->shape[0]; head += dim)
        for (size_t i = 0; i < dim; i++) {
            size_t at = head + i / 2 + (i % 2 ? half : 0);
            dl_pieces_put(p, (dl_span){from + at * row, row});
        }
}

static size_t ffn_of(const dl_export *e)
{
    for (size_t i = 0; i < e->n; i++)
        if (strstr(e->tensors[i].name, "mlp.up_proj")) return e->tensors[i].shape[0];
    return (size_t)e->config->ffn;
}

static diloco_status put_all(dl_pieces *p, const dl_export *e)
{
    size_t offset = 0;
    char name[96];
    dl_pieces_add(p, "GGUF", 4);
    dl_pieces_u(p, VERSION, 4);
    dl_pieces_u(p, e->n, 8);
    dl_pieces_u(p, N_VALUES, 8);
    put_values(p, e, ffn_of(e));
    for (size_t i = 0; i < e->n; i++) {
        DL_TRY(name_of(name, e->tensors[i].name));
        put_table(p, &e->tensors[i], name, offset);
        offset += dl_size_round_up(e->data[i].len, ALIGN);
    }
    for (size_t i = 0; i < e->n; i++) {
        dl_pieces_pad(p, ALIGN);
        if (is_turned(e, e->tensors[i].name))
            put_turned(p, &e->tensors[i], e->data[i],
                       (size_t)(e->config->channels / e->config->heads));
        else
            dl_pieces_put(p, e->data[i]);
    }
    dl_pieces_pad(p, ALIGN);
    return DILOCO_OK;
}

static diloco_status write_gguf(const dl_export *e)
{
    dl_pieces p;
    dl_pieces_init(&p);
    diloco_status status = put_all(&p, e);
    if (!status) status = dl_pieces_write(&p, e->to);
    dl_pieces_deinit(&p);
    return status;
}

const dl_export_format dl_export_gguf = {"gguf", true, false, true, write_gguf};
