/* sample_test.c - text from a run's shared model. */
#include "train_fixture.h"

typedef struct text {
    char bytes[256];
    size_t len;
} text;

static void on_text(void *user, const char *piece, size_t len)
{
    text *t = user;
    CHECK(t->len + len <= sizeof t->bytes);
    memcpy(t->bytes + t->len, piece, len);
    t->len += len;
}

static text sample(const dl_config *config, double temperature, uint64_t seed)
{
    text t = {.len = 0};
    diloco_sample_args args = {
        .prompt = "the run of the log is ", .n_tokens = 40, .temperature = temperature};
    args.seed = seed;
    CHECK_OK(diloco_sample(config, &args, on_text, &t));
    CHECK_INT(40, t.len);
    return t;
}

static dl_config *trained(void)
{
    static dl_config *config;
    fixture_record record = {0};
    if (config) return config;
    config = fixture_config("diloco");
    set(config, "trainer.eval_batches", "0");
    fixture_train(config, &record, 1);
    fixture_record_free(&record);
    return config;
}

TEST(equal_arguments_give_equal_text_and_another_seed_another)
{
    text a = sample(trained(), 1, 3), b = sample(trained(), 1, 3), c = sample(trained(), 1, 4);
    CHECK_BYTES(a.bytes, b.bytes, 40);
    CHECK(memcmp(a.bytes, c.bytes, 40) != 0);
}

TEST(at_temperature_0_the_seed_does_not_matter)
{
    text a = sample(trained(), 0, 3), b = sample(trained(), 0, 4);
    CHECK_BYTES(a.bytes, b.bytes, 40);
}

TEST(the_data_is_not_needed_where_the_tokenizer_is_known)
{
    dl_config *bare = malloc(sizeof *bare);
    *bare = *trained();
    bare->train_path[0] = 0;
    text a = sample(trained(), 1, 3), b = sample(bare, 1, 3);
    CHECK_BYTES(a.bytes, b.bytes, 40);
    free(bare);
}

TEST(a_negative_temperature_is_refused)
{
    diloco_sample_args args = {.prompt = "a", .n_tokens = 1, .temperature = -1};
    CHECK_STATUS(DILOCO_EINVAL, diloco_sample(trained(), &args, on_text, NULL));
    args.temperature = NAN;
    CHECK_STATUS(DILOCO_EINVAL, diloco_sample(trained(), &args, on_text, NULL));
    CHECK_CONTAINS("temperature", diloco_error_text());
}

TEST(without_a_prompt_there_is_text_too)
{
    text t = {.len = 0};
    diloco_sample_args args = {.prompt = NULL, .n_tokens = 5, .temperature = 1};
    CHECK_OK(diloco_sample(trained(), &args, on_text, &t));
    CHECK_INT(5, t.len);
}

TEST(a_store_without_a_run_is_said_to_be_one)
{
    diloco_sample_args args = {.prompt = "a", .n_tokens = 1};
    dl_config *config = fixture_config("diloco");
    CHECK_STATUS(DILOCO_ENOENT, diloco_sample(config, &args, on_text, NULL));
    free(config);
}

TEST_MAIN(equal_arguments_give_equal_text_and_another_seed_another,
          at_temperature_0_the_seed_does_not_matter,
          the_data_is_not_needed_where_the_tokenizer_is_known, a_negative_temperature_is_refused,
          without_a_prompt_there_is_text_too, a_store_without_a_run_is_said_to_be_one)
