/* fragments_test.c - which tensors go together, for a Llama-shaped model and for one without
 * blocks. */
#include "presets/fragments.h"

#include "check.h"

enum { LAYERS = 7, PER_LAYER = 2, N = LAYERS * PER_LAYER + 2 };

static char names[N][64];
static diloco_tensor tensors[N];

static void make_llama(void)
{
    size_t n = 0;
    snprintf(names[n++], sizeof names[0], "model.embed_tokens.weight");
    for (int l = 0; l < LAYERS; l++) {
        snprintf(names[n++], sizeof names[0], "model.layers.%d.mlp.weight", l);
        snprintf(names[n++], sizeof names[0], "model.layers.%d.norm.weight", l);
    }
    snprintf(names[n++], sizeof names[0], "model.norm.weight");
    for (size_t i = 0; i < n; i++) {
        tensors[i] = (diloco_tensor){.name = names[i], .n_dims = 1, .shape = {8}};
        if (strstr(names[i], "mlp")) tensors[i].shape[0] = 100 + i;
        if (strstr(names[i], "embed")) tensors[i].shape[0] = 5000;
    }
}

static diloco_status assign(int *f, int *n, const char *fragments, const char *layers,
                            const char *pattern)
{
    dl_config c;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "server.diloco.fragments", fragments, "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.fragment_layers", layers, "test"));
    CHECK_OK(dl_config_set(&c, "server.diloco.fragment_pattern", pattern, "test"));
    make_llama();
    return dl_fragments_assign(f, n, tensors, N, &c);
}

/* The fragments of blocks 0 …, as digits; both tensors of a block are together. */
static const char *blocks(const int *f)
{
    static char text[LAYERS + 1];
    for (int l = 0; l < LAYERS; l++) {
        CHECK_INT(f[1 + 2 * l], f[2 + 2 * l]);
        text[l] = (char)('0' + f[1 + 2 * l]);
    }
    return text;
}

TEST(one_fragment_is_the_whole_model)
{
    int f[N], n;
    CHECK_OK(assign(f, &n, "1", "0", "strided"));
    CHECK_INT(1, n);
    CHECK_STR("0000000", blocks(f));
}

TEST(whole_blocks_go_strided_or_sequentially_and_the_ends_last)
{
    int f[N], n;
    CHECK_OK(assign(f, &n, "4", "0", "strided"));
    CHECK_INT(4, n);
    CHECK_STR("0120120", blocks(f));
    CHECK(f[0] == 3 && f[N - 1] == 3);
    CHECK_OK(assign(f, &n, "4", "0", "sequential"));
    CHECK_STR("0001122", blocks(f));
    CHECK(f[0] == 3 && f[N - 1] == 3);
}

TEST(layers_per_fragment_give_a_deeper_model_more_fragments)
{
    int f[N], n;
    CHECK_OK(assign(f, &n, "0", "3", "strided"));
    CHECK_INT(4, n); /* ceil(7 / 3) and the ends */
    CHECK_OK(assign(f, &n, "0", "2", "sequential"));
    CHECK_INT(5, n);
    CHECK_STR("0011223", blocks(f));
}

TEST(balanced_fragments_differ_by_less_than_the_largest_tensor)
{
    int f[N], n;
    size_t size[5] = {0}, least = SIZE_MAX, most = 0;
    CHECK_OK(assign(f, &n, "5", "0", "balanced"));
    CHECK_INT(5, n);
    for (size_t i = 0; i < N; i++)
        size[f[i]] += tensors[i].shape[0];
    CHECK_INT(5000, size[4]); /* the table of the vocabulary alone */
    for (int k = 0; k < 4; k++) {
        least = size[k] < least ? size[k] : least;
        most = size[k] > most ? size[k] : most;
    }
    CHECK(most - least <= 115);
}

TEST(a_model_without_numbers_has_its_modules_as_blocks)
{
    static const char *const modules[] = {"conv1.weight", "conv1.bias", "fc1.weight", "fc1.bias"};
    diloco_tensor t[4];
    int f[4], n;
    dl_config c;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "server.diloco.fragments", "2", "test"));
    for (int i = 0; i < 4; i++)
        t[i] = (diloco_tensor){.name = modules[i], .n_dims = 1, .shape = {3}};
    CHECK_OK(dl_fragments_assign(f, &n, t, 4, &c));
    CHECK_INT(2, n);
    CHECK(f[0] == 0 && f[1] == 0 && f[2] == 1 && f[3] == 1);
}

TEST(blocks_of_different_stages_are_distinguished)
{
    static const char *const stages[] = {"conv1.weight", "layer1.0.conv1.weight",
                                         "layer1.1.conv1.weight", "layer2.0.conv1.weight",
                                         "linear.weight"};
    diloco_tensor t[5];
    int f[5], n;
    dl_config c;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "server.diloco.fragments", "4", "test"));
    for (int i = 0; i < 5; i++)
        t[i] = (diloco_tensor){.name = stages[i], .n_dims = 1, .shape = {3}};
    CHECK_OK(dl_fragments_assign(f, &n, t, 5, &c));
    CHECK_INT(4, n);
    CHECK(f[1] == 0 && f[2] == 1 && f[3] == 2 && f[0] == 3 && f[4] == 3);
}

TEST(more_fragments_than_there_is_for_are_refused_with_the_range)
{
    int f[N], n;
    CHECK_STATUS(DILOCO_EINVAL, assign(f, &n, "9", "0", "strided"));
    CHECK_CONTAINS("2 to 8 fragments", diloco_error_text());
    CHECK_OK(assign(f, &n, "8", "0", "strided"));
    CHECK_STATUS(DILOCO_EINVAL, assign(f, &n, "17", "0", "balanced"));
    CHECK_CONTAINS("from 2 to 16", diloco_error_text());
}

TEST_MAIN(one_fragment_is_the_whole_model,
          whole_blocks_go_strided_or_sequentially_and_the_ends_last,
          layers_per_fragment_give_a_deeper_model_more_fragments,
          balanced_fragments_differ_by_less_than_the_largest_tensor,
          a_model_without_numbers_has_its_modules_as_blocks,
          blocks_of_different_stages_are_distinguished,
          more_fragments_than_there_is_for_are_refused_with_the_range)
