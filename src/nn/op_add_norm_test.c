/* op_add_norm_test.c - x, delta and the weight, where both outputs are used, only one is, or
 * there is no delta. */
#include "op_suite.h"

static const op_case cases[] = {
    {1, 1, 1, 1, .width = 2}, {2, 5, 3, 7, .width = 19}, {1, 21, 2, 21, .width = 64}};

static int weight(dl_graph *g, const op_case *c)
{
    return dl_graph_weight(g, 0, c->width, DL_INITIAL_ONES, 0, "norm");
}

static void both(dl_graph *g, const op_case *c)
{
    int sum, x = op_source(g, c->width), delta = op_source(g, c->width);
    int y = dl_add_norm(g, &sum, x, delta, weight(g, c), 1e-5f);
    op_sink(g, y, sum);
}

static void last(dl_graph *g, const op_case *c)
{
    int x = op_source(g, c->width), delta = op_source(g, c->width);
    op_sink(g, dl_add_norm(g, NULL, x, delta, weight(g, c), 1e-5f), DL_NO_VALUE);
}

static void first(dl_graph *g, const op_case *c)
{
    int sum, y = dl_add_norm(g, &sum, op_source(g, c->width), DL_NO_VALUE, weight(g, c), 1e-5f);
    op_sink(g, y, sum);
}

TEST(gradients_agree_inside_a_model)
{
    op_suite_check(cases, 3, both);
}
TEST(gradients_agree_at_its_end)
{
    op_suite_check(cases, 3, last);
}
TEST(gradients_agree_at_its_start)
{
    op_suite_check(cases, 3, first);
}

TEST_MAIN(gradients_agree_inside_a_model, gradients_agree_at_its_end, gradients_agree_at_its_start)
