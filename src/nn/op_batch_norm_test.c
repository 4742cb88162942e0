/* op_batch_norm_test.c - gradients of training by differences of training's forward; of the
 * running statistics the numbers of torch.nn.BatchNorm2d, and that only training moves them. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    dl_planes x = op_source_planes(g, c);
    int weights = dl_batch_norm_weights(g, c->channels, "bn");
    op_sink(g, dl_batch_norm(g, x, weights, 0.1f, 1e-5f).value, DL_NO_VALUE);
}

TEST(gradients_agree_with_differences)
{
    static const op_case cases[] = {
        {2, 1, 3, 1, .high = 1, .wide = 1, .channels = 1, .trains = true},
        {4, 1, 4, 1, .high = 3, .wide = 2, .channels = 5, .trains = true},
        {7, 1, 9, 1, .high = 2, .wide = 2, .channels = 33, .trains = true},
    };
    op_suite_check(cases, 3, build);
}

/* x = 1, 2, 3, 6 in one channel, running statistics 0.5 and 2, momentum 0.1: mean 3, variance 3.5,
 * unbiased 14 / 3. torch 2.13: running_mean 0.75, running_var 2.26666665. */
enum { X = 0, WEIGHT = 4, BIAS, MEAN, VARIANCE, N };

static void open_one(op_rig *r, const char *backend)
{
    static const op_case c = {4, 1, 4, 1, .high = 1, .wide = 1, .channels = 1};
    static const float values[N] = {1, 2, 3, 6, 2, 0.5f, 0.5f, 2};
    op_open(r, &c, build, backend, 2);
    CHECK_INT(N, r->n);
    memcpy(r->host, values, sizeof values);
}

static int64_t count_of(op_rig *r)
{
    int64_t count;
    dl_backend_copy_out(r->backend, &count, r->graph->counters, sizeof count);
    return count;
}

TEST(training_moves_the_running_statistics_as_pytorch_does)
{
    op_rig r;
    float after[N];
    open_one(&r, "trap");
    op_run(&r, DL_TRAIN, false);
    dl_backend_copy_out(r.backend, after, r.graph->parameters, sizeof after);
    CHECK_NEAR(0.75, after[MEAN], 1e-7);
    CHECK_NEAR(2.2666666667, after[VARIANCE], 1e-6);
    CHECK(after[WEIGHT] == 2 && after[BIAS] == 0.5f);
    CHECK_INT(1, count_of(&r));
    dl_backend_copy_out(r.backend, after, r.graph->gradients, sizeof after);
    CHECK(after[MEAN] == 0 && after[VARIANCE] == 0);
    op_close(&r);
}

TEST(evaluation_uses_the_running_statistics_and_leaves_them)
{
    op_rig r;
    float after[N];
    double want = 0;
    open_one(&r, "cpu");
    for (size_t i = 0; i < 4; i++)
        want += (double)sink_factor(i) * (((double)r.host[i] - 0.5) / sqrt(2 + 1e-5) * 2 + 0.5);
    CHECK_NEAR(want, op_run(&r, DL_EVAL, false), 1e-5);
    dl_backend_copy_out(r.backend, after, r.graph->parameters, sizeof after);
    CHECK_BYTES(r.host, after, sizeof after);
    CHECK_INT(0, count_of(&r));
    op_close(&r);
}

/* A value that an outer optimizer with momentum may have produced. */
TEST(a_running_variance_below_zero_counts_as_zero)
{
    op_rig r;
    open_one(&r, "cpu");
    r.host[VARIANCE] = -1;
    CHECK(isfinite(op_run(&r, DL_EVAL, false)));
    op_close(&r);
}

TEST(a_single_number_has_no_variance)
{
    static const op_case c = {1, 1, 2, 1, .high = 1, .wide = 1, .channels = 1};
    op_rig r;
    float after[6];
    op_open(&r, &c, build, "cpu", 1);
    CHECK_INT(6, r.n);
    CHECK(isfinite(op_run(&r, DL_TRAIN, false)));
    dl_backend_copy_out(r.backend, after, r.graph->parameters, sizeof after);
    CHECK(isfinite(after[5]));
    op_close(&r);
}

/* Sums are of x less its first row: a mean of 1e4 costs no digits of a variance near 1. */
TEST(a_large_mean_costs_no_digits)
{
    op_rig r;
    float after[N];
    open_one(&r, "cpu");
    for (int i = 0; i < 4; i++)
        r.host[i] += 10000;
    op_run(&r, DL_TRAIN, false);
    dl_backend_copy_out(r.backend, after, r.graph->parameters, sizeof after);
    CHECK_NEAR(2.2666666667, after[VARIANCE], 1e-5);
    op_close(&r);
}

TEST_MAIN(gradients_agree_with_differences, training_moves_the_running_statistics_as_pytorch_does,
          evaluation_uses_the_running_statistics_and_leaves_them,
          a_running_variance_below_zero_counts_as_zero, a_single_number_has_no_variance,
          a_large_mean_costs_no_digits)
