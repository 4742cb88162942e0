/* model_test.c - properties that train/ may rely on: batches shorter than planned, gradients that
 * add up, repeatable bits, no allocation, logits, and every option that does not fit. */
#include "check.h"
#include "count_alloc.h"
#include "model/gpt.h"
#include "model/model.h"
#include "sanitized.h"
#include "tensor/isa.h"

#include <dirent.h>

enum { VOCAB = 50, T = 20, ROWS = 4 };
static const dl_sample tokens = {.kind = DL_TOKENS, .length = T, .classes = VOCAB};

typedef struct rig {
    dl_config config;
    dl_backend *backend;
    dl_pool *pool;
    dl_model *model;
    float *host;
    size_t n;
    int32_t inputs[ROWS * T], targets[ROWS * T];
} rig;

static void set(rig *r, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&r->config, name, value, "test"));
}

static void small_options(rig *r)
{
    dl_config_init(&r->config);
    set(r, "parameters.model.layers", "2");
    set(r, "parameters.model.heads", "4");
    set(r, "parameters.model.kv_heads", "2");
    set(r, "parameters.model.channels", "24");
    set(r, "parameters.model.context", "20");
    for (int i = 0; i < ROWS * T; i++) {
        r->inputs[i] = (i * i + 3 * i) % VOCAB;
        r->targets[i] = i % 9 == 4 ? -1 : (i * 5 + 1) % VOCAB;
    }
}

static void open_rig(rig *r, const char *backend, int threads, size_t max_rows)
{
    CHECK_OK(dl_backend_create(&r->backend, backend));
    CHECK_OK(dl_pool_create(&r->pool, threads));
    CHECK_OK(dl_model_create(&r->model, &r->config, &tokens, max_rows, r->backend, r->pool));
    r->n = dl_model_n_parameters(r->model);
    r->host = malloc(r->n * sizeof(float));
    dl_model_initial(r->model, r->host, 1);
    for (size_t i = 0; i < r->n; i++) /* livelier than at the start of training */
        r->host[i] *= 5;
    dl_backend_copy_in(r->backend, dl_model_parameters(r->model), r->host, r->n * sizeof(float));
}

static void close_rig(rig *r)
{
    dl_model_destroy(r->model);
    dl_pool_destroy(r->pool);
    dl_backend_destroy(r->backend);
    free(r->host);
}

static double take(rig *r, uint64_t *n)
{
    dl_model_loss loss;
    CHECK_OK(dl_model_take_loss(r->model, &loss));
    *n = loss.n_targets;
    return loss.sum;
}

static float *gradients(rig *r)
{
    float *g = malloc(r->n * sizeof *g);
    dl_backend_copy_out(r->backend, g, dl_model_gradients(r->model), r->n * sizeof *g);
    return g;
}

static void check_close(const float *want, const float *got, size_t n)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(want[i]));
    CHECK(largest > 0);
    for (size_t i = 0; i < n; i++)
        CHECK_NEAR(want[i], got[i], 1e-5 * (double)largest);
}

TEST(two_halves_accumulated_are_the_whole_batch)
{
    rig r;
    uint64_t n;
    small_options(&r);
    for (int i = 0; i < ROWS * T; i++) /* as many counted targets in each half */
        r.targets[i] = i % 10 == 4 ? -1 : (i * 5 + 1) % VOCAB;
    open_rig(&r, "trap", 2, ROWS);
    CHECK_OK(dl_model_train(r.model, r.inputs, r.targets, ROWS, 1, false));
    double whole = take(&r, &n);
    float *g = gradients(&r);
    CHECK_INT(ROWS * T * 9 / 10, n);
    CHECK_OK(dl_model_train(r.model, r.inputs, r.targets, ROWS / 2, 0.5f, false));
    CHECK_OK(dl_model_train(r.model, r.inputs + ROWS / 2 * T, r.targets + ROWS / 2 * T, ROWS / 2,
                            0.5f, true));
    CHECK_NEAR(whole, take(&r, &n), 1e-4);
    CHECK_INT(ROWS * T * 9 / 10, n);
    float *halves = gradients(&r);
    check_close(g, halves, r.n);
    free(g), free(halves);
    close_rig(&r);
}

