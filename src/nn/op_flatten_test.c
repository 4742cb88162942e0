/* op_flatten_test.c - the order of PyTorch's flatten, and gradients that go back by it. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    op_sink(g, dl_flatten(g, op_source_planes(g, c)), DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    static const op_case cases[] = {{2, 1, 3, 1, .high = 2, .wide = 3, .channels = 5},
                                    {5, 1, 5, 1, .high = 4, .wide = 1, .channels = 1}};
    op_suite_check(cases, 2, build);
}

TEST(rows_hold_channel_by_channel)
{
    static const op_case c = {2, 1, 2, 1, .high = 1, .wide = 2, .channels = 3};
    /* [place][row][channel], by its place in [row][channel][place] */
    static const size_t flat[12] = {0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11};
    op_rig r;
    double want = 0;
    op_open(&r, &c, build, "cpu", 2);
    for (size_t i = 0; i < 12; i++)
        want += (double)sink_factor(flat[i]) * (double)r.host[i];
    CHECK_NEAR(want, op_run(&r, DL_EVAL, false), 1e-6);
    op_close(&r);
}

TEST_MAIN(gradients_agree_with_differences, rows_hold_channel_by_channel)
