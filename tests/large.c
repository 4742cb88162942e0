/* large.c - a model of N parameters goes through whole exchanges (SWM-34).
 *
 *     large N_PARAMETERS STORE [CODEC]
 *
 * One replica with one float32 tensor creates a run in the folder STORE and makes two entries, each
 * of a contribution of N parameters. Its end is compared element by element, and the process's
 * peak with BYTES a parameter. These are the tensor itself (4), theta and what it becomes
 * (8), the encoded contribution and the one that is read (4 each in float32), and what is not a
 * multiple of anything. Past 536,870,912 parameters each of these is longer than 2^31 bytes. */
#include "high_water.h"
#include <diloco/run.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 20, ROUNDS = 2, STRIDE = 1000003, SLACK = 128 << 20 };

static void must(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "large: %s\n", diloco_error_text());
    exit(1);
}

static diloco_run *open_run(const char *store, const char *codec, float *w, size_t n)
{
    const char *const settings[][2] = {{"run.store", store},
                                       {"run.state_dir", "none"},
                                       {"trainer.rounds", "2"},
                                       {"trainer.local_steps_per_round", "1"},
                                       {"server.diloco.outer_optimizer", "sgd"},
                                       {"server.diloco.outer_learning_rate", "1"},
                                       {"server.diloco.codec", codec}};
    diloco_run *run;
    diloco_config *config = diloco_config_create();
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        must(diloco_config_set(config, settings[i][0], settings[i][1], NULL));
    must(diloco_run_open(&run, config, "r0"));
    diloco_config_destroy(config);
    const diloco_tensor t = {.name = "w", .data = w, .n_dims = 1, .shape = {n}};
    must(diloco_run_tensor(run, &t));
    must(diloco_run_join(run));
    return run;
}

/* The first, the last, and every STRIDE-th between. */
static bool moves(size_t i, size_t n)
{
    return i % STRIDE == 0 || i == n - 1;
}

static void train(diloco_run *run, float *w, size_t n)
{
    while (!diloco_run_done(run)) {
        for (size_t i = 0; i < n; i += STRIDE)
            w[i] -= 1;
        if ((n - 1) % STRIDE != 0) w[n - 1] -= 1;
        must(diloco_step(run, &(diloco_step_report){.loss = 1, .samples = 1}));
    }
}

int main(int argc, char **argv)
{
    const size_t n = argc > 2 ? strtoull(argv[1], NULL, 10) : 0;
    float *w = n ? calloc(n, sizeof *w) : NULL;
    if (!w) return fputs("usage: large N_PARAMETERS STORE [CODEC]\n", stderr), 2;
    diloco_run *run = open_run(argv[2], argc > 3 ? argv[3] : "f32", w, n);
    train(run, w, n);
    diloco_run_close(run);
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++)
        wrong += w[i] != (moves(i, n) ? -ROUNDS : 0);
    const size_t peak = high_water();
    printf("%zu parameters: %zu wrong, %.1f bytes a parameter at the peak\n", n, wrong,
           (double)peak / (double)n);
    free(w);
    return wrong || peak > BYTES * n + SLACK;
}