TEST(a_short_batch_has_the_result_of_a_model_planned_for_it)
{
    rig large, small;
    uint64_t n;
    small_options(&large), small_options(&small);
    open_rig(&large, "trap", 1, ROWS), open_rig(&small, "trap", 1, 1);
    /* Something else first, so that stale activations would show. */
    CHECK_OK(dl_model_train(large.model, large.inputs, large.targets, ROWS, 1, false));
    take(&large, &n);
    CHECK_OK(dl_model_train(large.model, large.inputs + T, large.targets + T, 1, 1, false));
    CHECK_OK(dl_model_train(small.model, large.inputs + T, large.targets + T, 1, 1, false));
    CHECK_NEAR(take(&small, &n), take(&large, &n), 0);
    float *a = gradients(&large), *b = gradients(&small);
    CHECK_BYTES(a, b, large.n * sizeof *a);
    free(a), free(b);
    close_rig(&large), close_rig(&small);
}

TEST(evaluation_gives_the_training_loss_and_leaves_gradients_alone)
{
    rig r;
    uint64_t n;
    small_options(&r);
    open_rig(&r, "trap", 2, ROWS);
    CHECK_OK(dl_model_train(r.model, r.inputs, r.targets, ROWS, 1, false));
    double train = take(&r, &n);
    float *before = gradients(&r);
    CHECK_OK(dl_model_eval(r.model, r.inputs, r.targets, ROWS));
    CHECK_NEAR(train, take(&r, &n), 0);
    float *after = gradients(&r);
    CHECK_BYTES(before, after, r.n * sizeof *before);
    CHECK_NEAR(0, take(&r, &n), 0); /* taken once */
    CHECK_INT(0, n);
    free(before), free(after);
    close_rig(&r);
}

/* A device that fails while the loss is copied: the host gets zeros, and the next sync fails. */
static bool has_failed;
static void fail_to_copy(dl_backend *self, void *host, const void *from, size_t n)
{
    (void)self, (void)from;
    memset(host, 0, n);
    has_failed = true;
}

static diloco_status failed_sync(dl_backend *self)
{
    (void)self;
    return has_failed ? dl_fail(DILOCO_EIO, "the device failed") : DILOCO_OK;
}

TEST(a_loss_that_the_device_fails_to_copy_is_an_error_and_not_zero)
{
    rig r;
    dl_model_loss loss = {.sum = 7};
    small_options(&r);
    open_rig(&r, "trap", 1, ROWS);
    CHECK_OK(dl_model_train(r.model, r.inputs, r.targets, ROWS, 1, false));
    const dl_backend_ops *own = r.backend->ops;
    dl_backend_ops broken = *own;
    broken.copy_out = fail_to_copy;
    broken.sync = failed_sync;
    r.backend->ops = &broken;
    CHECK_STATUS(DILOCO_EIO, dl_model_take_loss(r.model, &loss));
    CHECK_NEAR(7, loss.sum, 0);
    r.backend->ops = own;
    close_rig(&r);
}

TEST(a_batch_without_targets_has_no_loss_and_no_gradient)
{
    rig r;
    uint64_t n;
    small_options(&r);
    for (int i = 0; i < ROWS * T; i++)
        r.targets[i] = -1;
    open_rig(&r, "cpu", 1, ROWS);
    CHECK_OK(dl_model_train(r.model, r.inputs, r.targets, ROWS, 1, false));
    CHECK_NEAR(0, take(&r, &n), 0);
    CHECK_INT(0, n);
    float *g = gradients(&r);
    for (size_t i = 0; i < r.n; i++)
        CHECK_NEAR(0, g[i], 0);
    free(g);
    close_rig(&r);
}

/* -log softmax(logits after t tokens)[next] is the loss of that one target. */
TEST(logits_are_those_that_the_loss_is_made_of)
{
    rig r;
    uint64_t n;
    small_options(&r);
    open_rig(&r, "trap", 2, ROWS);
    for (size_t t = 1; t <= T; t += t < 3 ? 1 : 8) {
        float logits[VOCAB];
        int32_t targets[T];
        double total = 0;
        for (size_t i = 0; i < T; i++)
            targets[i] = i + 1 == t ? 7 : -1;
        CHECK_OK(dl_model_logits(r.model, logits, r.inputs, t));
        CHECK_OK(dl_model_eval(r.model, r.inputs, targets, 1));
        for (int v = 0; v < VOCAB; v++)
            total += exp((double)logits[v]);
        CHECK_NEAR(take(&r, &n), log(total) - (double)logits[7], 1e-4);
        CHECK_INT(1, n);
    }
    close_rig(&r);
}

