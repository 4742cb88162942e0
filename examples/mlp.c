/* mlp.c - a trainer in the manner of llm.c around libdiloco: it has one flat buffer each for
 * parameters, gradients and AdamW's moments, a forward and a backward pass written out, and one
 * call after each optimizer step. A tanh network of two inputs learns whether their signs differ.
 *
 *     cc mlp.c $(pkg-config --cflags --libs diloco) -lm -o mlp
 *     ./mlp run r0 & ./mlp run r1 & wait
 *
 * Each replica draws other points. Both end with the same parameters and say how many of 1,000 new
 * points they put on the right side. Started again after a crash, a replica resumes where it was:
 * the state that it needs beside the parameters is registered as private. */
#include <diloco/diloco.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 2, HIDDEN = 16, BATCH = 32 };
enum { W1 = 0, B1 = W1 + HIDDEN * IN, W2 = B1 + HIDDEN, B2 = W2 + HIDDEN, N = B2 + 1 };

typedef struct trainer {
    float parameters[N], gradients[N], moment1[N], moment2[N];
    float hidden[HIDDEN];
    unsigned random;
    int step;
} trainer;

static float uniform(unsigned *state) /* in [-1, 1) */
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1;
}

/* The network's answer for x, > 0: the signs differ. Fills hidden. */
static float forward(trainer *t, const float x[IN])
{
    const float *p = t->parameters;
    float out = p[B2];
    for (int h = 0; h < HIDDEN; h++) {
        float sum = p[B1 + h];
        for (int i = 0; i < IN; i++)
            sum += p[W1 + h * IN + i] * x[i];
        t->hidden[h] = tanhf(sum);
        out += p[W2 + h] * t->hidden[h];
    }
    return out;
}

/* Adds the gradient of the loss for a point whose derivative after the answer is d. */
static void backward(trainer *t, const float x[IN], float d)
{
    const float *p = t->parameters;
    float *g = t->gradients;
    g[B2] += d;
    for (int h = 0; h < HIDDEN; h++) {
        const float inside = d * p[W2 + h] * (1 - t->hidden[h] * t->hidden[h]);
        g[W2 + h] += d * t->hidden[h];
        g[B1 + h] += inside;
        for (int i = 0; i < IN; i++)
            g[W1 + h * IN + i] += inside * x[i];
    }
}

static void adamw(trainer *t)
{
    const float lr = 0.01f, beta1 = 0.9f, beta2 = 0.99f, decay = 0.001f;
    t->step++;
    const float c1 = 1 - powf(beta1, (float)t->step), c2 = 1 - powf(beta2, (float)t->step);
    for (int i = 0; i < N; i++) {
        const float g = t->gradients[i];
        t->moment1[i] = beta1 * t->moment1[i] + (1 - beta1) * g;
        t->moment2[i] = beta2 * t->moment2[i] + (1 - beta2) * g * g;
        const float move = t->moment1[i] / c1 / (sqrtf(t->moment2[i] / c2) + 1e-8f);
        t->parameters[i] -= lr * (move + decay * t->parameters[i]);
    }
}

/* One optimizer step on BATCH points; the mean logistic loss. */
static double train_step(trainer *t)
{
    double loss = 0;
    memset(t->gradients, 0, sizeof t->gradients);
    for (int k = 0; k < BATCH; k++) {
        const float x[IN] = {uniform(&t->random), uniform(&t->random)};
        const float sign = x[0] * x[1] < 0 ? 1.0f : -1.0f;
        const float z = sign * forward(t, x);
        loss += log1p(exp(-(double)z)) / BATCH;
        backward(t, x, -sign / (1 + expf(z)) / BATCH);
    }
    adamw(t);
    return loss;
}

static int right_of_1000(trainer *t)
{
    unsigned random = 12345;
    int right = 0;
    for (int k = 0; k < 1000; k++) {
        const float x[IN] = {uniform(&random), uniform(&random)};
        right += (forward(t, x) > 0) == (x[0] * x[1] < 0);
    }
    return right;
}

static int stop(const char *what)
{
    fprintf(stderr, "mlp: %s: %s\n", what, diloco_error_text());
    return 1;
}

/* The flat buffers: the model by tensor, the optimizer's own as they are. */
static diloco_status register_all(diloco_run *run, trainer *t)
{
    float *p = t->parameters;
    const diloco_tensor tensors[] = {
        {.name = "hidden.weight", .data = p + W1, .n_dims = 2, .shape = {HIDDEN, IN}},
        {.name = "hidden.bias", .data = p + B1, .n_dims = 1, .shape = {HIDDEN}},
        {.name = "out.weight", .data = p + W2, .n_dims = 1, .shape = {HIDDEN}},
        {.name = "out.bias", .data = p + B2, .n_dims = 1, .shape = {1}}};
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0] && !status; i++)
        status = diloco_run_tensor(run, &tensors[i]);
    if (!status) status = diloco_run_private(run, "moment1", t->moment1, sizeof t->moment1);
    if (!status) status = diloco_run_private(run, "moment2", t->moment2, sizeof t->moment2);
    if (!status) status = diloco_run_private(run, "random", &t->random, sizeof t->random);
    if (!status) status = diloco_run_private(run, "step", &t->step, sizeof t->step);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 3) return fprintf(stderr, "usage: mlp STORE REPLICA\n"), 2;
    static trainer t;
    unsigned first = 1; /* all replicas begin with the same parameters */
    for (int i = 0; i < N; i++)
        t.parameters[i] = i < B1 || (i >= W2 && i < B2) ? uniform(&first) : 0;
    t.random = (unsigned)atoi(argv[2] + 1) * 7919u + 17;

    const char *settings[][2] = {{"run.store", argv[1]},
                                 {"run.replicas", "2"},
                                 {"trainer.rounds", "20"},
                                 {"trainer.local_steps_per_round", "25"}};
    diloco_config *config = diloco_config_create();
    diloco_run *run;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (diloco_config_set(config, settings[i][0], settings[i][1], NULL))
            return stop("settings");
    if (diloco_run_open(&run, config, argv[2])) return stop("open");
    diloco_config_destroy(config);
    if (register_all(run, &t)) return stop("register");
    if (diloco_run_join(run)) return stop("join");

    while (!diloco_run_done(run)) {
        const diloco_step_report step = {.loss = train_step(&t), .samples = BATCH, .tokens = BATCH};
        if (diloco_step(run, &step)) return stop("step");
    }
    printf("%d of 1000 right;", right_of_1000(&t));
    for (int i = 0; i < N; i++)
        printf(" %a", (double)t.parameters[i]);
    printf("\n");
    diloco_run_close(run);
    return 0;
}
