/* op_head_loss_test.c - gradients by differences, and the loss against log-sum-exp in float64.
 * One vocabulary is so large that the positions take two blocks on the CPU. Another case has more
 * positions than a block of a card. */
#include "op_suite.h"

static const op_case cases[] = {
    {1, 1, 1, 1, .width = 1, .vocab = 2},
    {2, 9, 3, 11, .width = 5, .vocab = 37},
    {1, 40, 1, 40, .width = 16, .vocab = 256},
};
static const op_case two_blocks = {2, 70, 2, 70, .width = 3, .vocab = 16400};
static const op_case two_blocks_on_a_card = {2, 2100, 2, 2100, .width = 3, .vocab = 5};

static void build(dl_graph *g, const op_case *c)
{
    int head = dl_graph_weight(g, c->vocab, c->width, DL_INITIAL_NORMAL, 1, "head");
    dl_head_loss(g, op_source(g, c->width), head, 0);
}

/* Far more than any model uses, so that a mistake in it would show. */
#define Z 0.3

static void build_z(dl_graph *g, const op_case *c)
{
    int head = dl_graph_weight(g, c->vocab, c->width, DL_INITIAL_NORMAL, 1, "head");
    dl_head_loss(g, op_source(g, c->width), head, (float)Z);
}

TEST(gradients_agree_with_differences)
{
    op_suite_check(cases, 3, build);
}
TEST(gradients_agree_over_two_blocks)
{
    op_suite_check(&two_blocks, 1, build);
    op_suite_check(&two_blocks_on_a_card, 1, build);
}

/* Targets as op_open makes them. The loss, and z times each position's squared log-sum-exp. */
static double plain_loss(const op_case *c, const float *head, const float *x, double z)
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
        if (i % 5 != 4) loss += log(total) - right + z * log(total) * log(total);
    }
    return loss;
}

TEST(the_loss_is_the_sum_over_counted_targets)
{
    for (size_t i = 0; i < 3; i++) {
        op_rig r;
        op_open(&r, &cases[i], build, "trap", 2);
        const float *x = r.host + cases[i].vocab * cases[i].width;
        double want = plain_loss(&cases[i], r.host, x, 0);
        CHECK_NEAR(want, op_run(&r, DL_EVAL, false), 1e-5 * fabs(want));
        CHECK_NEAR(want, op_run(&r, DL_TRAIN, false), 1e-5 * fabs(want));
        op_close(&r);
    }
}

/* The difference quotient of the definition, by one parameter. */
static double plain_slope(const op_case *c, op_rig *r, size_t i)
{
    const float h = 1.0f / 64, at = r->host[i], *x = r->host + c->vocab * c->width;
    double sides[2];
    for (int k = 0; k < 2; k++) {
        r->host[i] = k ? at + h : at - h;
        sides[k] = plain_loss(c, r->host, x, Z);
    }
    double step = (double)(at + h) - (double)(at - h);
    r->host[i] = at;
    return (sides[1] - sides[0]) / step;
}

/* op_suite.h takes differences of the loss, in which z_loss does not show; here they are of the
 * definition in float64. The tolerance is op_suite.h's. */
TEST(z_loss_is_in_the_gradient_and_not_in_the_loss)
{
    for (size_t i = 0; i < 3; i++) {
        const op_case *c = &cases[i];
        op_rig r;
        double largest = 0;
        op_open(&r, c, build_z, "trap", 2);
        double want = plain_loss(c, r.host, r.host + c->vocab * c->width, 0);
        CHECK_NEAR(want, op_run(&r, DL_EVAL, false), 1e-5 * fabs(want));
        CHECK_NEAR(want, op_run(&r, DL_TRAIN, false), 1e-5 * fabs(want));
        dl_backend_copy_out(r.backend, r.gradient, r.graph->gradients, r.n * sizeof(float));
        for (size_t k = 0; k < r.n; k++)
            largest = fmax(largest, fabs((double)r.gradient[k]));
        for (size_t k = 0; k < r.n; k += 1 + r.n / 40)
            CHECK_NEAR(plain_slope(c, &r, k), r.gradient[k], 2e-3 * largest);
        op_close(&r);
    }
}

TEST_MAIN(gradients_agree_with_differences, gradients_agree_over_two_blocks,
          the_loss_is_the_sum_over_counted_targets, z_loss_is_in_the_gradient_and_not_in_the_loss)
