/* inner_test.c - the optimizers against their formulas in float64. That ten steps of a whole
 * model are PyTorch's is in model/gpt_test.c.
 *
 * The tensors are small and of odd sizes but for one of 10000, so that blocks of the norm and
 * parts of the update begin inside tensors. */
#include "check.h"
#include "nn/inner.h"
#include "nn/inner_rows.h"

#include <stdlib.h>

enum { N = 7 + 15 + 10000 + 3 };

static const diloco_tensor tensors[] = {
    {.name = "vector", .n_dims = 1, .shape = {7}},
    {.name = "matrix", .n_dims = 2, .shape = {5, 3}},
    {.name = "large", .n_dims = 2, .shape = {100, 100}},
    {.name = "last", .n_dims = 1, .shape = {3}},
};

static bool all_decay; /* parameters.optimizer.decay_of */

static bool decays(size_t i)
{
    return all_decay || (i >= 7 && i < 7 + 15 + 10000);
}

typedef struct rig {
    dl_config config;
    dl_backend *backend;
    dl_pool *pool;
    dl_inner *inner;
    float *parameters, *gradients; /* on the backend */
    float p[N], g[N];              /* on the host */
} rig;

static void set(rig *r, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&r->config, name, value, "test"));
}

static rig *open_rig(const char *optimizer, const char *backend, int threads)
{
    rig *r = calloc(1, sizeof *r);
    void *memory;
    dl_config_init(&r->config);
    set(r, "trainer.optimizer", optimizer);
    set(r, "trainer.gradient_clip", "0");
    set(r, "parameters.optimizer.weight_decay", "0.5");
    set(r, "parameters.optimizer.momentum", "0.9");
    CHECK_OK(dl_backend_create(&r->backend, backend));
    CHECK_OK(dl_pool_create(&r->pool, threads));
    CHECK_OK(dl_backend_alloc(r->backend, &memory, N * sizeof(float)));
    r->parameters = memory;
    CHECK_OK(dl_backend_alloc(r->backend, &memory, N * sizeof(float)));
    r->gradients = memory;
    return r;
}

static const bool hidden[4] = {false, true, true, false};

static dl_inner_model model_of(const rig *r)
{
    return (dl_inner_model){.tensors = tensors,
                            .hidden = hidden,
                            .n_tensors = 4,
                            .parameters = r->parameters,
                            .gradients = r->gradients,
                            .backend = r->backend,
                            .pool = r->pool};
}

static void create(rig *r)
{
    const dl_inner_model model = model_of(r);
    CHECK_OK(dl_inner_create(&r->inner, &r->config, &model));
    for (size_t i = 0; i < N; i++)
        r->p[i] = (float)sin((double)i);
    dl_backend_copy_in(r->backend, r->parameters, r->p, sizeof r->p);
}

static void close_rig(rig *r)
{
    dl_inner_destroy(r->inner);
    dl_backend_release(r->backend, r->parameters);
    dl_backend_release(r->backend, r->gradients);
    dl_pool_destroy(r->pool);
    dl_backend_destroy(r->backend);
    free(r);
}

static dl_inner_bytes planned(const rig *r, int threads)
{
    dl_inner_sizes sizes = {0};
    for (size_t i = 0; i < 4; i++) {
        bool matrix = tensors[i].n_dims == 2;
        dl_inner_sizes_add(&sizes, matrix ? tensors[i].shape[0] : 1,
                           tensors[i].shape[matrix ? 1 : 0], hidden[i]);
    }
    return dl_inner_plan(&r->config, &sizes, threads);
}

static double gradient_at(size_t i, int step)
{
    return 0.01 * cos((double)i * 0.7 + step);
}

static void take_step(rig *r, int step, double lr)
{
    for (size_t i = 0; i < N; i++)
        r->g[i] = (float)gradient_at(i, step);
    dl_backend_copy_in(r->backend, r->gradients, r->g, sizeof r->g);
    CHECK_OK(dl_inner_step(r->inner, lr));
    dl_backend_copy_out(r->backend, r->p, r->parameters, sizeof r->p);
}

