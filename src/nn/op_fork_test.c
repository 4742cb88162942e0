/* op_fork_test.c - two uses of one value: the gradients add up, and op_add_test.c has the residual
 * connection. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    int a, b;
    dl_fork(g, op_source(g, c->width), &a, &b);
    op_sink(g, a, b);
}

TEST(gradients_agree_with_differences)
{
    static const op_case cases[] = {{1, 1, 1, 1, .width = 1}, {2, 5, 3, 7, .width = 19}};
    op_suite_check(cases, 2, build);
}

TEST_MAIN(gradients_agree_with_differences)
