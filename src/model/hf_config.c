/* hf_config.c - config.json, key by key. A key is one of three things. It becomes an
 * option, it must have a value that fits `gpt` anyway, or it has no effect on the model's
 * computation. A key of no row may change the model in unknown ways, so it is refused unless it is
 * null or false.
 *
 * Defaults are those of transformers' LlamaConfig and Qwen3Config, not this project's. */
#include "model/gpt.h"
#include "model/hf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* VALUE_MAX: bytes of a value that a message or an option gets. The others are defaults of
 * max_position_embeddings. */
enum { VALUE_MAX = 100, LLAMA_POSITIONS = 2048, QWEN3_POSITIONS = 32768 };

/* One config.json while it is read. */
typedef struct reading {
    dl_config *config;
    dl_hf_facts *facts;
    bool qwen3;
} reading;

static const struct {
    const char *key;
    const char *option; /* that it becomes; or */
    const char *must;   /* JSON texts it may be, with '|' between them; both NULL: anything */
} rows[] = {
    {"hidden_size", "parameters.model.channels", NULL},
    {"intermediate_size", "parameters.model.ffn", NULL},
    {"num_hidden_layers", "parameters.model.layers", NULL},
    {"num_attention_heads", "parameters.model.heads", NULL},
    {"num_key_value_heads", "parameters.model.kv_heads", NULL},
    {"head_dim", "parameters.model.head_dim", NULL},
    {"vocab_size", "parameters.model.vocab", NULL},
    {"rms_norm_eps", "parameters.model.norm_eps", NULL},
    {"rope_theta", "parameters.model.rope_theta", NULL},
    {"tie_word_embeddings", "parameters.model.tied", NULL},

    {"hidden_act", NULL, "\"silu\"|\"swish\""},
    {"attention_bias", NULL, "false"},
    {"mlp_bias", NULL, "false"},
    {"attention_dropout", NULL, "0.0|0"},
    {"partial_rotary_factor", NULL, "1.0|1"},
    {"use_sliding_window", NULL, "false"},

    {"architectures", NULL, NULL}, /* model_type says the same */
    {"model_type", NULL, NULL},    /* read before the others */
    {"layer_types", NULL, NULL},   /* checked by itself, as are the next three */
    {"rope_scaling", NULL, NULL},
    {"rope_parameters", NULL, NULL},
    {"max_position_embeddings", NULL, NULL},
    {"pretraining_tp", NULL, NULL}, /* how a product is split, not what it is */
    {"torch_dtype", NULL, NULL},    /* the weights say it themselves */
    {"dtype", NULL, NULL},
    {"transformers_version", NULL, NULL},
    {"use_cache", NULL, NULL},
    {"bos_token_id", NULL, NULL},
    {"eos_token_id", NULL, NULL},
    {"pad_token_id", NULL, NULL},
    {"initializer_range", NULL, NULL},
    {"max_window_layers", NULL, NULL}, /* of sliding windows */
    {"return_dict", NULL, NULL},       /* of a configuration written in full */
    {"id2label", NULL, NULL},
    {"label2id", NULL, NULL},
    {"chunk_size_feed_forward", NULL, NULL},
    {"_name_or_path", NULL, NULL},
    {"_attn_implementation", NULL, NULL},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* ---- reading */

/* Copies a value's JSON text for a message, cut to VALUE_MAX bytes. It is as untrusted as the file.
 */
static void text_of(char out[VALUE_MAX + 1], dl_json_value value)
{
    size_t len = dl_size_min((size_t)(value.end - value.at), VALUE_MAX);
    memcpy(out, value.at, len);
    out[len] = '\0';
}

/* Compares JSON texts, not numbers: 1.0 and 1 are two items of a list. */
static bool is_one_of(dl_json_value value, const char *list)
{
    size_t len = (size_t)(value.end - value.at);
    for (const char *at = list; *at; at += *at == '|') {
        size_t n = strcspn(at, "|");
        if (n == len && memcmp(at, value.at, n) == 0) return true;
        at += n;
    }
    return false;
}

static diloco_status refuse(const char *key, dl_json_value value, const char *why)
{
    char text[VALUE_MAX + 1];
    text_of(text, value);
    return dl_fail(DILOCO_EREFUSED, "%s = %s: %s", key, text, why);
}

/* Sets an option from a number or boolean. The option's own check refuses a value beyond its range;
 * `key` is named as its origin. */
static diloco_status set_option(const reading *r, const char *option, const char *key,
                                dl_json_value value)
{
    char text[VALUE_MAX + 1], origin[96];
    if (value.type != DL_JSON_NUMBER && value.type != DL_JSON_BOOL)
        return dl_fail(DILOCO_EPROTO, "\"%s\" is neither a number nor true or false", key);
    if (value.end - value.at > VALUE_MAX)
        return dl_fail(DILOCO_EPROTO, "\"%s\" is longer than a number is", key);
    text_of(text, value);
    snprintf(origin, sizeof origin, "config.json: %.80s", key);
    return dl_config_set(r->config, option, text, origin);
}

static bool is_there(dl_json_value value)
{
    return value.type != DL_JSON_MISSING && value.type != DL_JSON_NULL;
}

/* ---- rotary positions */

/* Each type of rope_types uses a prefix of these. */
static const struct {
    const char *key, *option;
} rope_keys[] = {
    {"rope_theta", "parameters.model.rope_theta"},
    {"factor", "parameters.model.rope_factor"},
    {"low_freq_factor", "parameters.model.rope_low_freq_factor"},
    {"high_freq_factor", "parameters.model.rope_high_freq_factor"},
    {"original_max_position_embeddings", "parameters.model.rope_original_context"},
};
enum { ROPE_THETA, ROPE_FACTOR, ROPE_ORIGINAL = 4 }; /* the first and the last may be missing */

typedef struct rope_type {
    const char *name, *option; /* here, and as parameters.model.rope_scaling */
    int n_keys;                /* of those above */
} rope_type;
/* In the order of dl_rope_scaling, which put_rope uses as the index. */
static const rope_type rope_types[] = {
    {"default", "none", 1}, {"linear", "linear", 2}, {"llama3", "llama3", 5}};
enum { N_ROPE_TYPES = sizeof rope_types / sizeof rope_types[0] };

/* Sets *out to the type that the object names; "default" if it names none. An object with both keys
 * has to name the same type twice. */
static diloco_status find_rope_type(const rope_type **out, const char *where, dl_json_value object)
{
    static const char *const keys[] = {"rope_type", "type"}; /* new and old */
    const rope_type *found = NULL;
    *out = rope_types;
    for (int k = 0; k < 2; k++) {
        dl_json_value value = dl_json_get(object, keys[k]);
        const rope_type *row = rope_types;
        if (!is_there(value)) continue;
        while (row < rope_types + N_ROPE_TYPES && !dl_json_is(value, row->name))
            row++;
        if (row == rope_types + N_ROPE_TYPES || (found && row != found)) {
            char name[128];
            snprintf(name, sizeof name, "%s.%s", where, keys[k]);
            return refuse(name, value,
                          found ? "rope_type and type differ"
                                : "default, linear and llama3 are known");
        }
        *out = found = row;
    }
    return DILOCO_OK;
}

/* Reads one key of the object. A key that the type does not use may only hold a value without
 * effect. */
static diloco_status read_rope_key(const reading *r, const rope_type *type, const char *where,
                                   dl_json_iter it)
{
    char key[64], name[128];
    DL_TRY(dl_json_as_str(key, sizeof key, it.key));
    snprintf(name, sizeof name, "%s.%s", where, key);
    if (strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0) return DILOCO_OK;
    for (int i = 0; i < type->n_keys; i++)
        if (strcmp(rope_keys[i].key, key) == 0)
            return set_option(r, rope_keys[i].option, name, it.value);
    if (is_one_of(it.value, "null|1.0|1")) return DILOCO_OK;
    return refuse(name, it.value, "this rope_type has no such key");
}

/* Checks that no key of the type is missing. As in transformers, the original length defaults to
 * max_position_embeddings. */
static diloco_status check_rope_keys(const reading *r, const rope_type *type, const char *where,
                                     dl_json_value object)
{
    char positions[24];
    for (int i = ROPE_FACTOR; i < type->n_keys && i < ROPE_ORIGINAL; i++)
        if (dl_json_get(object, rope_keys[i].key).type == DL_JSON_MISSING)
            return dl_fail(DILOCO_EPROTO, "\"%s.%s\" is missing", where, rope_keys[i].key);
    if (type->n_keys <= ROPE_ORIGINAL ||
        dl_json_get(object, rope_keys[ROPE_ORIGINAL].key).type != DL_JSON_MISSING)
        return DILOCO_OK;
    snprintf(positions, sizeof positions, "%" PRId64, r->facts->positions);
    return dl_config_set(r->config, rope_keys[ROPE_ORIGINAL].option, positions,
                         "config.json: max_position_embeddings");
}

static diloco_status read_rope_object(const reading *r, const char *where, dl_json_value object)
{
    const rope_type *type;
    if (object.type != DL_JSON_OBJECT)
        return dl_fail(DILOCO_EPROTO, "\"%s\" is not an object", where);
    DL_TRY(find_rope_type(&type, where, object));
    for (dl_json_iter it = dl_json_each(object); dl_json_next(&it);)
        DL_TRY(read_rope_key(r, type, where, it));
    DL_TRY(check_rope_keys(r, type, where, object));
    return dl_config_set(r->config, "parameters.model.rope_scaling", type->option, "config.json");
}

/* Reads rope_scaling (older folders) or rope_parameters (newer ones). It runs after all other keys,
 * because a rope_theta inside replaces the one outside. */
static diloco_status read_rope(const reading *r, dl_json_value root)
{
    dl_json_value old = dl_json_get(root, "rope_scaling"),
                  new = dl_json_get(root, "rope_parameters");
    if (is_there(old) && is_there(new))
        return refuse("rope_parameters", new, "rope_scaling is given as well");
    if (is_there(old)) return read_rope_object(r, "rope_scaling", old);
    return is_there(new) ? read_rope_object(r, "rope_parameters", new) : DILOCO_OK;
}

/* ---- the other keys */

static diloco_status check_array(const char *key, dl_json_value value)
{
    if (!is_there(value) || value.type == DL_JSON_ARRAY) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "\"%s\" is not an array", key);
}

