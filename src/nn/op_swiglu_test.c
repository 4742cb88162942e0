/* op_swiglu_test.c - both halves' gradients; odd widths leave a rest after the vectors. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    op_sink(g, dl_swiglu(g, op_source(g, 2 * c->width)), DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    static const op_case cases[] = {
        {1, 1, 1, 1, .width = 1}, {2, 5, 3, 7, .width = 19}, {1, 17, 1, 17, .width = 64}};
    op_suite_check(cases, 3, build);
}

static void check_extremes(const char *backend)
{
    op_case c = {1, 1, 1, 1, .width = 4};
    op_rig r;
    const float in[8] = {200, -200, 3e38f, -3e38f, 2, 2, 0.5f, 2};
    op_open(&r, &c, build, backend, 1);
    memcpy(r.host, in, sizeof in);
    op_run(&r, DL_TRAIN, false);
    dl_backend_copy_out(r.backend, r.gradient, r.graph->gradients, r.n * sizeof(float));
    for (size_t i = 0; i < r.n; i++)
        CHECK(isfinite(r.gradient[i]));
    CHECK_NEAR(2 * sinf(1), r.gradient[0], 1e-6); /* silu' is 1 far up, and 0 far down */
    CHECK_NEAR(0, r.gradient[1], 1e-6);
    op_close(&r);
}

TEST(extreme_gates_saturate)
{
    check_extremes("cpu");
    check_extremes("trap");
}

TEST_MAIN(gradients_agree_with_differences, extreme_gates_saturate)
