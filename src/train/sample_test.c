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

static text sample_among(const dl_config *config, uint64_t top_k, double top_p, uint64_t seed)
{
    text t = {.len = 0};
    diloco_sample_args args = {.prompt = "the run of the log is ",
                               .n_tokens = 40,
                               .temperature = 1,
                               .seed = seed,
                               .top_k = top_k,
                               .top_p = top_p};
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

TEST(of_one_token_the_likeliest_is_drawn)
{
    text likeliest = sample(trained(), 0, 3), k = sample_among(trained(), 1, 0, 3),
         p = sample_among(trained(), 0, 1e-9, 3);
    CHECK_BYTES(likeliest.bytes, k.bytes, 40);
    CHECK_BYTES(likeliest.bytes, p.bytes, 40);
}

/* With few tokens the text differs from that with all. With all of them it is the same, whichever
 * option says so. */
TEST(top_k_and_top_p_narrow_the_draw)
{
    text all = sample_among(trained(), 0, 0, 3), few = sample_among(trained(), 3, 0, 3),
         half = sample_among(trained(), 0, 0.5, 3);
    CHECK(memcmp(all.bytes, few.bytes, 40) != 0);
    CHECK(memcmp(all.bytes, half.bytes, 40) != 0);
    text k = sample_among(trained(), 1000000, 0, 3), p = sample_among(trained(), 0, 1, 3);
    CHECK_BYTES(k.bytes, p.bytes, 40); /* all, in order of their logits */
}

/* The context is 16. Its first half is dropped more than once, and the draw continues. */
TEST(text_may_be_longer_than_the_context)
{
    text t = {.len = 0};
    diloco_sample_args args = {.prompt = "the run of the log is the model", .n_tokens = 200};
    CHECK_OK(diloco_sample(trained(), &args, on_text, &t));
    CHECK_INT(200, t.len);
}

TEST(a_top_p_that_is_no_probability_is_refused)
{
    diloco_sample_args args = {.prompt = "a", .n_tokens = 1, .temperature = 1, .top_p = 1.5};
    CHECK_STATUS(DILOCO_EINVAL, diloco_sample(trained(), &args, on_text, NULL));
    CHECK_CONTAINS("top-p", diloco_error_text());
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
          at_temperature_0_the_seed_does_not_matter, of_one_token_the_likeliest_is_drawn,
          top_k_and_top_p_narrow_the_draw, text_may_be_longer_than_the_context,
          a_top_p_that_is_no_probability_is_refused,
          the_data_is_not_needed_where_the_tokenizer_is_known, a_negative_temperature_is_refused,
          without_a_prompt_there_is_text_too, a_store_without_a_run_is_said_to_be_one)
