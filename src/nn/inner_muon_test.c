/* inner_muon_test.c - Muon against its definition in float64, on matrices of every shape. That it
 * is torch.optim.Muon inside a whole model is in model/gpt_test.c.
 *
 * Three steps, each with its own gradient. The float64 reference takes the same iterations, which
 * enlarge small singular values about 3.4 times each. So rounding of 1e-7 may grow to 1e-4 of an
 * update; with lr .01 that is the tolerance of 2e-5. */
#include "check.h"
#include "muon_definition.h"
#include "nn/inner.h"

#include <stdlib.h>

enum { STEPS = 3 };
#define LR    0.01
#define DECAY 0.5

/* ---- the definition */

static double gradient_at(size_t i, int step)
{
    return (double)(float)(0.01 * cos((double)i * 0.7 + step) + 0.003 * sin((double)(i * i)));
}

static void reference(double *p, size_t rows, size_t columns, double mu, bool nesterov, int steps)
{
    size_t n = rows * columns;
    double *g = malloc(n * sizeof *g);
    const muon_matrix x = {rows, columns, p, calloc(n, sizeof(double)), mu, nesterov, steps};
    for (int step = 1; step <= STEPS; step++) {
        for (size_t i = 0; i < n; i++)
            g[i] = gradient_at(i, step);
        muon_step(&x, g, LR, DECAY);
    }
    free(x.m), free(g);
}

/* ---- the optimizer on one matrix, a vector and an end of the model */

typedef struct rig {
    dl_config config;
    dl_backend *backend;
    dl_pool *pool;
    dl_inner *inner;
    diloco_tensor tensors[3];
    size_t n, n_matrix; /* elements; those of the matrix, which comes first */
    float *parameters, *gradients;
    float *p; /* on the host */
} rig;

static const bool hidden[3] = {true, false, false};
enum { N_VECTOR = 5, END_ROWS = 4, END_COLUMNS = 3, N_END = END_ROWS * END_COLUMNS };

static void set(rig *r, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&r->config, name, value, "test"));
}

static void open_rig(rig *r, size_t rows, size_t columns)
{
    void *memory;
    *r = (rig){.tensors = {{.name = "matrix", .n_dims = 2, .shape = {rows, columns}},
                           {.name = "vector", .n_dims = 1, .shape = {N_VECTOR}},
                           {.name = "end", .n_dims = 2, .shape = {END_ROWS, END_COLUMNS}}},
               .n_matrix = rows * columns};
    r->n = r->n_matrix + N_VECTOR + N_END;
    dl_config_init(&r->config);
    set(r, "trainer.optimizer", "muon");
    set(r, "trainer.gradient_clip", "0");
    set(r, "parameters.optimizer.weight_decay", "0.5");
    CHECK_OK(dl_backend_create(&r->backend, "trap"));
    CHECK_OK(dl_backend_alloc(r->backend, &memory, r->n * sizeof(float)));
    r->parameters = memory;
    CHECK_OK(dl_backend_alloc(r->backend, &memory, r->n * sizeof(float)));
    r->gradients = memory;
    r->p = malloc(r->n * sizeof *r->p);
}

static void train(rig *r, int threads, double lr)
{
    CHECK_OK(dl_pool_create(&r->pool, threads));
    const dl_inner_model model = {.tensors = r->tensors,
                                  .hidden = hidden,
                                  .n_tensors = 3,
                                  .parameters = r->parameters,
                                  .gradients = r->gradients,
                                  .backend = r->backend,
                                  .pool = r->pool};
    CHECK_OK(dl_inner_create(&r->inner, &r->config, &model));
    for (size_t i = 0; i < r->n; i++)
        r->p[i] = (float)sin((double)i);
    dl_backend_copy_in(r->backend, r->parameters, r->p, r->n * sizeof *r->p);
    for (int step = 1; step <= STEPS; step++) {
        for (size_t i = 0; i < r->n; i++)
            r->p[i] = (float)gradient_at(i, step);
        dl_backend_copy_in(r->backend, r->gradients, r->p, r->n * sizeof *r->p);
        CHECK_OK(dl_inner_step(r->inner, lr));
    }
    CHECK_OK(dl_backend_sync(r->backend));
    dl_backend_copy_out(r->backend, r->p, r->parameters, r->n * sizeof *r->p);
}

static void close_rig(rig *r)
{
    dl_inner_destroy(r->inner);
    dl_backend_release(r->backend, r->parameters);
    dl_backend_release(r->backend, r->gradients);
    dl_pool_destroy(r->pool);
    dl_backend_destroy(r->backend);
    free(r->p);
}

static void check_matrix(const rig *r, double mu, bool nesterov, int steps)
{
    double *want = malloc(r->n_matrix * sizeof *want);
    for (size_t i = 0; i < r->n_matrix; i++)
        want[i] = (double)(float)sin((double)i);
    reference(want, r->tensors[0].shape[0], r->tensors[0].shape[1], mu, nesterov, steps);
    for (size_t i = 0; i < r->n_matrix; i++)
        CHECK_NEAR(want[i], r->p[i], 2e-5);
    free(want);
}

