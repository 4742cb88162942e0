/* torch_test.c - 1,000 random synchronisations end where PyTorch's own SGD(nesterov=True) ends:
 * to the last bit where its arithmetic is ours (mu 0.5), else within 1e-6 of the largest. The
 * numbers are those of tests/goldens/loop_torch.py, which says why. */
#include "goldens/loop_torch.h"
#include "loop_world.h"

enum { N = 16, ROUNDS = 1000 };

static void move(float *w, uint32_t *state)
{
    for (int i = 0; i < N; i++) {
        *state = *state * 1664525u + 1013904223u;
        w[i] += (float)((int)(*state >> 15) - 65536) / 65536;
    }
}

/* theta and momentum after all rounds, step by step through the loop. */
static void run(float *theta, float *momentum, const char *mu)
{
    static world w;
    uint32_t state = 12345;
    diloco_config *config = world_outer("nesterov", "0.7");
    CHECK_OK(diloco_config_set(config, "server.diloco.outer_momentum", mu, NULL));
    diloco_loop_options options = {.size = sizeof options, .sync_every = 1, .config = config};
    world_begin(&w, 1, &options);
    world_member *m = &w.members[0];
    world_tensor(m, "w", 0, N, 0);
    CHECK_OK(diloco_loop_start(m->loop));
    for (int round = 0; round < ROUNDS; round++) {
        move(m->w, &state);
        CHECK_OK(diloco_loop_step(m->loop));
    }
    diloco_loop_fragment view = {.size = sizeof view};
    CHECK_OK(diloco_loop_view(m->loop, 0, &view));
    memcpy(theta, view.theta, N * sizeof *theta);
    memcpy(momentum, view.vectors[0], N * sizeof *momentum);
    world_end(&w);
    diloco_config_destroy(config);
}

static double largest(const float *x)
{
    double most = 0;
    for (int i = 0; i < N; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

TEST(a_thousand_steps_of_momentum_one_half_have_pytorch_s_bits)
{
    float theta[N], momentum[N];
    run(theta, momentum, "0.5");
    CHECK_BYTES(exact_theta, theta, sizeof theta);
    CHECK_BYTES(exact_momentum, momentum, sizeof momentum);
}

TEST(a_thousand_steps_of_momentum_nine_tenths_are_within_a_millionth_of_pytorch)
{
    float theta[N], momentum[N], want[2][N];
    run(theta, momentum, "0.9");
    memcpy(want[0], paper_theta, sizeof want[0]);
    memcpy(want[1], paper_momentum, sizeof want[1]);
    for (int i = 0; i < N; i++) {
        CHECK_NEAR((double)want[0][i], (double)theta[i], 1e-6 * largest(want[0]));
        CHECK_NEAR((double)want[1][i], (double)momentum[i], 1e-6 * largest(want[1]));
    }
}

TEST_MAIN(a_thousand_steps_of_momentum_one_half_have_pytorch_s_bits,
          a_thousand_steps_of_momentum_nine_tenths_are_within_a_millionth_of_pytorch)
