/* model_hidden_test.c - the hidden matrices by a manifest alone (tensor/hidden_matrices.h) are the
 * model's own, for every model and the options that change its tensors. A model that is added
 * later is tested here, too. */
#include "check.h"
#include "model/model.h"
#include "tensor/hidden_matrices.h"

static const dl_sample tokens = {.kind = DL_TOKENS, .length = 8, .classes = 64};
static const dl_sample images = {.kind = DL_IMAGES,
                                 .length = 1,
                                 .classes = 10,
                                 .channels = 1,
                                 .height = 28,
                                 .width = 28,
                                 .deviation = {1}};

typedef struct change {
    const char *name, *value;
} change;

static const change changes[] = {
    {"parameters.model.tied", "true"},
    {"parameters.model.tied", "false"},
    {"parameters.model.qk_norm", "true"},
    {"parameters.model.vocab", "256"},
    {"parameters.model.ffn", "64"},
    {"parameters.model.hidden", ""},
    {"parameters.model.hidden", "64"},
    {"parameters.model.hidden", "64, 10, 64"},
    {"parameters.model.frozen", "fc1"},
    {"parameters.model.frozen", "conv1"},
    {"parameters.model.frozen", "model.embed_tokens"},
    {"parameters.model.frozen", "model.layers.0"},
};
enum { N_CHANGES = sizeof changes / sizeof changes[0] };

static void compare(const char *name, const dl_model *model, size_t *n_hidden)
{
    dl_manifest manifest;
    size_t n;
    const diloco_tensor *tensors = dl_model_tensors(model, &n);
    CHECK_OK(dl_manifest_init(&manifest, tensors, n, false));
    const dl_hidden_matrices hidden = dl_hidden_matrices_of(&manifest);
    for (size_t i = 0; i < n; i++) {
        const bool trains = tensors[i].role == DILOCO_PARAMETER;
        const bool own = trains && dl_model_hidden(model)[i];
        if (dl_is_hidden_matrix(&hidden, i) != own)
            CHECK_FAIL("%s: %s is%s a hidden matrix of the model", name, tensors[i].name,
                       own ? "" : " not");
        *n_hidden += own;
    }
    dl_manifest_deinit(&manifest);
}

/* Compares the model with this change of its options. A change that the model refuses, such as the
 * freezing of a tensor that it lacks, is passed over. Returns false then. */
static bool check_model(const char *name, const change *c, size_t *n_hidden)
{
    static dl_config config;
    dl_model *model;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "trainer.model_name", name, "test"));
    CHECK_OK(dl_config_set(&config, "parameters.model.layers", "2", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.model.heads", "4", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.model.channels", "64", "test"));
    if (c) CHECK_OK(dl_config_set(&config, c->name, c->value, "test"));
    if (dl_model_sketch(&model, &config, &tokens) && dl_model_sketch(&model, &config, &images))
        return false;
    compare(name, model, n_hidden);
    dl_model_destroy(model);
    return true;
}

TEST(hidden_matrices_of_a_manifest_are_those_of_every_model)
{
    size_t n_hidden = 0, n_changed = 0;
    for (size_t i = 0; dl_model_name_at(i); i++) {
        if (!check_model(dl_model_name_at(i), NULL, &n_hidden))
            CHECK_FAIL("%s: %s", dl_model_name_at(i), diloco_error_text());
        for (size_t k = 0; k < N_CHANGES; k++)
            n_changed += check_model(dl_model_name_at(i), &changes[k], &n_hidden);
    }
    CHECK(n_hidden > 0 && n_changed > N_CHANGES);
}

TEST_MAIN(hidden_matrices_of_a_manifest_are_those_of_every_model)
