/* hidden_matrices_test.c - the ends of models of several kinds, by their manifests. That the rule
 * is the trainer's own for its models is in model/model_test.c. */
#include "check.h"
#include "tensor/hidden_matrices.h"

#define MATRIX(tensor)                                                                             \
    {                                                                                              \
        .name = tensor, .n_dims = 2, .shape = { 4, 3 }                                             \
    }
#define VECTOR(tensor)                                                                             \
    {                                                                                              \
        .name = tensor, .n_dims = 1, .shape = { 4 }                                                \
    }

/* Compares the names of the hidden matrices, with a space after each, with `expected`. */
static void check_hidden(const char *expected, const diloco_tensor *tensors, size_t n)
{
    dl_manifest m;
    char names[512] = "";
    CHECK_OK(dl_manifest_init(&m, tensors, n, false));
    const dl_hidden_matrices hidden = dl_hidden_matrices_of(&m);
    for (size_t i = 0; i < n; i++)
        if (dl_is_hidden_matrix(&hidden, i)) {
            strcat(names, tensors[i].name);
            strcat(names, " ");
        }
    CHECK_STR(expected, names);
    dl_manifest_deinit(&m);
}
#define CHECK_HIDDEN(expected, ...)                                                                \
    do {                                                                                           \
        const diloco_tensor list[] = {__VA_ARGS__};                                                \
        check_hidden(expected, list, sizeof list / sizeof list[0]);                                \
    } while (0)

TEST(a_model_with_an_embedding_has_the_matrices_of_its_blocks)
{
    CHECK_HIDDEN("model.layers.0.q_proj.weight model.layers.1.q_proj.weight ",
                 MATRIX("model.embed_tokens.weight"), MATRIX("model.layers.0.q_proj.weight"),
                 VECTOR("model.layers.0.norm.weight"), MATRIX("model.layers.1.q_proj.weight"),
                 VECTOR("model.norm.weight"), MATRIX("lm_head.weight"));
    /* A head that is the embedding: the last matrix is a block's. */
    CHECK_HIDDEN("transformer.h.0.attn.weight ", MATRIX("transformer.wte.weight"),
                 MATRIX("transformer.wpe.weight"), MATRIX("transformer.h.0.attn.weight"));
    /* A block may have an embedding, which Muon leaves to AdamW. */
    CHECK_HIDDEN("blocks.0.w ", MATRIX("embed"), MATRIX("blocks.0.pos_embed"),
                 MATRIX("blocks.0.w"));
}

TEST(a_model_without_an_embedding_has_the_matrices_between_the_first_and_the_last)
{
    CHECK_HIDDEN("fc2.weight fc3.weight ", MATRIX("fc1.weight"), VECTOR("fc1.bias"),
                 MATRIX("fc2.weight"), MATRIX("fc3.weight"), MATRIX("fc4.weight"),
                 VECTOR("fc4.bias"));
    CHECK_HIDDEN("2.weight ", MATRIX("0.weight"), MATRIX("2.weight"), MATRIX("4.weight"));
    CHECK_HIDDEN("", MATRIX("fc1.weight"));
    CHECK_HIDDEN("", VECTOR("bias"));
}

TEST(convolutions_are_ends_but_no_hidden_matrices)
{
    CHECK_HIDDEN("fc2.weight ", {.name = "conv1.weight", .n_dims = 4, .shape = {6, 1, 5, 5}},
                 {.name = "conv2.weight", .n_dims = 4, .shape = {9, 6, 5, 5}}, MATRIX("fc2.weight"),
                 MATRIX("fc3.weight"));
}

TEST(a_frozen_matrix_is_not_hidden_and_still_an_end)
{
    CHECK_HIDDEN("fc2.weight ",
                 {.name = "fc1.weight", .role = DILOCO_FROZEN, .n_dims = 2, .shape = {4, 3}},
                 MATRIX("fc2.weight"),
                 {.name = "fc3.weight", .role = DILOCO_FROZEN, .n_dims = 2, .shape = {4, 3}},
                 MATRIX("fc4.weight"));
}

TEST(a_buffer_is_no_end)
{
    CHECK_HIDDEN("fc2.weight ",
                 {.name = "mask", .role = DILOCO_BUFFER, .n_dims = 2, .shape = {4, 3}},
                 MATRIX("fc1.weight"), MATRIX("fc2.weight"), MATRIX("fc3.weight"),
                 {.name = "embed", .role = DILOCO_BUFFER, .n_dims = 2, .shape = {4, 3}});
}

TEST_MAIN(a_model_with_an_embedding_has_the_matrices_of_its_blocks,
          a_model_without_an_embedding_has_the_matrices_between_the_first_and_the_last,
          convolutions_are_ends_but_no_hidden_matrices,
          a_frozen_matrix_is_not_hidden_and_still_an_end, a_buffer_is_no_end)
