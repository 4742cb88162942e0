/* export_gguf.c - GGUF version 3 (github.com/ggml-org/ggml, docs/gguf.md), as llama.cpp reads it:
 *
 *     "GGUF" | u32 version | u64 tensors | u64 values | the values | the tensors' table | data
 *
 * All numbers are little-endian. A string is a u64 length and bytes. A tensor's sizes begin with
 * its innermost dimension, and its data begins at a multiple of 32. Vectors stay F32.
 *
 * Rotary positions (arXiv:2104.09864) rotate pairs of a head's values. llama.cpp's "llama" pairs
 * (2i, 2i + 1); Hugging Face and this project pair (i, i + dim/2), as does llama.cpp's "qwen3". For
 * "llama" the rows of q and k are therefore reordered, so that both compute the same.
 *
 * The rotation's scaling of Llama 3.1 is a tensor of divisors in GGUF, one for each pair. Only
 * "llama" reads it. */
#include "interop/export_gguf.h"

#include "model/gpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ALIGN: GGUF's default, which holds unless general.alignment is set. AT_VALUES: the offset of the
 * number of values in the file. */
enum { VERSION = 3, ALIGN = 32, AT_VALUES = 16 };

/* ---- values */

void dl_gguf_string(dl_gguf *g, const char *text, size_t len)
{
    dl_pieces_u(&g->pieces, len, 8);
    dl_pieces_add(&g->pieces, text, len);
}

/* Begins a value: "GROUP.KEY" and its type. 96 bytes hold the longest key of this file. */
static void put_key(dl_gguf *g, const char *group, const char *key, unsigned type)
{
    char name[96];
    int len = snprintf(name, sizeof name, "%s.%s", group, key);
    dl_gguf_string(g, name, (size_t)len);
    dl_pieces_u(&g->pieces, type, 4);
    g->n_values++;
}

void dl_gguf_u32(dl_gguf *g, const char *group, const char *key, uint64_t value)
{
    put_key(g, group, key, DL_GGUF_U32);
    dl_pieces_u(&g->pieces, value, 4);
}

void dl_gguf_bool(dl_gguf *g, const char *group, const char *key, bool value)
{
    put_key(g, group, key, DL_GGUF_BOOL);
    dl_pieces_u(&g->pieces, value, 1);
}

static void put_float(dl_gguf *g, double value)
{
    float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    dl_pieces_u(&g->pieces, bits, 4);
}

static void put_f32(dl_gguf *g, const char *group, const char *key, double value)
{
    put_key(g, group, key, DL_GGUF_F32);
    put_float(g, value);
}

void dl_gguf_text(dl_gguf *g, const char *group, const char *key, const char *value)
{
    put_key(g, group, key, DL_GGUF_STRING);
    dl_gguf_string(g, value, strlen(value));
}

void dl_gguf_array(dl_gguf *g, const char *group, const char *key, dl_gguf_type type, size_t n)
{
    put_key(g, group, key, DL_GGUF_ARRAY);
    dl_pieces_u(&g->pieces, type, 4);
    dl_pieces_u(&g->pieces, n, 8);
}

/* The number of a tensor's type (enum ggml_type), and of a file in which most tensors have that
 * type (enum llama_ftype). The two lists differ for bf16. */
static unsigned tensor_type(const char *dtype)
{
    return strcmp(dtype, "F16") == 0 ? 1 : strcmp(dtype, "BF16") == 0 ? 30 : 0;
}
static unsigned file_type(const char *dtype)
{
    return strcmp(dtype, "F16") == 0 ? 1 : strcmp(dtype, "BF16") == 0 ? 32 : 0;
}

/* Llama 3.1's scaling is a tensor and no value here; see put_tables(). */
static void put_rope(dl_gguf *g, const char *arch, const dl_gpt_shape *s)
{
    dl_gguf_u32(g, arch, "rope.dimension_count", s->dim);
    put_f32(g, arch, "rope.freq_base", s->rope.theta);
    if (s->rope.scaling != DL_ROPE_LINEAR) return;
    dl_gguf_text(g, arch, "rope.scaling.type", "linear");
    put_f32(g, arch, "rope.scaling.factor", s->rope.factor);
}

/* The model's shape. A model that normalizes q and k is a "qwen3" to llama.cpp. */
static void put_values(dl_gguf *g, const dl_export *e, const dl_gpt_shape *s)
{
    const char *arch = s->qk_norm ? "qwen3" : "llama";
    dl_gguf_text(g, "general", "architecture", arch);
    dl_gguf_text(g, "general", "name", "diloco");
    dl_gguf_u32(g, "general", "file_type", file_type(e->dtype));
    dl_gguf_u32(g, arch, "vocab_size", s->vocab);
    dl_gguf_u32(g, arch, "context_length", (uint64_t)e->config->context);
    dl_gguf_u32(g, arch, "embedding_length", s->channels);
    dl_gguf_u32(g, arch, "block_count", s->layers);
    dl_gguf_u32(g, arch, "feed_forward_length", s->ffn);
    dl_gguf_u32(g, arch, "attention.head_count", s->heads);
    dl_gguf_u32(g, arch, "attention.head_count_kv", s->kv_heads);
    dl_gguf_u32(g, arch, "attention.key_length", s->dim);
    dl_gguf_u32(g, arch, "attention.value_length", s->dim);
    put_f32(g, arch, "attention.layer_norm_rms_epsilon", s->eps);
    put_rope(g, arch, s);
}

