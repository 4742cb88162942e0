/* feedback_test.c - error feedback loses nothing and sends nothing twice, with every kind of
 * overlap.
 *
 * One replica moves by the same whole numbers in each step, and topk sends one element of an entry,
 * exactly. So theta is known. Each movement is added to a residual, and the largest element is
 * taken from it at each entry. If two contributions share a residual, or one residual replaces
 * another, theta differs. */
#include "toy_run.h"

enum { ROUNDS = 12, H = 3 };

static double step_by_whole_numbers(toy *t, const diloco_run_info *now)
{
    (void)now;
    for (int i = 0; i < TOY_N; i++)
        t->w[i] -= (float)(1 + i * i % 29);
    return 1;
}

/* Computes theta after the entries; the first has `first` steps, the others `later`. */
static void expected(double *theta, int entries, int first, int later)
{
    double residual[TOY_N] = {0};
    memset(theta, 0, TOY_N * sizeof *theta);
    for (int e = 0; e < entries; e++) {
        int largest = 0;
        for (int i = 0; i < TOY_N; i++) {
            residual[i] += (e ? later : first) * (1 + i * i % 29);
            if (residual[i] > residual[largest]) largest = i;
        }
        theta[largest] -= residual[largest];
        residual[largest] = 0;
    }
}

static void check_exact(const char *name, const char *option, const char *value, int later)
{
    toy t = toy_of("r0", scratch_path(name));
    double theta[TOY_N];
    t.step = step_by_whole_numbers;
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "trainer.rounds", "12");
    toy_set(&t, "server.diloco.outer_optimizer", "sgd");
    toy_set(&t, "server.diloco.outer_learning_rate", "1");
    toy_set(&t, "server.diloco.codec", "topk");
    toy_set(&t, "server.diloco.codec_keep", "0.027"); /* of 37: one */
    toy_set(&t, "server.diloco.error_feedback", "1");
    toy_set(&t, option, value);
    toy_live(&t);
    TOY_OK(t);
    expected(theta, ROUNDS, H, later);
    for (int i = 0; i < TOY_N; i++)
        CHECK_NEAR(theta[i], t.theta[i], 0);
}

TEST(feedback_of_blocking_entries_is_exact)
{
    check_exact("blocking", "server.diloco.overlap", "steps", H);
}

TEST(feedback_with_a_step_of_overlap_is_exact)
{
    check_exact("overlapped", "server.diloco.overlap_steps", "1", H - 1);
}

TEST(feedback_with_a_round_of_overlap_is_exact)
{
    check_exact("delayed", "server.diloco.overlap", "delayed", H);
}

TEST(feedback_with_eager_shares_is_exact)
{
    check_exact("eager", "server.diloco.overlap", "eager", H);
}

TEST(feedback_of_asynchronous_entries_is_exact)
{
    check_exact("async", "server.diloco.schedule", "async", H);
}

TEST_MAIN(feedback_of_blocking_entries_is_exact, feedback_with_a_step_of_overlap_is_exact,
          feedback_with_a_round_of_overlap_is_exact, feedback_with_eager_shares_is_exact,
          feedback_of_asynchronous_entries_is_exact)
