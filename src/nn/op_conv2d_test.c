/* op_conv2d_test.c - gradients by differences: strides, padding, odd channels, biases, more rows
 * than a tile has, fewer than were planned. conv_test.c has the products themselves. */
#include "op_suite.h"

static int weight(dl_graph *g, const op_case *c)
{
    const size_t shape[4] = {c->out, c->channels, c->size, c->size};
    return dl_graph_weight4(g, shape, DL_INITIAL_NORMAL, 1, "weight");
}

static void plain(dl_graph *g, const op_case *c)
{
    dl_planes x = op_source_planes(g, c);
    dl_planes y = dl_conv2d(g, x, weight(g, c), false, c->size, c->stride, c->pad);
    op_sink(g, y.value, DL_NO_VALUE);
}

static void with_bias(dl_graph *g, const op_case *c)
{
    dl_planes x = op_source_planes(g, c);
    int w = weight(g, c);
    dl_graph_weight(g, 0, c->out, DL_INITIAL_NORMAL, 1, "bias");
    op_sink(g, dl_conv2d(g, x, w, true, c->size, c->stride, c->pad).value, DL_NO_VALUE);
}

static const op_case cases[] = {
    {1, 1, 1, 1, .high = 1, .wide = 1, .channels = 1, .out = 1, .size = 1, .stride = 1},
    {2, 1, 3, 1, .high = 5, .wide = 4, .channels = 3, .out = 2, .size = 3, .stride = 1, .pad = 1},
    {3, 1, 3, 1, .high = 5, .wide = 6, .channels = 2, .out = 5, .size = 3, .stride = 2, .pad = 1},
    {13, 1, 14, 1, .high = 3, .wide = 3, .channels = 4, .out = 17, .size = 1, .stride = 2},
    {2, 1, 2, 1, .high = 7, .wide = 7, .channels = 1, .out = 3, .size = 5, .stride = 1, .pad = 2},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

TEST(gradients_agree_with_differences)
{
    op_suite_check(cases, N_CASES, plain);
}
TEST(gradients_agree_with_a_bias)
{
    op_suite_check(cases, N_CASES, with_bias);
}

TEST_MAIN(gradients_agree_with_differences, gradients_agree_with_a_bias)
