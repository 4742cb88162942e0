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
    CHECK(c.norm_eps == 1e-6 && c.rope_theta == 10000 && !c.tied && !c.qk_norm);
}

TEST(what_is_said_is_honoured)
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
}

TEST(what_cannot_be_honoured_is_refused_by_name)
{
    static const char *const rows[][2] = {
        {"\"attention_bias\": true", "attention_bias = true: this model has false"},
        {"\"mlp_bias\": true", "mlp_bias = true"},
        {"\"hidden_act\": \"gelu\"", "hidden_act = \"gelu\""},
        {"\"attention_dropout\": 0.1", "attention_dropout = 0.1"},
        {"\"head_dim\": 32", "head_dim = 32: with 4 heads this model has 16"},
        {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}",
         "rope_scaling.rope_type = \"llama3\""},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}", "rope_scaling.type"},
        {"\"rope_parameters\": {\"rope_type\": \"yarn\"}", "rope_parameters.rope_type = \"yarn\""},
        {"\"rope_parameters\": {\"partial_rotary_factor\": 0.5}",
         "rope_parameters.partial_rotary_factor = 0.5"},
        {"\"sliding_window\": 4096", "sliding_window = 4096: the key is not known"},
        {"\"layer_types\": [\"full_attention\", \"sliding_attention\"]", "layer_types"},
        {"\"quantization_config\": {\"bits\": 4}", "quantization_config"},
        {"\"num_experts\": 8", "num_experts = 8: the key is not known"},
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
    CHECK_STATUS(DILOCO_EPROTO, read_with(&c, "\"head_dim\": -1"));
}

TEST(what_is_written_reads_back)
{
    static const char *const names[] = {"channels", "layers", "heads",    "kv_heads",
                                        "ffn",      "vocab",  "norm_eps", "rope_theta",
                                        "tied",     "qk_norm"};
    static const char *const values[2][10] = {
        {"64", "3", "4", "2", "192", "300", "1e-05", "500000", "true", "true"},
        {"96", "1", "6", "0", "0", "256", "1e-6", "10000", "false", "false"}};
    for (int i = 0; i < 2; i++) {
        dl_config c, back;
        dl_hf_facts facts;
        dl_buf text;
        dl_config_init(&c);
        for (int k = 0; k < 10; k++) {
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
        CHECK_INT(c.context, facts.positions);
        CHECK(c.norm_eps == back.norm_eps && c.rope_theta == back.rope_theta);
        CHECK(c.tied == back.tied && c.qk_norm == back.qk_norm);
        dl_buf_deinit(&text);
    }
}

TEST_MAIN(defaults_are_those_of_transformers, what_is_said_is_honoured,
          what_cannot_be_honoured_is_refused_by_name,
          other_architectures_and_damaged_files_are_refused,
          numbers_beyond_an_options_range_are_refused, what_is_written_reads_back)
