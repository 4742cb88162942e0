/* op_average_pool_test.c - gradients by differences: windows apart, overlapping, over the edge, and
 * of the whole image. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    dl_planes x = op_source_planes(g, c);
    op_sink(g, dl_average_pool(g, x, c->size, c->stride, c->pad).value, DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    static const op_case cases[] = {
        {2, 1, 3, 1, .high = 4, .wide = 4, .channels = 3, .size = 2, .stride = 2},
        {2, 1, 2, 1, .high = 4, .wide = 4, .channels = 17, .size = 4, .stride = 4},
        {1, 1, 1, 1, .high = 6, .wide = 5, .channels = 2, .size = 3, .stride = 2, .pad = 1},
    };
    op_suite_check(cases, 3, build);
}

/* torch.nn.AvgPool2d(2, stride=2, padding=1) of ones: a corner has one of four taps inside. */
TEST(taps_outside_count_as_zeros)
{
    static const op_case c = {
        1, 1, 1, 1, .high = 2, .wide = 2, .channels = 1, .size = 2, .stride = 2, .pad = 1};
    op_rig r;
    double want = 0;
    op_open(&r, &c, build, "cpu", 1);
    for (int i = 0; i < 4; i++) {
        r.host[i] = 1;
        want += 0.25 * (double)sink_factor((size_t)i);
    }
    CHECK_NEAR(want, op_run(&r, DL_EVAL, false), 1e-6);
    op_close(&r);
}

TEST_MAIN(gradients_agree_with_differences, taps_outside_count_as_zeros)
