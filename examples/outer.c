/* outer.c - an outer optimizer of one's own in a run: two replicas, threads of one process, over a
 * store in memory. The rule is heavy ball with a momentum that warms up over the commits.
 *
 *     cc outer.c $(pkg-config --cflags --libs diloco) -lpthread -lm -o outer && ./outer
 *
 * Every replica calls `step` for itself, once for each commit, and all get the same bits. Its
 * memory is in a vector of the run's, so a replica that joins late continues with it. */
#include <diloco/diloco.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 8, ROUNDS = 40 };

static diloco_status step(void *user, const diloco_user_step *s)
{
    const float share = (float)(s->commits + 1) / 10, warm = share < 1 ? share : 1;
    float *v = s->vectors[0];
    (void)user;
    for (size_t i = 0; i < s->n; i++) {
        v[i] = fmaf(warm * s->momentum, v[i], s->g[i]);
        s->theta[i] = fmaf(-s->learning_rate, v[i], s->theta[i]);
    }
    return DILOCO_OK;
}

static const diloco_user_outer warming = {.size = sizeof warming,
                                          .name = "warming-heavy-ball",
                                          .n_vectors = 1,
                                          .vector_names = {"momentum"},
                                          .step = step};
static const diloco_user_parts parts = {.outer = &warming};

static void check(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", diloco_error_text());
    exit(diloco_exit_code(status));
}

/* Both pull w towards 1 … N, each with an error of its own, which the mean of the two has not. */
typedef struct replica {
    const char *name;
    double error;
    float w[N];
    diloco_verify_report report;
} replica;

static void *live(void *user)
{
    replica *r = user;
    float *w = r->w;
    diloco_run *run;
    diloco_config *config = diloco_config_create();
    const char *settings[][2] = {
        {"run.store", "mem://outer"}, {"run.state_dir", "none"},
        {"run.replicas", "2"},        {"trainer.rounds", "40"},
        {"sync_every", "5"},          {"server.diloco.outer_learning_rate", "0.3"},
        {"run.min_replicas", "2"},    {"server.diloco.outer_momentum", "0.5"}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        check(diloco_config_set(config, settings[i][0], settings[i][1], NULL));
    check(diloco_run_open_with(&run, config, r->name, &parts));
    diloco_config_destroy(config);
    check(diloco_run_tensor(run,
                            &(diloco_tensor){.name = "w", .data = w, .n_dims = 1, .shape = {N}}));
    check(diloco_run_join(run));
    while (!diloco_run_done(run)) {
        for (int i = 0; i < N; i++)
            w[i] += 0.1f * (float)(i + 1 + r->error - (double)w[i]);
        check(diloco_step(run, &(diloco_step_report){.loss = NAN, .samples = 1}));
    }
    check(diloco_run_verify(run, &r->report, 1)); /* by the optimizer that it was given */
    diloco_run_close(run);
    return NULL;
}

int main(void)
{
    replica replicas[] = {{.name = "r0", .error = 0.5}, {.name = "r1", .error = -0.5}};
    pthread_t other;
    if (pthread_create(&other, NULL, live, &replicas[1])) return 1;
    live(&replicas[0]);
    if (pthread_join(other, NULL)) return 1;
    for (const replica *r = replicas; r < replicas + 2; r++) {
        printf("%d commits, verified:", (int)r->report.commits);
        for (int i = 0; i < N; i++)
            printf(" %.4f", (double)r->w[i]);
        puts("");
    }
    return 0;
}