static double adamw_after(size_t i, int steps, double lr, double clip)
{
    double p = sin((double)i), m = 0, v = 0;
    p = (double)(float)p;
    for (int t = 1; t <= steps; t++) {
        double g = gradient_at(i, t) * clip;
        p *= decays(i) ? 1 - lr * 0.5 : 1;
        m = 0.9 * m + 0.1 * g;
        v = 0.999 * v + 0.001 * g * g;
        p -= lr / (1 - pow(0.9, t)) * m / (sqrt(v) / sqrt(1 - pow(0.999, t)) + 1e-8);
    }
    return p;
}

TEST(adamw_follows_its_formula_and_decays_matrices_only)
{
    for (int threads = 1; threads <= 3; threads++) {
        rig *r = open_rig("adamw", "trap", threads);
        create(r);
        for (int t = 1; t <= 5; t++)
            take_step(r, t, 0.01);
        for (size_t i = 0; i < N; i++)
            if (fabs(gradient_at(i, 1)) > 1e-6)
                CHECK_NEAR(adamw_after(i, 5, 0.01, 1), r->p[i], 2e-6);
        CHECK_INT(5, dl_inner_steps(r->inner));
        CHECK_INT(2, dl_inner_n_vectors(r->inner));
        CHECK_STR("exp_avg", dl_inner_vector_name(r->inner, 0));
        CHECK_STR("exp_avg_sq", dl_inner_vector_name(r->inner, 1));
        CHECK_INT(8 * N, planned(r, threads).vectors);
        CHECK_INT(0, planned(r, threads).scratch);
        close_rig(r);
    }
}

static double qhadamw_after(size_t i, int steps, double lr, double b1, double w)
{
    double p = (double)(float)sin((double)i), m = 0, v = 0;
    for (int t = 1; t <= steps; t++) {
        double g = gradient_at(i, t);
        p *= decays(i) ? 1 - lr * 0.5 : 1;
        m = b1 * m + (1 - b1) * g;
        v = 0.999 * v + 0.001 * g * g;
        p -= lr * ((1 - w) * g + w * m / (1 - pow(b1, t))) /
             (sqrt(v) / sqrt(1 - pow(0.999, t)) + 1e-8);
    }
    return p;
}

TEST(qhadamw_follows_its_formula)
{
    rig *r = open_rig("qhadamw", "trap", 2);
    set(r, "parameters.optimizer.beta1", "0.99");
    set(r, "parameters.optimizer.momentum_weight", "0.75");
    create(r);
    for (int t = 1; t <= 5; t++)
        take_step(r, t, 0.01);
    for (size_t i = 0; i < N; i++)
        if (fabs(gradient_at(i, 1)) > 1e-6)
            CHECK_NEAR(qhadamw_after(i, 5, 0.01, 0.99, 0.75), r->p[i], 2e-6);
    CHECK_STR("exp_avg", dl_inner_vector_name(r->inner, 0));
    CHECK_INT(8 * N, planned(r, 2).vectors);
    close_rig(r);
}

TEST(qhadamw_of_weight_one_is_adamw)
{
    rig *r = open_rig("qhadamw", "trap", 1);
    set(r, "parameters.optimizer.momentum_weight", "1");
    create(r);
    for (int t = 1; t <= 5; t++)
        take_step(r, t, 0.01);
    for (size_t i = 0; i < N; i++)
        if (fabs(gradient_at(i, 1)) > 1e-6) CHECK_NEAR(adamw_after(i, 5, 0.01, 1), r->p[i], 2e-6);
    close_rig(r);
}

TEST(decay_of_all_takes_biases_and_norms_too)
{
    rig *r = open_rig("adamw", "trap", 2);
    set(r, "parameters.optimizer.decay_of", "all");
    create(r);
    all_decay = true;
    for (int t = 1; t <= 5; t++)
        take_step(r, t, 0.01);
    for (size_t i = 0; i < N; i++)
        if (fabs(gradient_at(i, 1)) > 1e-6) CHECK_NEAR(adamw_after(i, 5, 0.01, 1), r->p[i], 2e-6);
    all_decay = false;
    close_rig(r);
}

TEST(sgd_follows_its_formula_with_and_without_momentum)
{
    for (int momentum = 0; momentum < 2; momentum++) {
        rig *r = open_rig("sgd", "trap", 2);
        set(r, "parameters.optimizer.momentum", momentum ? "0.9" : "0");
        create(r);
        CHECK_INT(momentum, dl_inner_n_vectors(r->inner));
        CHECK_INT(4 * N * momentum, planned(r, 2).vectors);
        for (int t = 1; t <= 3; t++)
            take_step(r, t, 0.1);
        for (size_t i = 0; i < N; i++) {
            double p = (double)(float)sin((double)i), b = 0;
            for (int t = 1; t <= 3; t++) {
                b = (momentum ? 0.9 : 0) * b + gradient_at(i, t);
                p = p * (decays(i) ? 1 - 0.1 * 0.5 : 1) - 0.1 * b;
            }
            CHECK_NEAR(p, r->p[i], 1e-6);
        }
        close_rig(r);
    }
}

