/* op_max_pool_test.c - gradients by differences, of values no two of which are near each other, so
 * that a difference changes no largest one; and whose the gradient is among equals. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    dl_planes x = op_source_planes(g, c);
    op_sink(g, dl_max_pool(g, x, c->size, c->stride, c->pad).value, DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    static const op_case cases[] = {
        {2, 1, 3, 1, .high = 4, .wide = 4, .channels = 3, .size = 2, .stride = 2, .apart = true},
        {1, 1, 1, 1, .high = 5, .wide = 4, .channels = 1, .size = 2, .stride = 2, .apart = true},
        {1, 1, 1, 1, .high = 7, .wide = 7, .channels = 2, .size = 3, .stride = 2, .pad = 1,
         .apart = true},
        {1, 1, 2, 1, .high = 3, .wide = 3, .channels = 5, .size = 3, .stride = 1, .pad = 1,
         .apart = true},
    };
    op_suite_check(cases, 4, build);
}

TEST(of_equal_values_the_first_gets_the_gradient)
{
    static const op_case c = {1,         1,          1, 1, .high = 2, .wide = 2, .channels = 1,
                              .size = 2, .stride = 2};
    op_rig r;
    float gradient[4];
    op_open(&r, &c, build, "cpu", 1);
    for (int i = 0; i < 4; i++)
        r.host[i] = i == 0 ? 1 : 3;
    op_run(&r, DL_TRAIN, false);
    dl_backend_copy_out(r.backend, gradient, r.graph->gradients, sizeof gradient);
    CHECK(gradient[0] == 0 && gradient[1] == sink_factor(0));
    CHECK(gradient[2] == 0 && gradient[3] == 0);
    op_close(&r);
}

TEST(a_value_that_is_no_number_is_not_passed_over)
{
    static const op_case c = {1,         1,          1, 1, .high = 2, .wide = 2, .channels = 1,
                              .size = 2, .stride = 2};
    for (int at = 0; at < 4; at++) {
        op_rig r;
        op_open(&r, &c, build, "cpu", 1);
        r.host[at] = NAN;
        CHECK(isnan(op_run(&r, DL_EVAL, false)));
        op_close(&r);
    }
}

/* As torch.nn.MaxPool2d: of several NaN the last. The other column of windows has numbers. */
TEST(a_nan_gets_the_gradient_and_of_several_the_last)
{
    static const op_case c = {1,         1,          1, 1, .high = 2, .wide = 4, .channels = 1,
                              .size = 2, .stride = 2};
    static const struct {
        int nan[2], gets;
    } rows[] = {{{0, 0}, 0}, {{1, 1}, 1}, {{4, 4}, 4}, {{5, 5}, 5}, {{0, 4}, 4}, {{1, 4}, 4}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        op_rig r;
        float gradient[8];
        op_open(&r, &c, build, "cpu", 1);
        for (int i = 0; i < 8; i++)
            r.host[i] = (float)i;
        r.host[rows[k].nan[0]] = r.host[rows[k].nan[1]] = NAN;
        op_run(&r, DL_TRAIN, false);
        dl_backend_copy_out(r.backend, gradient, r.graph->gradients, sizeof gradient);
        for (int i = 0; i < 8; i++)
            CHECK(gradient[i] == (i == rows[k].gets ? sink_factor(0)
                                  : i == 7          ? sink_factor(1)
                                                    : 0));
        op_close(&r);
    }
}

TEST_MAIN(gradients_agree_with_differences, of_equal_values_the_first_gets_the_gradient,
          a_value_that_is_no_number_is_not_passed_over,
          a_nan_gets_the_gradient_and_of_several_the_last)
