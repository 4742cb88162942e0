/* loop_run_test.c - a loop over an exchange that returns its input, and a run of one replica,
 * trained alike to the last bit. LIB-7: a streaming interface with one fragment is vanilla DiLoCo.
 * LIB-23: one replica is a single machine with the outer optimizer applied. */
#include "check.h"
#include "scratch.h"
#include <diloco/loop.h>
#include <diloco/run.h>

enum { N = 5000, H = 3, ROUNDS = 4 };

static void move(float *w, int step)
{
    for (int i = 0; i < N; i++)
        w[i] += 0.01f * sinf((float)(i + 31 * step));
}

static diloco_tensor tensor_of(float *w)
{
    return (diloco_tensor){.name = "w", .data = w, .n_dims = 1, .shape = {N}};
}

static void train_run(float *w, const char *optimizer)
{
    diloco_run *run;
    diloco_config *config = diloco_config_create();
    const diloco_tensor t = tensor_of(w);
    const char *settings[][2] = {{"run.store", scratch_path(optimizer)},
                                 {"server.diloco.outer_optimizer", optimizer},
                                 {"trainer.rounds", "4"},
                                 {"trainer.local_steps_per_round", "3"}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        CHECK_OK(diloco_config_set(config, settings[i][0], settings[i][1], NULL));
    CHECK_OK(diloco_run_open(&run, config, "r0"));
    CHECK_OK(diloco_run_tensor(run, &t));
    CHECK_OK(diloco_run_join(run));
    for (int step = 0; !diloco_run_done(run); step++) {
        move(w, step);
        CHECK_OK(diloco_step(run, &(diloco_step_report){.samples = 1}));
        CHECK(step < H * ROUNDS);
    }
    diloco_run_close(run);
    diloco_config_destroy(config);
}

static diloco_status all_reduce(void *user, const diloco_reduce *reduce, void **handle)
{
    (void)user, (void)reduce, (void)handle;
    return DILOCO_OK;
}

static diloco_status wait_for(void *user, void *handle)
{
    (void)user, (void)handle;
    return DILOCO_OK;
}

static void train_loop(float *w, const char *optimizer)
{
    diloco_loop *loop;
    diloco_config *config = diloco_config_create();
    const diloco_tensor t = tensor_of(w);
    CHECK_OK(diloco_config_set(config, "server.diloco.outer_optimizer", optimizer, NULL));
    diloco_communicator alone = {.size = sizeof alone, .all_reduce = all_reduce, .wait = wait_for};
    diloco_loop_options options = {.size = sizeof options, .sync_every = H, .config = config};
    CHECK_OK(diloco_loop_create(&loop, &options, &alone));
    CHECK_OK(diloco_loop_tensor(loop, &t));
    CHECK_OK(diloco_loop_start(loop));
    for (int step = 0; step < H * ROUNDS; step++) {
        move(w, step);
        CHECK_OK(diloco_loop_step(loop));
    }
    diloco_loop_destroy(loop);
    diloco_config_destroy(config);
}

TEST(lib_7_lib_23_a_loop_of_one_replica_has_the_bits_of_a_run_of_one)
{
    const char *optimizers[] = {"nesterov", "momentum", "adam"};
    static float run[N], loop[N];
    for (int k = 0; k < 3; k++) {
        memset(run, 0, sizeof run);
        memset(loop, 0, sizeof loop);
        train_run(run, optimizers[k]);
        train_loop(loop, optimizers[k]);
        CHECK_BYTES(run, loop, sizeof run);
        CHECK(run[1] != 0);
    }
}

TEST_MAIN(lib_7_lib_23_a_loop_of_one_replica_has_the_bits_of_a_run_of_one)
