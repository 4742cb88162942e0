/* gpt_test.c - the GPT against numbers from PyTorch (tests/goldens/gpt_torch.py), on both
 * backends, with and without a second thread.
 *
 * The reference is float64. Ours is float32 with sums of up to a few hundred terms, so a loss
 * is within 1e-5 of it and a gradient's norm within 1e-4 of its size. Ten steps of an optimizer do
 * not make that worse than tenfold at these learning rates. */
#include "check.h"
#include "goldens/gpt_torch.h"
#include "model/model.h"
#include "nn/inner.h"

#include <stdlib.h>

typedef struct rig {
    dl_config config;
    dl_backend *backend;
    dl_pool *pool;
    dl_model *model;
    float *host; /* f32[n] */
    size_t n;
} rig;

static void set(rig *r, const char *name, const char *text)
{
    CHECK_OK(dl_config_set(&r->config, name, text, "test"));
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

static void golden_options(rig *r, const char *tied, const char *optimizer)
{
    dl_config_init(&r->config);
    set(r, "parameters.model.layers", TEXT(GOLDEN_LAYERS));
    set(r, "parameters.model.channels", TEXT(GOLDEN_CHANNELS));
    set(r, "parameters.model.heads", TEXT(GOLDEN_HEADS));
    set(r, "parameters.model.kv_heads", TEXT(GOLDEN_KV_HEADS));
    set(r, "parameters.model.ffn", TEXT(GOLDEN_FFN));
    set(r, "parameters.model.context", TEXT(GOLDEN_T));
    set(r, "parameters.model.tied", tied);
    set(r, "trainer.optimizer", optimizer);
    set(r, "trainer.gradient_clip", "1");
    set(r, "parameters.optimizer.weight_decay", strcmp(optimizer, "sgd") ? "0.1" : "0");
    set(r, "parameters.optimizer.momentum", "0.9");
    set(r, "parameters.optimizer.eps", "1e-3");
}

static void open_rig(rig *r, const char *backend, int threads, size_t max_rows)
{
    CHECK_OK(dl_backend_create(&r->backend, backend));
    CHECK_OK(dl_pool_create(&r->pool, threads));
    const dl_sample sample = dl_sample_tokens(GOLDEN_VOCAB, GOLDEN_T);
    CHECK_OK(dl_model_create(&r->model, &r->config, &sample, max_rows, r->backend, r->pool));
    r->n = dl_model_n_parameters(r->model);
    r->host = malloc(r->n * sizeof *r->host);
}

static void close_rig(rig *r)
{
    dl_model_destroy(r->model);
    dl_pool_destroy(r->pool);
    dl_backend_destroy(r->backend);
    free(r->host);
}

static void golden_parameters(rig *r)
{
    size_t n_tensors, at = 0;
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    for (size_t i = 0; i < n_tensors; i++) {
        bool vector = tensors[i].n_dims == 1;
        size_t count = tensors[i].shape[0] * (vector ? 1 : tensors[i].shape[1]);
        for (size_t k = 0; k < count; k++) {
            double wave = sin((double)k * 0.7 + (double)i * 1.3);
            r->host[at++] = (float)(vector ? 1 + 0.1 * wave : 0.2 * wave);
        }
    }
    CHECK_INT(r->n, at);
    dl_backend_copy_in(r->backend, dl_model_parameters(r->model), r->host, r->n * sizeof(float));
}

enum { TOKENS = GOLDEN_ROWS * GOLDEN_T };

static void golden_tokens(int32_t *inputs, int32_t *targets, int step)
{
    for (int k = 0; k < TOKENS; k++) {
        inputs[k] = (k * k * 7 + k * 3 + step * 5) % GOLDEN_VOCAB;
        targets[k] = k % 7 == 6 ? -1 : (inputs[k] * 3 + k + 1) % GOLDEN_VOCAB;
    }
}

static double take_mean_loss(rig *r)
{
    dl_model_loss loss;
    CHECK_OK(dl_model_take_loss(r->model, &loss));
    return loss.sum / (double)loss.n_targets;
}

static void check_first_gradients(rig *r, const double *norms, const double *elements)
{
    size_t n_tensors, at = 0;
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    dl_backend_copy_out(r->backend, r->host, dl_model_gradients(r->model), r->n * sizeof(float));
    for (size_t i = 0; i < n_tensors; i++) {
        size_t count = tensors[i].shape[0] * (tensors[i].n_dims == 1 ? 1 : tensors[i].shape[1]);
        double sum = 0;
        for (size_t k = 0; k < count; k++)
            sum += (double)r->host[at + k] * r->host[at + k];
        CHECK_NEAR(norms[i], sqrt(sum), 1e-5 * norms[i] + 1e-7);
        CHECK_NEAR(elements[i], r->host[at + count * 2 / 3], 1e-5 * norms[i] + 1e-7);
        at += count;
    }
}

typedef struct golden {
    const char *tied, *optimizer, *qk_norm, *z_loss;
    double lr;
    const double *losses, *norms, *tensor_norms, *elements;
} golden;

static void check_golden(const golden *g, const char *backend, int threads)
{
    rig r = {0};
    int32_t inputs[TOKENS], targets[TOKENS];
    dl_inner *inner;
    size_t n_tensors;
    golden_options(&r, g->tied, g->optimizer);
    set(&r, "parameters.model.qk_norm", g->qk_norm);
    set(&r, "parameters.model.z_loss", g->z_loss);
    open_rig(&r, backend, threads, GOLDEN_ROWS + 2); /* rows < max_rows */
    golden_parameters(&r);
    const diloco_tensor *tensors = dl_model_tensors(r.model, &n_tensors);
    const dl_inner_model model = {.tensors = tensors,
                                  .hidden = dl_model_hidden(r.model),
                                  .n_tensors = n_tensors,
                                  .parameters = dl_model_parameters(r.model),
                                  .gradients = dl_model_gradients(r.model),
                                  .backend = r.backend,
                                  .pool = r.pool};
    CHECK_OK(dl_inner_create(&inner, &r.config, &model));
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        double norm;
        golden_tokens(inputs, targets, step);
        CHECK_OK(dl_model_train(r.model, inputs, targets, GOLDEN_ROWS, 1, false));
        if (step == 0) check_first_gradients(&r, g->tensor_norms, g->elements);
        CHECK_NEAR(g->losses[step], take_mean_loss(&r), step ? 1e-4 : 1e-5);
        CHECK_OK(dl_inner_step(inner, g->lr));
        CHECK_OK(dl_inner_norm(inner, &norm));
        CHECK_NEAR(g->norms[step], norm, g->norms[step] * (step ? 1e-3 : 1e-5));
    }
    dl_inner_destroy(inner);
    close_rig(&r);
}