static diloco_status read_layer_types(dl_json_value array)
{
    DL_TRY(check_array("layer_types", array));
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it);)
        if (!dl_json_is(it.value, "full_attention"))
            return refuse("layer_types", it.value, "every layer attends to all that is before it");
    return DILOCO_OK;
}

static diloco_status read_known(reading *r, size_t row, dl_json_value value, dl_json_value root)
{
    const char *key = rows[row].key;
    if (rows[row].option) return set_option(r, rows[row].option, key, value);
    if (rows[row].must && !is_one_of(value, rows[row].must)) {
        char why[80];
        snprintf(why, sizeof why, "this model has %s", rows[row].must);
        return refuse(key, value, why);
    }
    if (strcmp(key, "layer_types") == 0) return read_layer_types(value);
    if (strcmp(key, "max_position_embeddings") == 0)
        return dl_json_read_i64(&r->facts->positions, root, key, 1, INT32_MAX);
    return DILOCO_OK;
}

/* Reads one key of the root. An unknown key is refused, because the model it describes may compute
 * something else. */
static diloco_status read_key(reading *r, const char *key, dl_json_value value, dl_json_value root)
{
    if (value.type == DL_JSON_NULL) return DILOCO_OK; /* as if it were not there */
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].key, key) == 0) return read_known(r, i, value, root);
    if (is_one_of(value, "false")) return DILOCO_OK;
    return refuse(key, value, "the key is unknown, so its meaning would be lost");
}

