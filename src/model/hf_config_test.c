/* hf_config_test.c - every key of a config.json is honoured or refused by its name. */
#include "model/hf.h"

#include "check.h"

static const char llama[] =
    "\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 256, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 1024";

static diloco_status read_with(dl_config *config, const char *more)
{
    char text[1024];
    dl_hf_facts facts;
    dl_config_init(config);
    snprintf(text, sizeof text, "{%s%s%s}", llama, *more ? ", " : "", more);
    return dl_hf_config_read(config, &facts, text, strlen(text));
}

TEST(defaults_are_those_of_transformers)
{
    dl_config c;
    CHECK_OK(read_with(&c, ""));
    CHECK_INT(64, c.channels);
    CHECK_INT(256, c.ffn);
    CHECK_INT(2, c.layers);
    CHECK_INT(4, c.heads);
    CHECK_INT(0, c.kv_heads);
    CHECK_INT(1024, c.vocab);
    CHECK_INT(0, c.head_dim);
    CHECK(c.norm_eps == 1e-6 && c.rope_theta == 10000 && !c.tied && !c.qk_norm);
    CHECK(c.rope_scaling == DL_ROPE_NONE);
}

TEST(given_settings_are_honoured)
{
    dl_config c;
    CHECK_OK(read_with(&c, "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-05, \"head_dim\": 16, "
                           "\"rope_theta\": 500000.0, \"tie_word_embeddings\": true, "
                           "\"rope_scaling\": null, \"architectures\": [\"LlamaForCausalLM\"], "
                           "\"some_future_key\": null, \"another_one\": false"));
    CHECK_INT(2, c.kv_heads);
    CHECK(c.norm_eps == 1e-5 && c.rope_theta == 500000 && c.tied);
    CHECK_OK(read_with(&c, "\"rope_parameters\": {\"rope_type\": \"default\", "
                           "\"rope_theta\": 7.5}"));
    CHECK(c.rope_theta == 7.5);
    CHECK_OK(read_with(&c, "\"head_dim\": 32"));
    CHECK_INT(32, c.head_dim);
}

/* A rope_theta within goes before one beside, wherever it is. */
TEST(slowed_positions_are_honoured)
{
    dl_config c;
    CHECK_OK(read_with(&c, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}, "
                           "\"rope_theta\": 500000.0"));
    CHECK(c.rope_scaling == DL_ROPE_LINEAR);
    CHECK(c.rope_factor == 2 && c.rope_theta == 500000);
    CHECK_OK(read_with(&c, "\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 32.0, "
                           "\"low_freq_factor\": 1.0, \"high_freq_factor\": 3.0, "
                           "\"original_max_position_embeddings\": 4096, \"rope_theta\": 7}, "
                           "\"rope_theta\": 8, \"max_position_embeddings\": 131072"));
    CHECK(c.rope_scaling == DL_ROPE_LLAMA3);
    CHECK(c.rope_factor == 32 && c.rope_low == 1 && c.rope_high == 3 && c.rope_theta == 7);
    CHECK_INT(4096, c.rope_original);
    CHECK_OK(read_with(&c, "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2, "
                           "\"low_freq_factor\": 1, \"high_freq_factor\": 4}, "
                           "\"max_position_embeddings\": 640"));
    CHECK_INT(640, c.rope_original);
    CHECK_OK(read_with(&c, "\"rope_scaling\": {}, \"rope_parameters\": null"));
    CHECK(c.rope_scaling == DL_ROPE_NONE);
}