/* ---- tensors */

/* Translates a tensor's name: "model.layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight". Returns
 * DILOCO_EREFUSED for a name that GGUF does not have. */
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

/* Returns true for a matrix whose rows are reordered. */
static bool is_turned(const dl_gpt_shape *s, const char *name)
{
    return !s->qk_norm && (strstr(name, ".q_proj.weight") || strstr(name, ".k_proj.weight"));
}

/* Adds a tensor's row to the table. `offset` counts from the beginning of the data. */
static void put_table(dl_gguf *g, const dl_st_tensor *t, const char *name, size_t offset)
{
    dl_pieces *p = &g->pieces;
    dl_gguf_string(g, name, strlen(name));
    dl_pieces_u(p, (uint64_t)t->n_dims, 4);
    for (int d = t->n_dims; d-- > 0;)
        dl_pieces_u(p, t->shape[d], 8);
    dl_pieces_u(p, tensor_type(t->dtype), 4);
    dl_pieces_u(p, offset, 8);
}

/* Adds a matrix with the two halves of each head's rows interleaved: row i of the first half comes
 * before row i of the second. Each row is a borrowed span, so nothing is copied. A head has `dim`
 * rows. */
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

/* Refuses the one model that GGUF cannot express. */
static diloco_status check_rope(const dl_gpt_shape *s)
{
    if (!s->qk_norm || s->rope.scaling != DL_ROPE_LLAMA3) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "parameters.model.rope_scaling = \"llama3\" with qk_norm: gguf's qwen3 has no "
                   "place for it; export it to hf or npz");
}

/* Adds the tensors' table. The last row is that of the divisors, if the model has them. */
static diloco_status put_tables(dl_gguf *g, const dl_export *e, const dl_gpt_shape *s)
{
    const dl_st_tensor divisors = {.dtype = "F32", .n_dims = 1, .shape = {s->dim / 2}};
    size_t offset = 0;
    char name[96];
    for (size_t i = 0; i < e->n; i++) {
        DL_TRY(name_of(name, e->tensors[i].name));
        put_table(g, &e->tensors[i], name, offset);
        offset += dl_size_round_up(e->data[i].len, ALIGN);
    }
    if (s->rope.scaling == DL_ROPE_LLAMA3) put_table(g, &divisors, "rope_freqs.weight", offset);
    return DILOCO_OK;
}

/* Adds the data in the order of the table, each tensor aligned. */
static void put_data(dl_gguf *g, const dl_export *e, const dl_gpt_shape *s)
{
    for (size_t i = 0; i < e->n; i++) {
        dl_pieces_pad(&g->pieces, ALIGN);
        if (is_turned(s, e->tensors[i].name))
            put_turned(&g->pieces, &e->tensors[i], e->data[i], s->dim);
        else
            dl_pieces_put(&g->pieces, e->data[i]);
    }
    dl_pieces_pad(&g->pieces, ALIGN);
    for (size_t pair = 0; s->rope.scaling == DL_ROPE_LLAMA3 && pair < s->dim / 2; pair++)
        put_float(g, dl_rope_divisor(&s->rope, pair, s->dim));
    dl_pieces_pad(&g->pieces, ALIGN);
}

/* Sets the number of values, which is known only after them. Everything before the tensors' data is
 * in `small`, so the offset in the file is the offset there. */
static void set_n_values(dl_gguf *g)
{
    for (int i = 0; i < 8 && !g->pieces.status; i++)
        g->pieces.small.data[AT_VALUES + i] = (unsigned char)(g->n_values >> 8 * i);
}

/* Adds the file's parts in their order. */
static diloco_status put_all(dl_gguf *g, const dl_export *e)
{
    dl_gpt_shape s;
    DL_TRY(dl_gpt_shape_read(&s, e->config, 1));
    DL_TRY(check_rope(&s));
    dl_pieces_add(&g->pieces, "GGUF", 4);
    dl_pieces_u(&g->pieces, VERSION, 4);
    dl_pieces_u(&g->pieces, e->n + (s.rope.scaling == DL_ROPE_LLAMA3), 8);
    dl_pieces_u(&g->pieces, 0, 8);
    put_values(g, e, &s);
    DL_TRY(dl_gguf_tokenizer(g, e, s.vocab));
    set_n_values(g);
    DL_TRY(put_tables(g, e, &s));
    put_data(g, e, &s);
    return DILOCO_OK;
}

static diloco_status write_gguf(const dl_export *e)
{
    dl_gguf g = {.n_values = 0};
    dl_pieces_init(&g.pieces);
    diloco_status status = put_all(&g, e);
    if (!status) status = dl_pieces_write(&g.pieces, e->to);
    dl_pieces_deinit(&g.pieces);
    return status;
}

const dl_export_format dl_export_gguf = {"gguf", true, false, true, write_gguf};
