/* op_linear_test.c - dx and dW of y = x W^T, W in two adjacent weights, or with a bias. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    int x = op_source(g, c->width);
    int first = dl_graph_weight(g, c->dim, c->width, DL_INITIAL_NORMAL, 1, "first");
    dl_graph_weight(g, 3, c->width, DL_INITIAL_NORMAL, 1, "second");
    op_sink(g, dl_linear(g, x, first, 2), DL_NO_VALUE);
}

static void with_bias(dl_graph *g, const op_case *c)
{
    int x = op_source(g, c->width);
    int weight = dl_graph_weight(g, c->dim, c->width, DL_INITIAL_NORMAL, 1, "weight");
    dl_graph_weight(g, 0, c->dim, DL_INITIAL_NORMAL, 1, "bias");
    op_sink(g, dl_linear_bias(g, x, weight), DL_NO_VALUE);
}

static const op_case cases[] = {{1, 1, 1, 1, .width = 1, .dim = 1},
                                {2, 5, 3, 7, .width = 7, .dim = 13},
                                {3, 17, 3, 17, .width = 33, .dim = 64}};

TEST(gradients_agree_with_differences)
{
    op_suite_check(cases, 3, build);
}
TEST(gradients_agree_with_a_bias)
{
    op_suite_check(cases, 3, with_bias);
}

TEST_MAIN(gradients_agree_with_differences, gradients_agree_with_a_bias)
