/* roles_test.c - a small convolutional net with batch norm, trained by two replicas in a run. It
 * tests tensors of every role and type (docs/architecture.md, section 2).
 *
 *     trained  conv.weight, bn.weight, bn.bias, linear.weight, linear.bias     outer optimizer
 *     frozen   stem.weight, which each replica moves by itself, not by training  weighted mean
 *     buffers  bn.running_mean, bn.running_var                                    weighted mean
 *              bn.num_batches_tracked: replica 1 sees a batch more a round   mean, rounded half up
 *              flags, which the replicas set differently                  majority, ties true
 *
 * H = 3 steps, 2 rounds, nesterov. The expected values follow the rules in float64, from the
 * replicas' values before each entry. */
#include "base/safetensors.h"
#include "nn/inner.h"
#include "nn/ops.h"
#include "train_fixture.h"
#include <diloco/run.h>

#include <ftw.h>

enum { ROWS = 6, H = 3, ROUNDS = 2, N_FLAGS = 3, MAX_TENSORS = 16, MAX_FLOATS = 1024 };
#define OUTER_LR 0.7
#define OUTER_MU 0.9

static const dl_sample sample = {.kind = DL_IMAGES,
                                 .length = 1,
                                 .classes = 3,
                                 .channels = 1,
                                 .height = 6,
                                 .width = 6,
                                 .mean = {0.5f},
                                 .deviation = {0.25f}};

/* All values that move in a replica. */
typedef struct state {
    float floats[MAX_FLOATS];
    int64_t count;
    uint8_t flags[N_FLAGS];
} state;

typedef struct replica {
    const dl_config *config;
    int index;
    char name[16];
    dl_backend *backend;
    dl_pool *pool;
    dl_graph *graph;
    dl_inner *inner;
    diloco_tensor tensors[MAX_TENSORS];
    size_t n_tensors;
    uint8_t flags[N_FLAGS];
    state before[ROUNDS], after[ROUNDS + 1]; /* of each entry; after[0]: the start */
    pthread_t thread;
} replica;

/* CHECKs are for the main thread. */
static void must(diloco_status status)
{
    DL_ASSERT(!status);
}

static dl_graph *build(void)
{
    dl_graph *g;
    must(dl_graph_create(&g, 8, 12, 1, &(dl_graph_target){.max_rows = ROWS, .n_threads = 1}));
    const size_t stem[4] = {2, 1, 3, 3}, conv[4] = {4, 2, 3, 3};
    int w = dl_graph_weight4(g, stem, DL_INITIAL_NORMAL, 1, "stem.weight");
    dl_graph_set_role(g, w, DILOCO_FROZEN);
    dl_planes x = dl_conv2d(g, dl_image(g, &sample, 3, 1, 1), w, false, 1, 1, 0);
    w = dl_graph_weight4(g, conv, DL_INITIAL_NORMAL, 1, "conv.weight");
    x = dl_conv2d(g, x, w, false, 3, 2, 1);
    x = dl_batch_norm(g, x, dl_batch_norm_weights(g, x.channels, "bn"), 0.1f, 1e-5f);
    x.value = dl_relu(g, x.value);
    x = dl_average_pool(g, x, 3, 3, 0);
    w = dl_graph_weight(g, 3, 4, DL_INITIAL_NORMAL, 1, "linear.weight");
    dl_graph_weight(g, 0, 3, DL_INITIAL_ZEROS, 0, "linear.bias");
    dl_class_loss(g, dl_linear_bias(g, x.value, w));
    return g;
}

static void list_tensors(replica *r)
{
    const dl_graph *g = r->graph;
    for (int i = 0; i < g->n_weights; i++) {
        const dl_weight *w = &g->weights[i];
        diloco_tensor *t = &r->tensors[r->n_tensors++];
        bool counter = w->dtype == DILOCO_I64;
        *t = (diloco_tensor){.name = w->name,
                             .data = counter ? (void *)(g->counters + w->offset)
                                             : (void *)(g->parameters + w->offset),
                             .dtype = w->dtype,
                             .role = w->role,
                             .n_dims = w->n_dims};
        memcpy(t->shape, w->shape, sizeof t->shape);
    }
}

