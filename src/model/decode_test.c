/* decode_test.c - token by token gives the logits of the whole pass at every position, on one
 * thread and on two. Tested with shared and single keys, tied and not, with qk_norm, with heads
 * wider and narrower than their share of the channels and with slowed positions. The tolerance is
 * that of float32 sums in another order. */
#include "model/decode.h"

#include "check.h"

enum { VOCAB = 67, T = 33 };

static void set(dl_config *config, const char *name, const char *value)
{
    char option[64];
    snprintf(option, sizeof option, "parameters.model.%s", name);
    CHECK_OK(dl_config_set(config, option, value, "test"));
}

static void check_shape(const char *heads, const char *kv_heads, const char *tied,
                        const char *qk_norm, const char *head_dim, const char *scaling,
                        int n_threads)
{
    dl_config config;
    dl_backend *backend;
    dl_pool *pool;
    dl_model *model;
    dl_decoder *decoder;
    float whole[VOCAB], step[VOCAB];
    int32_t tokens[T];
    dl_config_init(&config);
    set(&config, "layers", "2"), set(&config, "channels", "48"), set(&config, "heads", heads);
    set(&config, "kv_heads", kv_heads), set(&config, "tied", tied);
    set(&config, "qk_norm", qk_norm), set(&config, "ffn", "70"), set(&config, "context", "33");
    set(&config, "head_dim", head_dim), set(&config, "rope_scaling", scaling);
    set(&config, "rope_original_context", "100");
    const dl_sample sample = dl_sample_tokens(VOCAB, T);
    CHECK_OK(dl_backend_create(&backend, "cpu"));
    CHECK_OK(dl_pool_create(&pool, n_threads));
    CHECK_OK(dl_model_create(&model, &config, &sample, 1, backend, pool));
    float *host = malloc(dl_model_n_parameters(model) * sizeof *host);
    dl_model_initial(model, host, 3);
    for (size_t i = 0; i < dl_model_n_parameters(model); i++)
        host[i] *= 2; /* so that attention looks at some more than at others */
    dl_backend_copy_in(backend, dl_model_parameters(model), host,
                       dl_model_n_parameters(model) * sizeof *host);
    size_t n_tensors;
    const diloco_tensor *tensors = dl_model_tensors(model, &n_tensors);
    CHECK_OK(dl_decoder_create(&decoder, tensors, n_tensors, &config, pool));
    for (int again = 0; again < 2; again++) {
        for (int t = 0; t < T; t++) {
            tokens[t] = (t * t + 5 * again) % VOCAB;
            CHECK_INT(t, dl_decoder_length(decoder));
            dl_decoder_step(decoder, t % 3 == 1 ? NULL : step, tokens[t]);
            if (t % 3 == 1) continue;
            CHECK_OK(dl_model_logits(model, whole, tokens, (size_t)t + 1));
            for (int v = 0; v < VOCAB; v++)
                CHECK_NEAR(whole[v], step[v], 1e-4);
        }
        dl_decoder_reset(decoder);
    }
    dl_decoder_destroy(decoder);
    dl_model_destroy(model);
    dl_pool_destroy(pool);
    dl_backend_destroy(backend);
    free(host);
}

TEST(token_by_token_gives_the_logits_of_the_whole)
{
    check_shape("4", "0", "true", "false", "0", "none", 1);
    check_shape("4", "2", "false", "false", "0", "llama3", 2);
    check_shape("6", "1", "false", "true", "20", "none", 1);
    check_shape("5", "5", "false", "false", "6", "linear", 2); /* 48 are not 5 heads */
    check_shape("1", "1", "true", "true", "0", "none", 2);
}

TEST(a_model_of_images_is_refused)
{
    dl_config config;
    dl_decoder *decoder;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "trainer.model_name", "lenet5", "test"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_decoder_create(&decoder, NULL, 0, &config, NULL));
    CHECK(decoder == NULL);
}

TEST_MAIN(token_by_token_gives_the_logits_of_the_whole, a_model_of_images_is_refused)
