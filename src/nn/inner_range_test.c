/* inner_range_test.c - an optimizer that is divided into ranges: the parts have the bits of the
 * whole, and no matrix that Muon takes whole is divided. */
#include "check.h"
#include "nn/inner.h"

#include <stdlib.h>

enum { N = 9 * 16 + 16 + 32 * 16 + 16 * 20 + 7, MOST = 4, STEPS = 3 };

static const diloco_tensor tensors[] = {
    {.name = "table", .n_dims = 2, .shape = {9, 16}},
    {.name = "norm", .n_dims = 1, .shape = {16}},
    {.name = "up", .n_dims = 2, .shape = {32, 16}},
    {.name = "down", .n_dims = 2, .shape = {16, 20}, .role = DILOCO_FROZEN},
    {.name = "last", .n_dims = 1, .shape = {7}},
};
static const bool hidden[5] = {false, false, true, true, false};

/* A device's optimizer. The whole one has range {0, N}. */
typedef struct part {
    float p[N], g[N];
    dl_inner *inner;
} part;

typedef struct rig {
    dl_config config;
    dl_backend *backend;
    dl_pool *pool;
    size_t n, bounds[MOST + 1];
    part whole, parts[MOST];
} rig;

static dl_inner_model model_of(const rig *r, part *p, const size_t *range)
{
    return (dl_inner_model){.tensors = tensors,
                            .hidden = hidden,
                            .n_tensors = 5,
                            .parameters = p->p,
                            .gradients = p->g,
                            .backend = r->backend,
                            .pool = r->pool,
                            .range = range};
}

static rig *open_rig(const char *optimizer, size_t n)
{
    rig *r = calloc(1, sizeof *r);
    CHECK(r != NULL);
    dl_config_init(&r->config);
    CHECK_OK(dl_config_set(&r->config, "trainer.optimizer", optimizer, "test"));
    CHECK_OK(dl_config_set(&r->config, "parameters.optimizer.momentum", "0.9", "test"));
    CHECK_OK(dl_backend_create(&r->backend, "cpu"));
    CHECK_OK(dl_pool_create(&r->pool, 2));
    r->n = n;
    const dl_inner_model whole = model_of(r, &r->whole, NULL);
    dl_inner_bounds(r->bounds, n, &r->config, &whole);
    CHECK_OK(dl_inner_create(&r->whole.inner, &r->config, &whole));
    for (size_t i = 0; i < n; i++) {
        const dl_inner_model model = model_of(r, &r->parts[i], &r->bounds[i]);
        CHECK_OK(dl_inner_create(&r->parts[i].inner, &r->config, &model));
    }
    for (size_t k = 0; k < N; k++)
        r->whole.p[k] = (float)(k % 13) / 16;
    return r;
}

static void close_rig(rig *r)
{
    dl_inner_destroy(r->whole.inner);
    for (size_t i = 0; i < r->n; i++)
        dl_inner_destroy(r->parts[i].inner);
    dl_pool_destroy(r->pool);
    dl_backend_destroy(r->backend);
    free(r);
}

/* Device 0 has the whole gradient, and the others those of their elements. */
static void give_gradient(rig *r, size_t step)
{
    for (size_t k = 0; k < N; k++)
        r->whole.g[k] = (float)((k * 31 + step * 17) % 23) / 8 - 1;
    memset(r->whole.g + N - 7 - 16 * 20, 0, 16 * 20 * sizeof(float)); /* frozen */
    for (size_t i = 0; i < r->n; i++) {
        const size_t begin = r->bounds[i], n = r->bounds[i + 1] - begin;
        memset(r->parts[i].g, 0xff, sizeof r->parts[i].g);
        memcpy(r->parts[i].g + begin, r->whole.g + begin, n * sizeof(float));
        memcpy(r->parts[i].p, step ? r->parts[0].p : r->whole.p, sizeof r->whole.p);
    }
    memcpy(r->parts[0].g, r->whole.g, sizeof r->whole.g);
}