static void open_replica(replica *r)
{
    must(dl_backend_create(&r->backend, "cpu"));
    must(dl_pool_create(&r->pool, 1));
    r->graph = build();
    must(dl_graph_allocate(r->graph, r->backend, r->pool));
    DL_ASSERT(r->graph->n_parameters <= MAX_FLOATS);
    list_tensors(r);
    const dl_inner_model model = {.tensors = r->tensors,
                                  .n_tensors = r->n_tensors,
                                  .parameters = r->graph->parameters,
                                  .gradients = r->graph->gradients,
                                  .backend = r->backend,
                                  .pool = r->pool};
    must(dl_inner_create(&r->inner, r->config, &model));
    for (size_t i = 0; i < r->graph->n_parameters; i++)
        r->graph->parameters[i] = 0.5f + 0.4f * sinf((float)i);
    r->tensors[r->n_tensors++] = (diloco_tensor){.name = "flags",
                                                 .data = r->flags,
                                                 .dtype = DILOCO_BOOL,
                                                 .role = DILOCO_BUFFER,
                                                 .n_dims = 1,
                                                 .shape = {N_FLAGS}};
}

static void close_replica(replica *r)
{
    dl_inner_destroy(r->inner);
    dl_graph_destroy(r->graph);
    dl_pool_destroy(r->pool);
    dl_backend_destroy(r->backend);
}

static void look(const replica *r, state *out)
{
    memcpy(out->floats, r->graph->parameters, r->graph->n_parameters * sizeof(float));
    out->count = *r->graph->counters;
    memcpy(out->flags, r->flags, N_FLAGS);
}

static void train(replica *r, uint64_t step)
{
    dl_batch batch = {.rows = ROWS, .length = 1, .mode = DL_TRAIN, .gain = 1.0f / ROWS};
    for (size_t i = 0; i < ROWS * r->graph->image_bytes; i++)
        r->graph->pass.images[i] = (uint8_t)(i * i + 31 * i * (size_t)(r->index + 2) + 7 * step);
    for (size_t i = 0; i < ROWS; i++)
        r->graph->pass.targets[i] = (int32_t)((i + step + (size_t)r->index) % 3);
    dl_graph_run(r->graph, &batch);
    must(dl_inner_step(r->inner, 0.05));
}

/* Changes the tensors that training does not, at the end of a round. */
static void move_by_itself(replica *r, size_t round)
{
    for (size_t i = 0; i < 18; i++) /* stem.weight */
        r->graph->parameters[i] += 0.01f * (float)((size_t)r->index + round + i);
    r->flags[0] = true, r->flags[1] = r->index == 1, r->flags[2] = false;
    if (r->index == 1) ++*r->graph->counters;
}

static void *live(void *user)
{
    replica *r = user;
    diloco_run *run;
    diloco_step_report report = {.loss = 1, .samples = ROWS, .tokens = ROWS};
    open_replica(r);
    look(r, &r->after[0]);
    must(diloco_run_open(&run, r->config, r->name));
    for (size_t i = 0; i < r->n_tensors; i++)
        must(diloco_run_tensor(run, &r->tensors[i]));
    must(diloco_run_join(run));
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < H; i++) {
            train(r, round * H + i);
            if (i + 1 == H) {
                move_by_itself(r, round);
                look(r, &r->before[round]);
            }
            must(diloco_step(run, &report));
        }
        look(r, &r->after[round + 1]);
    }
    DL_ASSERT(diloco_run_done(run));
    diloco_run_close(run);
    return NULL;
}

/* The configuration, for the caller to free. */
static dl_config *run_both(replica r[2], const char *apply_to)
{
    dl_config *config = fixture_config("diloco");
    set(config, "run.replicas", "2");
    set(config, "run.retain", "all");
    set(config, "trainer.rounds", "2");
    set(config, "trainer.local_steps_per_round", "3");
    set(config, "trainer.optimizer", "sgd");
    set(config, "server.diloco.apply_outer_optimizer_to", apply_to);
    for (int i = 0; i < 2; i++) {
        r[i] = (replica){.config = config, .index = i};
        snprintf(r[i].name, sizeof r[i].name, "r%d", i);
    }
    CHECK_INT(0, pthread_create(&r[1].thread, NULL, live, &r[1]));
    live(&r[0]);
    pthread_join(r[1].thread, NULL);
    return config;
}