TEST(the_same_steps_give_the_same_bits)
{
    for (int threads = 1; threads <= 3; threads++) {
        rig a, b;
        small_options(&a), small_options(&b);
        open_rig(&a, "cpu", threads, ROWS), open_rig(&b, "trap", threads, ROWS);
        CHECK_OK(dl_model_train(a.model, a.inputs, a.targets, ROWS, 1, false));
        CHECK_OK(dl_model_train(b.model, b.inputs, b.targets, ROWS, 1, false));
        float *x = gradients(&a), *y = gradients(&b);
        CHECK_BYTES(x, y, a.n * sizeof *x);
        free(x), free(y);
        close_rig(&a), close_rig(&b);
    }
}

TEST(every_instruction_set_gives_nearly_the_same_gradient)
{
    dl_isa chosen = dl_isa_chosen();
    float *first = NULL;
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        rig r;
        dl_isa_use((dl_isa)isa);
        small_options(&r);
        open_rig(&r, "cpu", 2, ROWS);
        CHECK_OK(dl_model_train(r.model, r.inputs, r.targets, ROWS, 1, false));
        float *g = gradients(&r);
        if (first) check_close(first, g, r.n);
        if (first)
            free(g);
        else
            first = g;
        close_rig(&r);
    }
    dl_isa_use(chosen);
    free(first);
}

TEST(initial_values_depend_on_the_seed_alone)
{
    rig a, b;
    small_options(&a), small_options(&b);
    open_rig(&a, "cpu", 1, 1), open_rig(&b, "trap", 3, ROWS);
    dl_model_initial(a.model, a.host, 5);
    dl_model_initial(b.model, b.host, 5);
    CHECK_BYTES(a.host, b.host, a.n * sizeof(float));
    dl_model_initial(b.model, b.host, 6);
    CHECK(memcmp(a.host, b.host, a.n * sizeof(float)) != 0);
    close_rig(&a), close_rig(&b);
}

TEST(initial_deviations_are_gpt2s_and_norms_are_one)
{
    rig r;
    size_t n_tensors;
    small_options(&r);
    open_rig(&r, "cpu", 1, 1);
    dl_model_initial(r.model, r.host, 1);
    const diloco_tensor *tensors = dl_model_tensors(r.model, &n_tensors);
    const float *at = r.host;
    for (size_t i = 0; i < n_tensors; i++) {
        size_t count = tensors[i].shape[0] * (tensors[i].n_dims == 2 ? tensors[i].shape[1] : 1);
        bool last = strstr(tensors[i].name, "o_proj") || strstr(tensors[i].name, "down_proj");
        double square = 0, want = tensors[i].n_dims == 1 ? 1 : last ? 0.02 / sqrt(4) : 0.02;
        for (size_t k = 0; k < count; k++)
            square += (double)at[k] * (double)at[k];
        /* Of 288 values or more, the sample deviation is within 4 / sqrt(2 * 288) = 17 %. */
        CHECK_NEAR(want, sqrt(square / (double)count), 0.17 * want);
        at += count;
    }
    close_rig(&r);
}

TEST(tensors_are_named_and_shaped_as_in_hugging_faces_llama)
{
    rig r;
    size_t n, at = 0;
    small_options(&r);
    set(&r, "parameters.model.tied", "false");
    open_rig(&r, "cpu", 1, 1);
    const diloco_tensor *t = dl_model_tensors(r.model, &n);
    CHECK_INT(1 + 2 * 9 + 1 + 1, n);
    CHECK_STR("model.embed_tokens.weight", t[0].name);
    CHECK_STR("model.layers.0.self_attn.q_proj.weight", t[1].name);
    CHECK_STR("model.layers.0.self_attn.k_proj.weight", t[2].name);
    CHECK_INT(12, t[2].shape[0]);
    CHECK_INT(24, t[2].shape[1]);
    CHECK_STR("model.layers.1.mlp.down_proj.weight", t[16].name);
    CHECK_INT(24, t[16].shape[0]);
    CHECK_INT(64, t[16].shape[1]);
    CHECK_STR("model.layers.1.post_attention_layernorm.weight", t[18].name);
    CHECK_STR("model.norm.weight", t[19].name);
    CHECK_STR("lm_head.weight", t[20].name);
    for (size_t i = 0; i < n; i++) { /* one after the other in one array */
        CHECK((float *)t[i].data == dl_model_parameters(r.model) + at);
        at += t[i].shape[0] * (t[i].n_dims == 2 ? t[i].shape[1] : 1);
    }
    CHECK_INT(dl_model_n_parameters(r.model), at);
    close_rig(&r);
}