static double rmsprop_after(size_t i, int steps, double lr, double momentum, bool centered)
{
    double p = (double)(float)sin((double)i), v = 0, m = 0, b = 0;
    for (int t = 1; t <= steps; t++) {
        const double g = gradient_at(i, t);
        v = 0.9 * v + 0.1 * g * g;
        m = 0.9 * m + 0.1 * g;
        b = momentum * b + g / (sqrt(v - (centered ? m * m : 0)) + 1e-3);
        p = p * (decays(i) ? 1 - lr * 0.5 : 1) - lr * b;
    }
    return p;
}

static void check_rmsprop(const char *momentum, bool centered, size_t n_vectors)
{
    rig *r = open_rig("rmsprop", "trap", 2);
    set(r, "parameters.optimizer.momentum", momentum);
    set(r, "parameters.optimizer.alpha", "0.9");
    set(r, "parameters.optimizer.centered", centered ? "true" : "false");
    set(r, "parameters.optimizer.eps", "1e-3");
    create(r);
    CHECK_INT(n_vectors, dl_inner_n_vectors(r->inner));
    CHECK_INT(4 * N * n_vectors, planned(r, 2).vectors);
    CHECK_STR("square_avg", dl_inner_vector_name(r->inner, 0));
    for (int t = 1; t <= 5; t++)
        take_step(r, t, 0.01);
    for (size_t i = 0; i < N; i++)
        CHECK_NEAR(rmsprop_after(i, 5, 0.01, atof(momentum), centered), r->p[i], 2e-6);
    close_rig(r);
}

TEST(rmsprop_follows_its_formula_with_and_without_momentum_and_centering)
{
    check_rmsprop("0", false, 1);
    check_rmsprop("0.9", false, 2);
    check_rmsprop("0", true, 3);
    check_rmsprop("0.9", true, 3);
}

/* The variance of equal gradients is 0, and rounding may take it below. */
TEST(centered_rmsprop_stays_finite_where_the_gradient_never_changes)
{
    rig *r = open_rig("rmsprop", "cpu", 1);
    set(r, "parameters.optimizer.centered", "true");
    set(r, "parameters.optimizer.alpha", "0.5");
    create(r);
    for (int t = 0; t < 200; t++)
        take_step(r, 1, 1e-9);
    for (size_t i = 0; i < N; i++)
        CHECK(isfinite(r->p[i]));
    close_rig(r);
}

TEST(frozen_tensors_and_buffers_stay_as_they_are)
{
    rig *r = open_rig("adamw", "trap", 2);
    diloco_tensor some[4];
    memcpy(some, tensors, sizeof some);
    some[1].role = DILOCO_FROZEN;
    some[3].role = DILOCO_BUFFER;
    dl_inner_model model = model_of(r);
    model.tensors = some;
    CHECK_OK(dl_inner_create(&r->inner, &r->config, &model));
    for (size_t i = 0; i < N; i++) {
        const bool trains = i < 7 || (i >= 7 + 15 && i < 7 + 15 + 10000);
        r->p[i] = 1;
        r->g[i] = trains ? 0.5f : 0;
    }
    dl_backend_copy_in(r->backend, r->parameters, r->p, sizeof r->p);
    dl_backend_copy_in(r->backend, r->gradients, r->g, sizeof r->g);
    CHECK_OK(dl_inner_step(r->inner, 0.1));
    CHECK_OK(dl_backend_sync(r->backend));
    dl_backend_copy_out(r->backend, r->p, r->parameters, sizeof r->p);
    for (size_t i = 0; i < N; i++)
        CHECK((r->p[i] == 1) == (r->g[i] == 0));
    close_rig(r);
}