/* Checks element i after both entries, by the outer optimizer's rule or the mean's. */
static void expect_element(const replica r[2], size_t i, bool outer, const char *name)
{
    double theta = (double)r[0].after[0].floats[i], v = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        double a = (double)r[0].before[round].floats[i], b = (double)r[1].before[round].floats[i];
        double g = theta - (a + b) / 2;
        v = OUTER_MU * v + g;
        theta -= outer ? OUTER_LR * (OUTER_MU * v + g) : g;
        float got = r[0].after[round + 1].floats[i];
        if (!(fabs((double)got - theta) <= 1e-5))
            CHECK_FAIL("%s, element %zu after entry %zu: %g, not %g", name, i, round, (double)got,
                       theta);
        CHECK(got == r[1].after[round + 1].floats[i]);
    }
}

static void check_all(const replica r[2], bool all_floating)
{
    const dl_graph *g = r[0].graph;
    for (int i = 0; i < g->n_weights; i++) {
        const dl_weight *w = &g->weights[i];
        size_t n = w->dtype == DILOCO_F32 ? w->rows * w->columns : 0;
        bool differs = n == 0;
        for (size_t k = 0; k < n; k++) {
            expect_element(r, w->offset + k, all_floating || w->role == DILOCO_PARAMETER, w->name);
            differs |= r[0].before[0].floats[w->offset + k] != r[1].before[0].floats[w->offset + k];
        }
        CHECK(differs); /* or the test would show nothing */
    }
}

/* Tensors that the run keeps momentum of, from its last snapshot. */
static char snapshot_path[1024];
static int find_snapshot(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)at;
    size_t len = strlen(path);
    bool is =
        type == FTW_F && strstr(path, "/snap/") && strcmp(path + len - 12, ".safetensors") == 0;
    if (is && strcmp(path, snapshot_path) > 0)
        snprintf(snapshot_path, sizeof snapshot_path, "%s", path);
    return 0;
}

static bool has_momentum(const dl_st *st, const char *name)
{
    for (size_t i = 0; i < st->n; i++)
        if (strncmp(st->tensors[i].name, "diloco.momentum", 15) == 0 &&
            strstr(st->tensors[i].name, name))
            return true;
    return false;
}

static void check_momentum(const replica *r, bool all_floating)
{
    dl_map map;
    dl_st st;
    snapshot_path[0] = '\0';
    CHECK_INT(0, nftw(r->config->store, find_snapshot, 8, FTW_PHYS));
    CHECK_OK(dl_map_open(&map, snapshot_path));
    CHECK_OK(dl_st_open(&st, map.data, map.len));
    for (size_t i = 0; i < r->n_tensors; i++) {
        const diloco_tensor *t = &r->tensors[i];
        bool has = t->role == DILOCO_PARAMETER || (all_floating && t->dtype == DILOCO_F32);
        const dl_st_tensor *found = dl_st_find(&st, t->name);
        CHECK(found != NULL);
        CHECK_STR(t->dtype == DILOCO_F32   ? "F32"
                  : t->dtype == DILOCO_I64 ? "I64"
                                           : "BOOL",
                  found->dtype);
        CHECK(has_momentum(&st, t->name) == has);
    }
    dl_st_close(&st);
    dl_map_close(&map);
}

static void check_run(const char *apply_to, bool all_floating)
{
    static replica r[2];
    dl_config *config = run_both(r, apply_to);
    check_all(r, all_floating);
    check_momentum(&r[0], all_floating);
    /* 3 batches and 4: 3.5 gives 4; then 7 and 8: 7.5 gives 8. */
    for (int i = 0; i < 2; i++) {
        CHECK_INT(4, r[i].after[1].count);
        CHECK_INT(8, r[i].after[2].count);
        CHECK_BYTES("\1\1\0", r[i].after[1].flags, N_FLAGS);
    }
    close_replica(&r[0]), close_replica(&r[1]);
    free(config);
}

TEST(fed_40_buffers_and_frozen_tensors_are_averaged_and_only_parameters_have_momentum)
{
    check_run("parameters", false);
}

TEST(with_all_floating_buffers_and_frozen_tensors_have_momentum_too)
{
    check_run("all_floating", true);
}

TEST_MAIN(fed_40_buffers_and_frozen_tensors_are_averaged_and_only_parameters_have_momentum,
          with_all_floating_buffers_and_frozen_tensors_have_momentum_too)