TEST(unsupported_settings_are_refused_by_name)
{
    static const char *const rows[][2] = {
        {"\"attention_bias\": true", "attention_bias = true: this model has false"},
        {"\"mlp_bias\": true", "mlp_bias = true"},
        {"\"hidden_act\": \"gelu\"", "hidden_act = \"gelu\""},
        {"\"attention_dropout\": 0.1", "attention_dropout = 0.1"},
        {"\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 8.0}",
         "rope_scaling.rope_type = \"dynamic\": default, linear and llama3 are known"},
        {"\"rope_scaling\": {\"type\": \"longrope\"}", "rope_scaling.type = \"longrope\""},
        {"\"rope_scaling\": {\"type\": \"su\"}", "rope_scaling.type = \"su\""},
        {"\"rope_parameters\": {\"rope_type\": \"yarn\"}", "rope_parameters.rope_type = \"yarn\""},
        {"\"rope_parameters\": {\"rope_type\": \"proportional\"}", "\"proportional\""},
        {"\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}",
         "rope_parameters.full_attention = {"},
        {"\"rope_scaling\": {\"rope_type\": \"linear\", \"type\": \"llama3\", \"factor\": 2}",
         "rope_scaling.type = \"llama3\": rope_type and type differ"},
        {"\"rope_scaling\": {\"factor\": 8.0}", "rope_scaling.factor = 8.0: this rope_type has no"},
        {"\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2, \"attention_factor\": 2}",
         "rope_scaling.attention_factor = 2"},
        {"\"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": {\"factor\": 1}",
         "rope_parameters = {\"factor\": 1}: rope_scaling is given as well"},
        {"\"rope_parameters\": {\"partial_rotary_factor\": 0.5}",
         "rope_parameters.partial_rotary_factor = 0.5"},
        {"\"use_sliding_window\": true", "use_sliding_window = true: this model has false"},
        {"\"partial_rotary_factor\": 0.5", "partial_rotary_factor = 0.5"},
        {"\"embedding_multiplier\": 12.0", "embedding_multiplier = 12.0: the key is unknown"},
        {"\"final_logit_softcapping\": 30.0", "final_logit_softcapping"},
        {"\"no_rope_layers\": [1, 0]", "no_rope_layers"},
        {"\"is_decoder\": true", "is_decoder"},
        {"\"auto_map\": {\"AutoModel\": \"a.B\"}", "auto_map"},
        {"\"sliding_window\": 4096", "sliding_window = 4096: the key is unknown"},
        {"\"layer_types\": [\"full_attention\", \"sliding_attention\"]", "layer_types"},
        {"\"quantization_config\": {\"bits\": 4}", "quantization_config"},
        {"\"num_experts\": 8", "num_experts = 8: the key is unknown"},
        {"\"architectures\": [\"LlamaForSequenceClassification\"]", "architectures"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dl_config c;
        CHECK_STATUS(DILOCO_EREFUSED, read_with(&c, rows[i][0]));
        CHECK_CONTAINS("config.json: ", diloco_error_text());
        CHECK_CONTAINS(rows[i][1], diloco_error_text());
    }
}

static void check_text(diloco_status status, const char *part, const char *text)
{
    dl_config c;
    dl_hf_facts facts;
    dl_config_init(&c);
    CHECK_STATUS(status, dl_hf_config_read(&c, &facts, text, strlen(text)));
    CHECK_CONTAINS(part, diloco_error_text());
}

TEST(other_architectures_and_damaged_files_are_refused)
{
    check_text(DILOCO_EREFUSED, "model_type = \"gpt2\": only \"llama\" and \"qwen3\" are known",
               "{\"model_type\": \"gpt2\"}");
    check_text(DILOCO_EPROTO, "\"model_type\" is missing", "{}");
    check_text(DILOCO_EPROTO, "\"hidden_size\" is missing", "{\"model_type\": \"llama\"}");
    check_text(DILOCO_EPROTO, "it is not a JSON object", "[]");
    check_text(DILOCO_EPROTO, "\"architectures\" is not an array",
               "{\"model_type\": \"llama\", \"architectures\": \"LlamaModel\"}");
    check_text(DILOCO_EPROTO, "config.json", "{\"model_type\": ");
    check_text(DILOCO_EPROTO, "config.json", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[");
}

TEST(numbers_beyond_an_options_range_are_refused)
{
    dl_config c;
    CHECK_STATUS(DILOCO_EINVAL, read_with(&c, "\"num_key_value_heads\": 100000"));
    CHECK_CONTAINS("config.json: num_key_value_heads", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, read_with(&c, "\"num_key_value_heads\": 1.5"));
    CHECK_STATUS(DILOCO_EPROTO, read_with(&c, "\"rope_theta\": \"big\""));
    CHECK_CONTAINS("\"rope_theta\" is neither a number nor true or false", diloco_error_text());
    char digits[160];
    snprintf(digits, sizeof digits, "\"rope_theta\": 1.%0120de4", 0); /* not 1 */
    CHECK_STATUS(DILOCO_EPROTO, read_with(&c, digits));
    CHECK_CONTAINS("\"rope_theta\" is longer than a number is", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, read_with(&c, "\"head_dim\": -1"));
    CHECK_CONTAINS("config.json: head_dim", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, read_with(&c, "\"layer_types\": \"sliding_attention\""));
    CHECK_CONTAINS("\"layer_types\" is not an array", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, read_with(&c, "\"rope_scaling\": \"llama3\""));
    CHECK_CONTAINS("\"rope_scaling\" is not an object", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, read_with(&c, "\"rope_scaling\": {\"type\": \"linear\"}"));
    CHECK_CONTAINS("\"rope_scaling.factor\" is missing", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, read_with(&c, "\"rope_scaling\": {\"type\": \"llama3\", "
                                              "\"factor\": 8, \"low_freq_factor\": 1}"));
    CHECK_CONTAINS("\"rope_scaling.high_freq_factor\" is missing", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL,
                 read_with(&c, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}"));
    CHECK_CONTAINS("rope_scaling.factor", diloco_error_text());
}

TEST(a_written_configuration_reads_back)
{
    static const char *const names[] = {"channels",
                                        "layers",
                                        "heads",
                                        "kv_heads",
                                        "ffn",
                                        "vocab",
                                        "norm_eps",
                                        "rope_theta",
                                        "tied",
                                        "qk_norm",
                                        "head_dim",
                                        "rope_scaling",
                                        "rope_factor",
                                        "rope_low_freq_factor",
                                        "rope_high_freq_factor",
                                        "rope_original_context"};
    enum { N = sizeof names / sizeof names[0] };
    static const char *const values[][N] = {
        {"64", "3", "4", "2", "192", "300", "1e-05", "500000", "true", "true", "32", "linear",
         "2.5", "1", "4", "8192"},
        {"64", "3", "4", "2", "192", "300", "1e-05", "500000", "true", "false", "0", "llama3", "4",
         "1.5", "3.5", "1000"},
        {"96", "1", "6", "0", "0", "256", "1e-6", "10000", "false", "false", "0", "none", "8", "1",
         "4", "8192"}};
    for (int i = 0; i < 3; i++) {
        dl_config c, back;
        dl_hf_facts facts;
        dl_buf text;
        dl_config_init(&c);
        for (int k = 0; k < N; k++) {
            char option[64];
            snprintf(option, sizeof option, "parameters.model.%s", names[k]);
            CHECK_OK(dl_config_set(&c, option, values[i][k], "test"));
        }
        dl_config_init(&back);
        dl_buf_init(&text, 1 << 16);
        CHECK_OK(dl_hf_config_write(&text, &c, "BF16", 7));
        CHECK_CONTAINS("\"eos_token_id\":7", dl_buf_str(&text));
        CHECK_CONTAINS("\"torch_dtype\":\"bfloat16\"", dl_buf_str(&text));
        CHECK_OK(dl_hf_config_read(&back, &facts, text.data, text.len));
        CHECK_INT(c.channels, back.channels);
        CHECK_INT(c.layers, back.layers);
        CHECK_INT(c.kv_heads ? c.kv_heads : c.heads, back.kv_heads);
        CHECK_INT(c.ffn ? c.ffn : 256, back.ffn); /* 8/3 of 96 */
        CHECK_INT(c.head_dim ? c.head_dim : 16, back.head_dim);
        CHECK_INT(i == 1 ? 4000 : c.context, facts.positions);
        CHECK(c.rope_scaling == back.rope_scaling);
        CHECK(c.rope_factor == back.rope_factor && c.rope_low == back.rope_low);
        CHECK(c.rope_high == back.rope_high && c.rope_original == back.rope_original);
        CHECK(c.norm_eps == back.norm_eps && c.rope_theta == back.rope_theta);
        CHECK(c.tied == back.tied && c.qk_norm == back.qk_norm);
        dl_buf_deinit(&text);
    }
}

TEST(a_model_that_transformers_does_not_load_is_not_written)
{
    dl_config c;
    dl_buf text;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "parameters.model.channels", "60", "test"));
    CHECK_OK(dl_config_set(&c, "parameters.model.heads", "8", "test"));
    CHECK_OK(dl_config_set(&c, "parameters.model.head_dim", "8", "test"));
    dl_buf_init(&text, 1 << 16);
    CHECK_STATUS(DILOCO_EREFUSED, dl_hf_config_write(&text, &c, "F32", -1));
    CHECK_CONTAINS("parameters.model.heads = 8 does not divide", diloco_error_text());
    CHECK_OK(dl_config_set(&c, "parameters.model.qk_norm", "true", "test"));
    CHECK_OK(dl_hf_config_write(&text, &c, "F32", -1));
    dl_buf_deinit(&text);
}

TEST_MAIN(defaults_are_those_of_transformers, given_settings_are_honoured,
          slowed_positions_are_honoured, unsupported_settings_are_refused_by_name,
          other_architectures_and_damaged_files_are_refused,
          numbers_beyond_an_options_range_are_refused, a_written_configuration_reads_back,
          a_model_that_transformers_does_not_load_is_not_written)