/* Reads model_type and architectures, on which the defaults of all other keys depend. */
static diloco_status read_type(reading *r, dl_json_value root)
{
    dl_json_value type = dl_json_get(root, "model_type"),
                  classes = dl_json_get(root, "architectures");
    r->qwen3 = dl_json_is(type, "qwen3");
    if (!r->qwen3 && !dl_json_is(type, "llama")) {
        if (type.type == DL_JSON_STRING)
            return refuse("model_type", type, "only \"llama\" and \"qwen3\" are known");
        return dl_fail(DILOCO_EPROTO, "\"model_type\" is missing");
    }
    DL_TRY(check_array("architectures", classes));
    for (dl_json_iter it = dl_json_each(classes); dl_json_next(&it);)
        if (!dl_json_is(it.value, r->qwen3 ? "Qwen3ForCausalLM" : "LlamaForCausalLM"))
            return refuse("architectures", it.value, "only the ForCausalLM of its model_type is");
    r->facts->positions = r->qwen3 ? QWEN3_POSITIONS : LLAMA_POSITIONS;
    return DILOCO_OK;
}

/* Sets the values that an absent key means, before the keys are read. */
static diloco_status set_defaults(const reading *r)
{
    const char *const values[][2] = {{"trainer.model_name", "gpt"},
                                     {"parameters.model.kv_heads", "0"},
                                     {"parameters.model.head_dim", r->qwen3 ? "128" : "0"},
                                     {"parameters.model.norm_eps", "1e-6"},
                                     {"parameters.model.rope_theta", "10000"},
                                     {"parameters.model.rope_scaling", "none"},
                                     {"parameters.model.tied", "false"},
                                     {"parameters.model.qk_norm", r->qwen3 ? "true" : "false"}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        DL_TRY(dl_config_set(r->config, values[i][0], values[i][1], "config.json"));
    return DILOCO_OK;
}

/* Checks keys whose defaults in transformers are those of one particular model, and so most likely
 * wrong. Llama's num_key_value_heads defaults to num_attention_heads. */
static diloco_status check_needed(dl_json_value root, bool qwen3)
{
    static const char *const needed[] = {"hidden_size",         "intermediate_size",
                                         "num_hidden_layers",   "num_attention_heads",
                                         "num_key_value_heads", "vocab_size"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        bool there = is_there(dl_json_get(root, needed[i]));
        if (!there && (qwen3 || strcmp(needed[i], "num_key_value_heads") != 0))
            return dl_fail(DILOCO_EPROTO, "\"%s\" is missing", needed[i]);
    }
    return DILOCO_OK;
}

static diloco_status read_root(reading *r, dl_json_value root)
{
    if (root.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "it is not a JSON object");
    DL_TRY(read_type(r, root));
    DL_TRY(check_needed(root, r->qwen3));
    DL_TRY(set_defaults(r));
    for (dl_json_iter it = dl_json_each(root); dl_json_next(&it);) {
        char key[64];
        diloco_status status = dl_json_as_str(key, sizeof key, it.key);
        if (!status) status = read_key(r, key, it.value, root);
        if (status) return status;
    }
    return read_rope(r, root);
}

diloco_status dl_hf_config_read(dl_config *config, dl_hf_facts *facts, const void *text, size_t len)
{
    dl_json_value root;
    reading r = {.config = config, .facts = facts};
    *facts = (dl_hf_facts){0};
    diloco_status status = dl_json_parse(&root, text, len);
    if (!status) status = read_root(&r, root);
    return status ? dl_fail_context(status, "config.json") : DILOCO_OK;
}

/* ---- writing */

static const char *torch_name(const char *dtype)
{
    return strcmp(dtype, "BF16") == 0  ? "bfloat16"
           : strcmp(dtype, "F16") == 0 ? "float16"
                                       : "float32";
}

static void put_tokens(dl_json *j, int64_t end_token)
{
    dl_json_null(j, "bos_token_id");
    if (end_token < 0)
        dl_json_null(j, "eos_token_id");
    else
        dl_json_i64(j, "eos_token_id", end_token);
    dl_json_null(j, "pad_token_id");
}

/* Returns max_position_embeddings: the context, or the longer reach of llama3's scaled positions. A
 * model may be trained here on shorter texts than its positions allow. */
static int64_t positions_of(const dl_gpt_shape *s, int64_t context)
{
    double reach = s->rope.scaling == DL_ROPE_LLAMA3 ? s->rope.factor * s->rope.original : 0;
    if (reach > INT32_MAX) return INT32_MAX;
    return (int64_t)reach > context ? (int64_t)reach : context;
}

static void put_sizes(dl_json *j, const dl_gpt_shape *s, int64_t context)
{
    dl_json_u64(j, "hidden_size", s->channels);
    dl_json_u64(j, "intermediate_size", s->ffn);
    dl_json_u64(j, "num_hidden_layers", s->layers);
    dl_json_u64(j, "num_attention_heads", s->heads);
    dl_json_u64(j, "num_key_value_heads", s->kv_heads);
    dl_json_u64(j, "head_dim", s->dim);
    dl_json_u64(j, "vocab_size", s->vocab);
    dl_json_i64(j, "max_position_embeddings", positions_of(s, context));
}

/* Writes the keys that read_rope reads, in the older form. rope_theta is outside the object. */
static void put_rope(dl_json *j, const dl_rope *rope)
{
    const double values[] = {rope->theta, rope->factor, rope->low, rope->high, rope->original};
    const rope_type *type = &rope_types[rope->scaling];
    dl_json_f64(j, rope_keys[ROPE_THETA].key, rope->theta);
    if (rope->scaling == DL_ROPE_NONE) {
        dl_json_null(j, "rope_scaling");
        return;
    }
    dl_json_object(j, "rope_scaling");
    dl_json_str(j, "rope_type", type->name);
    for (int i = ROPE_FACTOR; i < type->n_keys; i++)
        if (i == ROPE_ORIGINAL)
            dl_json_i64(j, rope_keys[i].key, (int64_t)values[i]);
        else
            dl_json_f64(j, rope_keys[i].key, values[i]);
    dl_json_end(j);
}

/* Qwen3's configuration has a head_dim of its own. transformers' Llama checks that heads divide
 * channels even if head_dim is given. */
static diloco_status check_heads(const dl_gpt_shape *s)
{
    if (s->qk_norm || s->channels % s->heads == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "parameters.model.heads = %zu does not divide parameters.model.channels = %zu, "
                   "which transformers asks of a Llama: export it to npz or gguf",
                   s->heads, s->channels);
}

diloco_status dl_hf_config_write(dl_buf *out, const dl_config *c, const char *dtype,
                                 int64_t end_token)
{
    dl_gpt_shape s;
    dl_json j;
    DL_TRY(dl_gpt_shape_read(&s, c, 1));
    DL_TRY(check_heads(&s));
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_array(&j, "architectures");
    dl_json_str(&j, NULL, s.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM");
    dl_json_end(&j);
    dl_json_str(&j, "model_type", s.qk_norm ? "qwen3" : "llama");
    put_sizes(&j, &s, c->context);
    dl_json_str(&j, "hidden_act", "silu");
    dl_json_bool(&j, "attention_bias", false);
    if (!s.qk_norm) dl_json_bool(&j, "mlp_bias", false);
    dl_json_f64(&j, "attention_dropout", 0);
    dl_json_f64(&j, "rms_norm_eps", c->norm_eps);
    put_rope(&j, &s.rope);
    dl_json_bool(&j, "tie_word_embeddings", s.tied);
    dl_json_f64(&j, "initializer_range", 0.02);
    put_tokens(&j, end_token);
    dl_json_str(&j, "torch_dtype", torch_name(dtype));
    dl_json_end(&j);
    DL_TRY(dl_json_done(&j));
    return dl_buf_add(out, "\n", 1);
}

diloco_status dl_hf_generation_write(dl_buf *out, int64_t end_token)
{
    dl_json j;
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_bool(&j, "_from_model_config", true);
    put_tokens(&j, end_token);
    dl_json_end(&j);
    DL_TRY(dl_json_done(&j));
    return dl_buf_add(out, "\n", 1);
}
