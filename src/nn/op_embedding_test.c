/* op_embedding_test.c - rows by token; tokens repeat, and most of the table is not used. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    int table = dl_graph_weight(g, c->vocab, c->width, DL_INITIAL_NORMAL, 1, "table");
    op_sink(g, dl_embedding(g, table), DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    static const op_case cases[] = {{1, 1, 1, 1, .width = 1, .vocab = 1},
                                    {2, 9, 3, 9, .width = 5, .vocab = 11},
                                    {2, 7, 2, 11, .width = 37, .vocab = 40}};
    op_suite_check(cases, 3, build);
}

TEST_MAIN(gradients_agree_with_differences)