#define GOLDEN(name, tied, optimizer, lr, qk_norm, z_loss)                                         \
    {                                                                                              \
        tied, optimizer, qk_norm, z_loss, lr, name##_losses, name##_norms, name##_tensor_norms,    \
            name##_elements                                                                        \
    }
static const golden goldens[] = {GOLDEN(tied_adamw, "true", "adamw", 2e-3, "false", "0"),
                                 GOLDEN(untied_adamw, "false", "adamw", 2e-3, "false", "0"),
                                 GOLDEN(untied_muon, "false", "muon", 2e-3, "false", "0"),
                                 GOLDEN(qk_norm_z_loss, "true", "adamw", 5e-4, "true", "0.1"),
                                 GOLDEN(tied_sgd, "true", "sgd", 0.02, "false", "0")};
enum { N_GOLDENS = sizeof goldens / sizeof goldens[0] };

TEST(ten_steps_are_pytorchs_on_the_cpu)
{
    for (int i = 0; i < N_GOLDENS; i++)
        check_golden(&goldens[i], "cpu", 1);
}

TEST(ten_steps_are_pytorchs_with_two_threads)
{
    for (int i = 0; i < N_GOLDENS; i++)
        check_golden(&goldens[i], "cpu", 2);
}

TEST(ten_steps_are_pytorchs_where_the_host_cannot_touch_backend_memory)
{
    for (int i = 0; i < N_GOLDENS; i++)
        check_golden(&goldens[i], "trap", 2);
}

TEST_MAIN(ten_steps_are_pytorchs_on_the_cpu, ten_steps_are_pytorchs_with_two_threads,
          ten_steps_are_pytorchs_where_the_host_cannot_touch_backend_memory)
