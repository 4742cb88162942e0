/* op_head_loss_test.c - gradients by differences, and the loss against log-sum-exp in float64.
 * One vocabulary is so large that the positions take two blocks. */
#include "op_suite.h"

static const op_case cases[] = {
    {1, 1, 1, 1, .width = 1, .vocab = 2},
    {2, 9, 3, 11, .width = 5, .vocab = 37},
    {1, 40, 1, 40, .width = 16, .vocab = 256},
};
static const op_case two_blocks = {2, 70, 2, 70, .width = 3, .vocab = 16400};

static void build(dl_graph *g, const op_case *c)
{
    int head = dl_graph_weight(g, c->vocab, c->width, DL_INITIAL_NORMAL, 1, "head");
    dl_head_loss(g, op_source(g, c->width), head);
}

TEST(gradients_agree_with_differences)
{
    op_suite_check(cases, 3, build);
}
TEST(gradients_agree_over_two_blocks)
{
    op_suite_check(&two_blocks, 1, build);
}

/* Targets as op_open makes them. */
static double plain_loss(const op_case *c, const float *head, const float *x)
{
    double loss = 0;
    for (size_t i = 0; i < c->rows * c->length; i++) {
        size_t target = (i * i * 3 + i) % c->vocab;
        double total = 0, right = 0;
        for (size_t v = 0; v < c->vocab; v++) {
            double logit = 0;
            for (size_t k = 0; k < c->width; k++)
                logit += (double)head[v * c->width + k] * (double)x[i * c->width + k];
            total += exp(logit);
            if (v == target) right = logit;
        }
        if (i % 5 != 4) loss += log(total) - right;
    }
    return loss;
}

TEST(the_loss_is_the_sum_over_counted_targets)
{
    for (size_t i = 0; i < 3; i++) {
        op_rig r;
        op_open(&r, &cases[i], build, "trap", 2);
        const float *x = r.host + cases[i].vocab * cases[i].width;
        double want = plain_loss(&cases[i], r.host, x);
        CHECK_NEAR(want, op_run(&r, DL_EVAL, false), 1e-5 * fabs(want));
        CHECK_NEAR(want, op_run(&r, DL_TRAIN, false), 1e-5 * fabs(want));
        op_close(&r);
    }
}

TEST_MAIN(gradients_agree_with_differences, gradients_agree_over_two_blocks,
          the_loss_is_the_sum_over_counted_targets)