/* Both sides straddle a tile (12, 16, 32), one matrix a block of the norm (4096). */
static const size_t shapes[][2] = {{1, 1},   {1, 9},   {9, 1},   {13, 13}, {5, 40},  {40, 5},
                                   {33, 17}, {17, 33}, {64, 70}, {70, 64}, {12, 400}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

TEST(a_matrix_of_any_shape_follows_the_definition)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            rig r;
            open_rig(&r, shapes[i][0], shapes[i][1]);
            train(&r, threads, LR);
            check_matrix(&r, 0.95, true, 5);
            close_rig(&r);
        }
}

TEST(its_options_are_momentum_nesterov_and_steps)
{
    rig r;
    open_rig(&r, 9, 20);
    set(&r, "parameters.optimizer.muon_momentum", "0.9");
    set(&r, "parameters.optimizer.muon_nesterov", "false");
    set(&r, "parameters.optimizer.muon_steps", "3");
    train(&r, 2, LR);
    check_matrix(&r, 0.9, false, 3);
    close_rig(&r);
}

TEST(a_learning_rate_of_its_own_goes_by_the_same_schedule)
{
    rig r;
    open_rig(&r, 9, 20);
    set(&r, "parameters.optimizer.lr", "0.2");
    set(&r, "parameters.optimizer.muon_lr", "0.1");
    train(&r, 1, 2 * LR); /* a tenth of lr, so a tenth of muon_lr */
    check_matrix(&r, 0.95, true, 5);
    close_rig(&r);
}

TEST(vectors_and_ends_are_adamws)
{
    rig r, adamw;
    open_rig(&r, 13, 7), open_rig(&adamw, 13, 7);
    set(&adamw, "trainer.optimizer", "adamw");
    train(&r, 2, LR), train(&adamw, 2, LR);
    CHECK_BYTES(adamw.p + 13 * 7, r.p + 13 * 7, (N_VECTOR + N_END) * sizeof(float));
    CHECK(memcmp(adamw.p, r.p, 13 * 7 * sizeof(float)) != 0);
    close_rig(&r), close_rig(&adamw);
}

TEST(the_state_is_a_momentum_for_matrices_and_two_moments_for_the_rest)
{
    static const char *const names[] = {"momentum_buffer", "exp_avg", "exp_avg_sq"};
    const size_t lengths[] = {13 * 7, N_VECTOR + N_END, N_VECTOR + N_END};
    rig r;
    dl_inner_sizes sizes = {0};
    open_rig(&r, 13, 7);
    train(&r, 1, LR);
    CHECK_INT(3, dl_inner_n_vectors(r.inner));
    for (size_t i = 0; i < 3; i++) {
        size_t n;
        CHECK_STR(names[i], dl_inner_vector_name(r.inner, i));
        CHECK(dl_inner_vector(r.inner, i, &n) != NULL);
        CHECK_INT(lengths[i], n);
    }
    dl_inner_sizes_add(&sizes, 13, 7, true);
    dl_inner_sizes_add(&sizes, 1, N_VECTOR, false);
    dl_inner_sizes_add(&sizes, END_ROWS, END_COLUMNS, false);
    CHECK_INT(4 * (13 * 7 + 2 * (N_VECTOR + N_END)), dl_inner_plan(&r.config, &sizes, 1).vectors);
    CHECK(dl_inner_plan(&r.config, &sizes, 1).scratch >= 2 * 4 * (13 * 7 + 7 * 7));
    close_rig(&r);
}

TEST(no_gradient_is_decay_alone)
{
    rig r;
    open_rig(&r, 6, 8);
    CHECK_OK(dl_pool_create(&r.pool, 1));
    const dl_inner_model model = {.tensors = r.tensors,
                                  .hidden = hidden,
                                  .n_tensors = 3,
                                  .parameters = r.parameters,
                                  .gradients = r.gradients,
                                  .backend = r.backend,
                                  .pool = r.pool};
    CHECK_OK(dl_inner_create(&r.inner, &r.config, &model));
    for (size_t i = 0; i < r.n; i++)
        r.p[i] = 1;
    dl_backend_copy_in(r.backend, r.parameters, r.p, r.n * sizeof *r.p);
    dl_backend_zero(r.backend, r.gradients, r.n * sizeof *r.p);
    CHECK_OK(dl_inner_step(r.inner, LR));
    CHECK_OK(dl_backend_sync(r.backend));
    dl_backend_copy_out(r.backend, r.p, r.parameters, r.n * sizeof *r.p);
    for (size_t i = 0; i < r.n_matrix; i++)
        CHECK_NEAR(1 - LR * DECAY, r.p[i], 1e-7);
    close_rig(&r);
}

TEST_MAIN(a_matrix_of_any_shape_follows_the_definition, its_options_are_momentum_nesterov_and_steps,
          a_learning_rate_of_its_own_goes_by_the_same_schedule, vectors_and_ends_are_adamws,
          the_state_is_a_momentum_for_matrices_and_two_moments_for_the_rest,
          no_gradient_is_decay_alone)
