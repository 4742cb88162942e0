/* op_class_loss_test.c - gradients by differences, the loss in float64, and what counts as
 * correct. */
#include "op_suite.h"

static void build(dl_graph *g, const op_case *c)
{
    dl_class_loss(g, op_source(g, c->vocab));
}

static const op_case cases[] = {
    {1, 1, 1, 1, .vocab = 2}, {9, 1, 11, 1, .vocab = 10}, {40, 1, 40, 1, .vocab = 37}};

TEST(gradients_agree_with_differences)
{
    op_suite_check(cases, 3, build);
}

/* Targets as op_open makes them. */
TEST(the_loss_and_the_correct_ones_are_those_of_the_counted_targets)
{
    for (size_t i = 0; i < 3; i++) {
        const op_case *c = &cases[i];
        op_rig r;
        dl_tally tally;
        double want = 0;
        uint64_t correct = 0;
        op_open(&r, c, build, "trap", 2);
        for (size_t row = 0; row < c->rows; row++) {
            const float *x = r.host + row * c->vocab;
            size_t target = (row * row * 3 + row) % c->vocab, best = 0;
            double total = 0;
            for (size_t k = 0; k < c->vocab; k++) {
                total += exp((double)x[k]);
                if (x[k] > x[best]) best = k;
            }
            if (row % 5 == 4) continue;
            want += log(total) - (double)x[target];
            correct += best == target;
        }
        for (int mode = DL_TRAIN; mode <= DL_EVAL; mode++) {
            CHECK_NEAR(want, op_run(&r, (dl_mode)mode, false), 1e-5 * want);
            dl_backend_copy_out(r.backend, &tally, r.graph->pass.tally, sizeof tally);
            CHECK_INT(correct, tally.n_correct);
        }
        op_close(&r);
    }
}

/* A dead model, all of whose logits are equal, is not right every time. */
TEST(of_equal_logits_only_the_first_is_the_answer)
{
    op_rig r;
    dl_tally tally;
    const int32_t targets[3] = {0, 1, 2};
    static const op_case c = {3, 1, 3, 1, .vocab = 4};
    op_open(&r, &c, build, "cpu", 1);
    for (size_t i = 0; i < r.n; i++)
        r.host[i] = 0.5f;
    dl_backend_copy_in(r.backend, r.graph->pass.targets, targets, sizeof targets);
    CHECK_NEAR(3 * log(4), op_run(&r, DL_EVAL, false), 1e-5);
    dl_backend_copy_out(r.backend, &tally, r.graph->pass.tally, sizeof tally);
    CHECK_INT(1, tally.n_correct);
    op_close(&r);
}

TEST_MAIN(gradients_agree_with_differences,
          the_loss_and_the_correct_ones_are_those_of_the_counted_targets,
          of_equal_logits_only_the_first_is_the_answer)