static void take_step(rig *r, size_t step)
{
    size_t bytes;
    give_gradient(r, step);
    CHECK_OK(dl_inner_step(r->whole.inner, 0.01));
    dl_inner_judge(r->parts[0].inner);
    const void *verdict = dl_inner_verdict(r->parts[0].inner, &bytes);
    for (size_t i = 0; i < r->n; i++) {
        const size_t begin = r->bounds[i], n = r->bounds[i + 1] - begin;
        if (i) memcpy(dl_inner_verdict(r->parts[i].inner, &bytes), verdict, bytes);
        dl_inner_update(r->parts[i].inner, 0.01);
        memcpy(r->parts[0].p + begin, r->parts[i].p + begin, n * sizeof(float));
    }
}

/* The parts of each vector, one after the other, are the whole one. */
static void check_vectors(rig *r)
{
    for (size_t v = 0; v < dl_inner_n_vectors(r->whole.inner); v++) {
        size_t n, at = 0, count;
        const float *whole = dl_inner_vector(r->whole.inner, v, &n);
        for (size_t i = 0; i < r->n; i++, at += count) {
            const float *own = dl_inner_vector(r->parts[i].inner, v, &count);
            CHECK(count <= n - at);
            CHECK_BYTES(whole + at, own, count * sizeof(float));
        }
        CHECK_INT(n, at);
    }
}

TEST(parts_of_each_optimizer_have_the_bits_of_the_whole)
{
    for (size_t k = 0; dl_inner_name_at(k); k++)
        for (size_t n = 1; n <= MOST; n++) {
            rig *r = open_rig(dl_inner_name_at(k), n);
            double norms[2];
            for (size_t step = 0; step < STEPS; step++) {
                take_step(r, step);
                CHECK_BYTES(r->whole.p, r->parts[0].p, sizeof r->whole.p);
                CHECK_OK(dl_inner_norm(r->whole.inner, &norms[0]));
                CHECK_OK(dl_inner_norm(r->parts[0].inner, &norms[1]));
                CHECK(norms[0] == norms[1]);
            }
            check_vectors(r);
            CHECK_INT(STEPS, dl_inner_steps(r->parts[n - 1].inner));
            close_rig(r);
        }
}

TEST(bounds_divide_all_elements_but_no_matrix_that_muon_takes_whole)
{
    static const size_t ends[] = {0, 144, 160, 672, 992, N};
    rig *r = open_rig("adamw", MOST);
    for (size_t i = 0; i < MOST; i++)
        CHECK(r->bounds[i + 1] - r->bounds[i] >= N / MOST);
    close_rig(r);
    for (size_t n = 1; n <= MOST; n++) {
        r = open_rig("muon", n);
        CHECK_INT(0, r->bounds[0]);
        CHECK_INT(N, r->bounds[n]);
        for (size_t i = 0; i < n; i++)
            CHECK(r->bounds[i] <= r->bounds[i + 1]);
        for (size_t i = 0; i <= n; i++) /* up is [160, 672), down ends at 992 */
            for (size_t k = 2; k < 4; k++)
                CHECK(r->bounds[i] <= ends[k] || r->bounds[i] >= ends[k + 1]);
        close_rig(r);
    }
}

TEST(gradient_that_is_not_finite_changes_no_part)
{
    rig *r = open_rig("adamw", 2);
    double norm;
    give_gradient(r, 0);
    r->parts[0].g[N - 1] = INFINITY; /* of the other part */
    size_t bytes;
    dl_inner_judge(r->parts[0].inner);
    const void *verdict = dl_inner_verdict(r->parts[0].inner, &bytes);
    memcpy(dl_inner_verdict(r->parts[1].inner, &bytes), verdict, bytes);
    for (size_t i = 0; i < 2; i++) {
        dl_inner_update(r->parts[i].inner, 0.01);
        CHECK_BYTES(r->whole.p, r->parts[i].p, sizeof r->whole.p);
    }
    CHECK_STATUS(DILOCO_ENUMERIC, dl_inner_norm(r->parts[0].inner, &norm));
    CHECK_CONTAINS("last[6]", diloco_error_text());
    close_rig(r);
}

TEST_MAIN(parts_of_each_optimizer_have_the_bits_of_the_whole,
          bounds_divide_all_elements_but_no_matrix_that_muon_takes_whole,
          gradient_that_is_not_finite_changes_no_part)