TEST(scales_of_queries_and_keys_are_named_as_in_hugging_faces_qwen3)
{
    rig r;
    size_t n;
    small_options(&r);
    set(&r, "parameters.model.qk_norm", "true");
    open_rig(&r, "cpu", 1, 1);
    const diloco_tensor *t = dl_model_tensors(r.model, &n);
    CHECK_INT(1 + 2 * 11 + 1, n);
    CHECK_STR("model.layers.1.self_attn.q_norm.weight", t[21].name);
    CHECK_STR("model.layers.1.self_attn.k_norm.weight", t[22].name);
    CHECK_INT(1, t[21].n_dims);
    CHECK_INT(6, t[21].shape[0]);
    close_rig(&r);
}

TEST(hidden_are_the_matrices_between_the_ends)
{
    for (int tied = 0; tied < 2; tied++) {
        rig r;
        size_t n, n_hidden = 0;
        dl_model_plan plan;
        small_options(&r);
        set(&r, "parameters.model.tied", tied ? "true" : "false");
        open_rig(&r, "cpu", 1, 1);
        const diloco_tensor *t = dl_model_tensors(r.model, &n);
        for (size_t i = 0; i < n; i++) {
            bool block = strstr(t[i].name, "_proj.weight") != NULL;
            CHECK(dl_model_hidden(r.model)[i] == block);
            n_hidden += block ? t[i].shape[0] * t[i].shape[1] : 0;
        }
        CHECK_OK(dl_model_plan_for(&plan, &r.config, &tokens,
                                   &(dl_graph_target){.max_rows = ROWS, .n_threads = 1}));
        CHECK_INT(n_hidden, plan.inner.hidden);
        CHECK_INT(plan.n_parameters, plan.inner.parameters);
        CHECK_INT(24, plan.inner.shorter);
        CHECK_INT(64, plan.inner.longer);
        close_rig(&r);
    }
}

TEST(a_training_step_allocates_nothing)
{
    if (!count_alloc_works()) {
        print_message("left out: the sanitizer has its own malloc\n");
        skip();
    }
    rig r;
    uint64_t n;
    small_options(&r);
    open_rig(&r, "cpu", 2, ROWS);
    size_t before = count_alloc();
    for (int i = 0; i < 3; i++)
        CHECK_OK(dl_model_train(r.model, r.inputs, r.targets, ROWS, 1, i > 0));
    CHECK_OK(dl_model_eval(r.model, r.inputs, r.targets, ROWS));
    take(&r, &n);
    CHECK_INT(before, count_alloc());
    close_rig(&r);
}

static int threads_now(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *e = readdir(tasks); e; e = readdir(tasks))
        n += e->d_name[0] != '.';
    closedir(tasks);
    return n;
}

TEST(one_thread_starts_no_other)
{
    rig r;
    const int before = threads_now();
    CHECK(before == 1 || SANITIZED); /* which may have one of its own */
    small_options(&r);
    open_rig(&r, "cpu", 1, ROWS);
    CHECK_OK(dl_model_train(r.model, r.inputs, r.targets, ROWS, 1, false));
    CHECK_INT(before, threads_now());
    close_rig(&r);
}

TEST(the_plan_counts_the_memory_of_create)
{
    rig r;
    dl_model_plan plan, larger;
    small_options(&r);
    open_rig(&r, "cpu", 2, ROWS);
    CHECK_OK(dl_model_plan_for(&plan, &r.config, &tokens,
                               &(dl_graph_target){.max_rows = ROWS, .n_threads = 2}));
    CHECK_INT(dl_model_n_parameters(r.model), plan.n_parameters);
    CHECK_INT(4 * plan.n_parameters, plan.parameter_bytes);
    CHECK_INT(4 * plan.n_parameters, plan.gradient_bytes);
    CHECK(plan.activation_bytes > 0);
    CHECK_OK(dl_model_plan_for(&larger, &r.config, &tokens,
                               &(dl_graph_target){.max_rows = 100 * ROWS, .n_threads = 2}));
    CHECK(larger.activation_bytes > plan.activation_bytes);
    /* 6 for each weight of a product and token, and attention's 12 T C over 2 a layer. */
    double products = 2 * (24 * 24 * 2 + 2 * 12 * 24 + 3 * 64 * 24) + VOCAB * 24;
    CHECK_NEAR(6 * products + 2 * 6.0 * (T + 1) * 24, plan.flops_per_token, 1);
    close_rig(&r);
}

