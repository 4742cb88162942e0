/* op_add_test.c - a residual connection: a value forked, one half through a product, and both
 * added. */
#include "op_suite.h"

static const op_case cases[] = {{1, 1, 1, 1, .width = 1}, {2, 5, 3, 7, .width = 19}};

static void two(dl_graph *g, const op_case *c)
{
    int a = op_source(g, c->width), b = op_source(g, c->width);
    op_sink(g, dl_add(g, a, b), DL_NO_VALUE);
}

static int product(dl_graph *g, const op_case *c, int x, const char *name)
{
    return dl_linear(g, x, dl_graph_weight(g, c->width, c->width, DL_INITIAL_NORMAL, 1, "%s", name),
                     1);
}

static void residual(dl_graph *g, const op_case *c)
{
    int main, shortcut;
    dl_fork(g, op_source(g, c->width), &main, &shortcut);
    op_sink(g, dl_add(g, product(g, c, main, "w"), shortcut), DL_NO_VALUE);
}

static void both_ways(dl_graph *g, const op_case *c)
{
    int main, shortcut;
    dl_fork(g, op_source(g, c->width), &main, &shortcut);
    main = product(g, c, main, "main");
    op_sink(g, dl_add(g, main, product(g, c, shortcut, "shortcut")), DL_NO_VALUE);
}

TEST(gradients_agree_for_two_values)
{
    op_suite_check(cases, 2, two);
}
TEST(gradients_agree_around_a_product)
{
    op_suite_check(cases, 2, residual);
}
TEST(gradients_agree_with_a_product_either_way)
{
    op_suite_check(cases, 2, both_ways);
}

TEST_MAIN(gradients_agree_for_two_values, gradients_agree_around_a_product,
          gradients_agree_with_a_product_either_way)
