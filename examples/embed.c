/* embed.c - DiLoCo around a trainer of your own: a linear model fitted by plain gradient
 * descent, one replica a process.
 *
 *     cc embed.c $(pkg-config --cflags --libs diloco) -o embed
 *     ./embed run r0 & ./embed run r1 & wait
 *
 * Each replica sees other data, made from its name. Both end with the same weights. */
#include <diloco/run.h>

#include <stdio.h>
#include <stdlib.h>

enum { N = 8 };

static double uniform(unsigned *state) /* in [-1, 1) */
{
    *state = *state * 1664525u + 1013904223u;
    return (double)*state / 2147483648.0 - 1;
}

/* One step on one sample of y = sum_i (i + 1) x_i; returns its squared error. */
static double train_step(float w[N], unsigned *state)
{
    double x[N], error = 0;
    for (int i = 0; i < N; i++) {
        x[i] = uniform(state);
        error += ((double)w[i] - (i + 1)) * x[i];
    }
    for (int i = 0; i < N; i++)
        w[i] -= (float)(0.1 * error * x[i]);
    return error * error;
}

static int stop(const char *what)
{
    fprintf(stderr, "embed: %s: %s\n", what, diloco_error_text());
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) return fprintf(stderr, "usage: embed STORE REPLICA\n"), 2;
    float w[N] = {0};
    unsigned random = (unsigned)atoi(argv[2] + 1) + 1;
    diloco_config *config = diloco_config_create();
    diloco_run *run;
    diloco_tensor tensor = {.name = "w", .data = w, .dtype = DILOCO_F32, .n_dims = 1, .shape = {N}};

    const char *settings[][2] = {{"run.store", argv[1]},
                                 {"run.replicas", "2"},
                                 {"trainer.rounds", "40"},
                                 {"trainer.local_steps_per_round", "20"}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (diloco_config_set(config, settings[i][0], settings[i][1], NULL))
            return stop("settings");

    if (diloco_run_open(&run, config, argv[2])) return stop("open");
    if (diloco_run_tensor(run, &tensor)) return stop("register");
    if (diloco_run_private(run, "random", &random, sizeof random)) return stop("register");
    if (diloco_run_join(run)) return stop("join");

    while (!diloco_run_done(run)) {
        diloco_step_report step = {.loss = train_step(w, &random), .samples = 1, .tokens = 1};
        if (diloco_step(run, &step)) return stop("step");
    }
    for (int i = 0; i < N; i++)
        printf("%.9g%c", (double)w[i], i + 1 < N ? ' ' : '\n');
    diloco_run_close(run);
    diloco_config_destroy(config);
    return 0;
}