static void check_refused(const char *name, const char *value, size_t vocab, const char *text)
{
    rig r;
    dl_model_plan plan;
    small_options(&r);
    set(&r, name, value);
    CHECK_OK(dl_backend_create(&r.backend, "cpu"));
    const dl_sample sample = dl_sample_tokens(vocab, T);
    CHECK_STATUS(DILOCO_EINVAL,
                 dl_model_create(&r.model, &r.config, &sample, ROWS, r.backend, NULL));
    CHECK(r.model == NULL);
    CHECK_CONTAINS(text, diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL,
                 dl_model_plan_for(&plan, &r.config, &sample,
                                   &(dl_graph_target){.max_rows = ROWS, .n_threads = 1}));
    dl_backend_destroy(r.backend);
}

TEST(options_that_do_not_fit_are_named)
{
    check_refused("parameters.model.heads", "5", VOCAB, "parameters.model.heads");
    check_refused("parameters.model.heads", "8", VOCAB, "channels / heads = ");
    check_refused("parameters.model.head_dim", "5", VOCAB, "head_dim = 5 is odd");
    check_refused("parameters.model.kv_heads", "3", VOCAB, "parameters.model.kv_heads");
    check_refused("parameters.model.vocab", "49", VOCAB, "parameters.model.vocab");
    check_refused("parameters.model.layers", "2", 0, "parameters.model.vocab");
    check_refused("trainer.model_name", "perceptron", VOCAB, "perceptron");
}

TEST(slow_pairs_are_below_fast_ones)
{
    dl_config c;
    dl_gpt_shape s;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "parameters.model.rope_low_freq_factor", "4", "test"));
    CHECK_OK(dl_gpt_shape_read(&s, &c, VOCAB));
    CHECK_OK(dl_config_set(&c, "parameters.model.rope_scaling", "llama3", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_gpt_shape_read(&s, &c, VOCAB));
    CHECK_CONTAINS("rope_low_freq_factor = 4 is not below", diloco_error_text());
    CHECK_OK(dl_config_set(&c, "parameters.model.rope_high_freq_factor", "4.5", "test"));
    CHECK_OK(dl_gpt_shape_read(&s, &c, VOCAB));
}

TEST(batches_that_do_not_fit_are_refused_and_change_nothing)
{
    rig r;
    float logits[VOCAB];
    uint64_t n;
    small_options(&r);
    open_rig(&r, "cpu", 1, ROWS);
    CHECK_STATUS(DILOCO_EINVAL, dl_model_train(r.model, r.inputs, r.targets, 0, 1, false));
    CHECK_STATUS(DILOCO_EINVAL, dl_model_train(r.model, r.inputs, r.targets, ROWS + 1, 1, false));
    CHECK_STATUS(DILOCO_EINVAL, dl_model_logits(r.model, logits, r.inputs, 0));
    CHECK_STATUS(DILOCO_EINVAL, dl_model_logits(r.model, logits, r.inputs, T + 1));
    r.inputs[3] = VOCAB;
    CHECK_STATUS(DILOCO_EINVAL, dl_model_eval(r.model, r.inputs, r.targets, 1));
    CHECK_CONTAINS("input 3 is token 50", diloco_error_text());
    r.inputs[3] = -1;
    CHECK_STATUS(DILOCO_EINVAL, dl_model_eval(r.model, r.inputs, r.targets, 1));
    r.inputs[3] = 0;
    r.targets[5] = VOCAB;
    CHECK_STATUS(DILOCO_EINVAL, dl_model_train(r.model, r.inputs, r.targets, 1, 1, false));
    CHECK_CONTAINS("target 5", diloco_error_text());
    CHECK_NEAR(0, take(&r, &n), 0);
    CHECK_INT(0, n);
    close_rig(&r);
}

TEST_MAIN(two_halves_accumulated_are_the_whole_batch,
          a_short_batch_has_the_result_of_a_model_planned_for_it,
          evaluation_gives_the_training_loss_and_leaves_gradients_alone,
          a_loss_that_the_device_fails_to_copy_is_an_error_and_not_zero,
          a_batch_without_targets_has_no_loss_and_no_gradient,
          logits_are_those_that_the_loss_is_made_of, the_same_steps_give_the_same_bits,
          every_instruction_set_gives_nearly_the_same_gradient,
          initial_values_depend_on_the_seed_alone, initial_deviations_are_gpt2s_and_norms_are_one,
          tensors_are_named_and_shaped_as_in_hugging_faces_llama,
          scales_of_queries_and_keys_are_named_as_in_hugging_faces_qwen3,
          hidden_are_the_matrices_between_the_ends, a_training_step_allocates_nothing,
          one_thread_starts_no_other, the_plan_counts_the_memory_of_create,
          options_that_do_not_fit_are_named, slow_pairs_are_below_fast_ones,
          batches_that_do_not_fit_are_refused_and_change_nothing)
