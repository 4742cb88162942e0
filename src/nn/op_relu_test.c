/* op_relu_test.c - gradients by differences away from the kink; at and beyond it exactly. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    op_sink(g, dl_relu(g, op_source(g, c->width)), DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    static const op_case cases[] = {{1, 1, 1, 1, .width = 3, .apart = true},
                                    {2, 5, 3, 7, .width = 19, .apart = true}};
    op_suite_check(cases, 2, build);
}

TEST(zero_has_no_gradient_and_no_number_stays_none)
{
    static const op_case c = {1, 1, 1, 1, .width = 3};
    op_rig r;
    float gradient[3];
    op_open(&r, &c, build, "trap", 1);
    r.host[0] = 0, r.host[1] = -2, r.host[2] = 5;
    CHECK_NEAR(5 * sink_factor(2), op_run(&r, DL_TRAIN, false), 1e-6);
    dl_backend_copy_out(r.backend, gradient, r.graph->gradients, sizeof gradient);
    CHECK(gradient[0] == 0 && gradient[1] == 0 && gradient[2] == sink_factor(2));
    r.host[1] = NAN;
    CHECK(isnan(op_run(&r, DL_EVAL, false)));
    op_close(&r);
}

TEST_MAIN(gradients_agree_with_differences, zero_has_no_gradient_and_no_number_stays_none)