TEST(a_long_gradient_is_clipped_and_its_norm_is_the_one_before)
{
    rig *r = open_rig("adamw", "trap", 2);
    set(r, "trainer.gradient_clip", "0.25");
    create(r);
    double want = 0, norm;
    take_step(r, 1, 0.01);
    for (size_t i = 0; i < N; i++)
        want += (double)r->g[i] * (double)r->g[i];
    want = sqrt(want); /* about 0.7 */
    CHECK_OK(dl_inner_norm(r->inner, &norm));
    CHECK_NEAR(want, norm, 1e-12);
    float m[N];
    size_t n;
    dl_backend_copy_out(r->backend, m, dl_inner_vector(r->inner, 0, &n), sizeof m);
    CHECK_INT(N, n);
    for (size_t i = 0; i < N; i++)
        CHECK_NEAR(0.1 * (double)r->g[i] * 0.25 / (want + 1e-6), m[i], 1e-9);
    close_rig(r);
}

TEST(a_short_gradient_is_left_alone)
{
    rig *r = open_rig("sgd", "cpu", 1);
    set(r, "trainer.gradient_clip", "100");
    set(r, "parameters.optimizer.momentum", "0");
    set(r, "parameters.optimizer.weight_decay", "0");
    create(r);
    take_step(r, 1, 1);
    for (size_t i = 0; i < N; i++)
        CHECK_NEAR((double)(float)sin((double)i) - gradient_at(i, 1), r->p[i], 1e-7);
    close_rig(r);
}

static void check_bad(float bad, size_t at, const char *text)
{
    rig *r = open_rig("adamw", "trap", 2);
    double norm;
    float before[N];
    create(r);
    take_step(r, 1, 0.01);
    memcpy(before, r->p, sizeof before);
    r->g[at] = bad;
    dl_backend_copy_in(r->backend, r->gradients, r->g, sizeof r->g);
    CHECK_OK(dl_inner_step(r->inner, 0.01));
    /* The host reads late: by then the gradient may be another batch's. */
    r->g[at] = 0;
    dl_backend_copy_in(r->backend, r->gradients, r->g, sizeof r->g);
    CHECK_STATUS(DILOCO_ENUMERIC, dl_inner_norm(r->inner, &norm));
    CHECK_CONTAINS(text, diloco_error_text());
    CHECK(!isfinite(norm));
    dl_backend_copy_out(r->backend, r->p, r->parameters, sizeof r->p);
    CHECK_BYTES(before, r->p, sizeof before);
    CHECK_INT(1, dl_inner_steps(r->inner));
    take_step(r, 2, 0.01);
    CHECK_OK(dl_inner_norm(r->inner, &norm));
    CHECK_NEAR(adamw_after(100, 2, 0.01, 1), r->p[100], 1e-6);
    close_rig(r);
}

TEST(a_gradient_that_is_not_finite_changes_nothing_and_is_named)
{
    check_bad(NAN, 0, "vector[0]");
    check_bad(-INFINITY, 7 + 14, "matrix[14]");
    check_bad(INFINITY, 7 + 15 + 5000, "large[5000]");
    check_bad(NAN, N - 1, "last[2]");
}

/* Every optimizer there is. */
#define EACH_OPTIMIZER(name)                                                                       \
    const char *name;                                                                              \
    for (size_t at = 0; (name = dl_inner_name_at(at)) != NULL; at++)

TEST(any_number_of_threads_gives_the_same_bits)
{
    static float one[N];
    EACH_OPTIMIZER(name)
    {
        for (int threads = 1; threads <= 4; threads++) {
            rig *r = open_rig(name, "cpu", threads);
            set(r, "trainer.gradient_clip", "0.1");
            create(r);
            for (int t = 1; t <= 3; t++)
                take_step(r, t, 0.01);
            if (threads == 1) memcpy(one, r->p, sizeof one);
            CHECK_BYTES(one, r->p, sizeof one);
            close_rig(r);
        }
    }
}

TEST(a_saved_and_loaded_state_continues_to_the_same_bits)
{
    static float vector[N];
    EACH_OPTIMIZER(name)
    {
        rig *r = open_rig(name, "trap", 1), *s = open_rig(name, "trap", 1);
        create(r), create(s);
        for (int t = 1; t <= 3; t++)
            take_step(r, t, 0.01);
        dl_backend_copy_in(s->backend, s->parameters, r->p, sizeof r->p);
        for (size_t i = 0; i < dl_inner_n_vectors(r->inner); i++) {
            size_t n, m;
            const float *from = dl_inner_vector(r->inner, i, &n);
            float *to = dl_inner_vector(s->inner, i, &m);
            CHECK_INT(n, m);
            dl_backend_copy_out(r->backend, vector, from, n * sizeof *vector);
            dl_backend_copy_in(s->backend, to, vector, n * sizeof *vector);
        }
        dl_inner_set_steps(s->inner, dl_inner_steps(r->inner));
        take_step(r, 4, 0.01), take_step(s, 4, 0.01);
        CHECK_BYTES(r->p, s->p, sizeof r->p);
        close_rig(r), close_rig(s);
    }
}

TEST(an_unknown_optimizer_names_the_known_ones)
{
    rig *r = open_rig("lion", "cpu", 1);
    const dl_inner_model model = model_of(r);
    CHECK_STATUS(DILOCO_EINVAL, dl_inner_create(&r->inner, &r->config, &model));
    CHECK(r->inner == NULL);
    for (size_t i = 0; dl_inner_name_at(i); i++)
        CHECK_CONTAINS(dl_inner_name_at(i), diloco_error_text());
    CHECK_INT(0, planned(r, 1).vectors);
    close_rig(r);
}

/* ---- guarantees for a device ---------------------------------------------------------- */

static dl_backend_ops watched;
static const dl_backend_ops *plain;
static int n_reads, n_waits;

static void watched_copy_out(dl_backend *self, void *host, const void *from, size_t n)
{
    n_reads++;
    plain->copy_out(self, host, from, n);
}

static diloco_status watched_sync(dl_backend *self)
{
    n_waits++;
    return plain->sync(self);
}

/* The trap backend also kills a host that reads between two operations of a step. */
TEST(a_step_is_queued_without_a_read_or_a_wait_of_the_host)
{
    for (size_t i = 0; dl_inner_name_at(i); i++) {
        rig *r = open_rig(dl_inner_name_at(i), "trap", 2);
        create(r);
        take_step(r, 1, 0.01);
        plain = r->backend->ops;
        watched = *plain;
        watched.copy_out = watched_copy_out;
        watched.sync = watched_sync;
        r->backend->ops = &watched;
        n_reads = n_waits = 0;
        CHECK_OK(dl_inner_step(r->inner, 0.01));
        CHECK_INT(0, n_reads);
        CHECK_INT(0, n_waits);
        r->backend->ops = plain;
        CHECK_INT(2, dl_inner_steps(r->inner));
        close_rig(r);
    }
}

TEST(a_device_without_an_update_refuses_the_optimizer_by_name)
{
    const dl_backend_ops ops = {.name = "other", .device = DL_DEVICE_CUDA};
    const dl_backend other = {.ops = &ops};
    dl_rule no_update = dl_rule_adamw, no_matrix = dl_rule_muon;
    CHECK_OK(dl_rule_check(&no_update, "adamw", &other));
    CHECK_OK(dl_rule_check(&no_matrix, "muon", &other));
    no_update.update[DL_DEVICE_CUDA] = NULL;
    no_matrix.matrix[DL_DEVICE_CUDA] = NULL;
    CHECK_STATUS(DILOCO_EREFUSED, dl_rule_check(&no_update, "adamw", &other));
    CHECK_CONTAINS("the other backend has no optimizer adamw", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, dl_rule_check(&no_matrix, "muon", &other));
    CHECK_CONTAINS("the other backend has no optimizer muon", diloco_error_text());
}

TEST_MAIN(frozen_tensors_and_buffers_stay_as_they_are,
          adamw_follows_its_formula_and_decays_matrices_only, qhadamw_follows_its_formula,
          qhadamw_of_weight_one_is_adamw, decay_of_all_takes_biases_and_norms_too,
          sgd_follows_its_formula_with_and_without_momentum,
          rmsprop_follows_its_formula_with_and_without_momentum_and_centering,
          centered_rmsprop_stays_finite_where_the_gradient_never_changes,
          a_long_gradient_is_clipped_and_its_norm_is_the_one_before, a_short_gradient_is_left_alone,
          a_gradient_that_is_not_finite_changes_nothing_and_is_named,
          any_number_of_threads_gives_the_same_bits,
          a_saved_and_loaded_state_continues_to_the_same_bits,
          an_unknown_optimizer_names_the_known_ones,
          a_step_is_queued_without_a_read_or_a_wait_of_the_host,
          a_device_without_an_update_refuses_the_optimizer_by_name)
