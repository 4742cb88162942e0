/* emulated_model_test.c - a GPT on the emulated device against the CPU: every operation forward and
 * backward, through the model's own graph.
 *
 * Tolerance: both add up f32 in other orders and have other exponentials, with an error of some
 * roundings of the largest term. 1e-5 of a tensor's largest gradient is above that; a wrong index
 * or a missing term is far beyond it.
 *
 * In bf16 a rounding changes a number by at most 2^-8 of it, and by 2^-8 / sqrt(3) in the root of
 * the mean square. Forward and backward a gradient of two layers passes some 64 roundings of values
 * and weights, whose errors are independent: sqrt(64) 2^-8 / sqrt(3) = 0.018 of the gradient's
 * norm. The bound is twice this, for operations that enlarge an error. A wrong index is far beyond
 * it. */
#include "emulated_backend.h"

#include "model/model.h"
#include "nn/inner.h"

#include <math.h>
#include <stdlib.h>

/* MAX_ROWS * CONTEXT is more than a block of threads. */
enum { VOCAB = 70, CONTEXT = 37, MAX_ROWS = 7, MOST = 60000 };

typedef struct outcome {
    double loss, eval;
    uint64_t n_correct, n_correct_of_equals;
    size_t n;
    float logits[VOCAB], once[MOST], twice[MOST];
} outcome;

typedef struct shape {
    const char *heads, *kv_heads, *tied, *z_loss, *qk_norm;
    size_t rows;
    const char *precision;
} shape;

static void configure(dl_config *config, const shape *s)
{
    const char *const options[][2] = {
        {"parameters.model.layers", "2"},         {"parameters.model.channels", "24"},
        {"parameters.model.heads", s->heads},     {"parameters.model.kv_heads", s->kv_heads},
        {"parameters.model.context", "37"},       {"parameters.model.tied", s->tied},
        {"parameters.model.z_loss", s->z_loss},   {"parameters.model.ffn", "40"},
        {"parameters.model.qk_norm", s->qk_norm}, {"trainer.precision", s->precision}};
    dl_config_init(config);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        CHECK_OK(dl_config_set(config, options[i][0], options[i][1], "test"));
}

/* A batch, the same added to it, an evaluation, the logits after a few tokens. */
static void run_model(outcome *out, dl_backend *b, const shape *s)
{
    int32_t inputs[MAX_ROWS * CONTEXT], targets[MAX_ROWS * CONTEXT];
    dl_config config;
    dl_model *model;
    dl_pool *pool;
    dl_model_loss loss;
    const dl_sample sample = dl_sample_tokens(VOCAB, CONTEXT);
    configure(&config, s);
    CHECK_OK(dl_pool_create(&pool, 1));
    CHECK_OK(dl_model_create(&model, &config, &sample, MAX_ROWS, b, pool));
    out->n = dl_model_n_parameters(model);
    CHECK(out->n <= MOST);
    dl_model_initial(model, out->once, 1);
    /* Gradients are larger than at the start of training. With more than 2, attention with qk_norm
     * is so peaked that roundings of its logits change gradients by 5e-5. */
    for (size_t i = 0; i < out->n; i++)
        out->once[i] *= 2;
    for (int i = 0; i < MAX_ROWS * CONTEXT; i++) {
        inputs[i] = (i * i + 3 * i) % VOCAB;
        targets[i] = i % 9 == 4 ? -1 : (i * 5 + 1) % VOCAB;
    }
    float *parameters = dl_model_parameters(model), *gradients = dl_model_gradients(model);
    dl_backend_copy_in(b, parameters, out->once, out->n * sizeof(float));
    CHECK_OK(dl_model_train(model, inputs, targets, s->rows, 1, false));
    dl_backend_copy_out(b, out->once, gradients, out->n * sizeof(float));
    CHECK_OK(dl_model_train(model, inputs, targets, s->rows, 1, true));
    dl_backend_copy_out(b, out->twice, gradients, out->n * sizeof(float));
    CHECK_OK(dl_model_take_loss(model, &loss));
    out->loss = loss.sum;
    out->n_correct = loss.n_correct;
    CHECK_OK(dl_model_eval(model, inputs, targets, s->rows));
    CHECK_OK(dl_model_take_loss(model, &loss));
    out->eval = loss.sum;
    CHECK_OK(dl_model_logits(model, out->logits, inputs, 7));
    dl_backend_zero(b, parameters, out->n * sizeof(float)); /* all logits are equal then */
    CHECK_OK(dl_model_eval(model, inputs, targets, s->rows));
    CHECK_OK(dl_model_take_loss(model, &loss));
    out->n_correct_of_equals = loss.n_correct;
    CHECK_OK(dl_backend_sync(b));
    dl_model_destroy(model);
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
}

static void check_near(const float *want, const float *got, size_t n, const char *what)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    CHECK(largest > 0);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)want[i] - (double)got[i]) <= 1e-5 * largest))
            CHECK_FAIL("%s %zu of %zu is %g, on the CPU %g, the largest %g", what, i, n,
                       (double)got[i], (double)want[i], largest);
}

/* A soak takes all ways, other tests the `usual` ones. */
static size_t ways_of(size_t usual)
{
    const size_t seeds = emulated_seeds(0);
    return seeds ? seeds * EMULATED_WAYS : usual;
}

/* The i-th of them. Three usual ones have each of both kinds. */
static emulated_setup one_way(size_t i)
{
    return emulated_way(emulated_seeds(0) ? i : 4 * i);
}

static void check_model(const shape *s, size_t ways)
{
    static outcome want, first, got;
    dl_backend *b;
    CHECK_OK(dl_backend_create(&b, "cpu"));
    run_model(&want, b, s);
    for (size_t i = 0; i < ways; i++) {
        const emulated_setup setup = one_way(i);
        CHECK_OK(emulated_open(&b, &setup));
        run_model(&got, b, s);
        CHECK_INT(0, emulated_leaked());
        CHECK_NEAR(want.loss, got.loss, 1e-6 * want.loss);
        CHECK_NEAR(want.eval, got.eval, 1e-6 * want.eval);
        CHECK_INT(want.n_correct, got.n_correct);
        CHECK_INT(want.n_correct_of_equals, got.n_correct_of_equals);
        check_near(want.once, got.once, want.n, "gradient");
        check_near(want.twice, got.twice, want.n, "added gradient");
        check_near(want.logits, got.logits, VOCAB, "logit");
        if (i == 0) first = got;
        CHECK_BYTES(first.once, got.once, want.n * sizeof(float));
        CHECK_BYTES(first.twice, got.twice, want.n * sizeof(float));
    }
}

TEST(gpt_has_the_gradients_of_the_cpu_and_the_same_bits_in_every_order)
{
    check_model(&(shape){"4", "2", "true", "0", "false", 2, "f32"}, ways_of(3));
    check_model(&(shape){"2", "2", "false", "0.001", "true", MAX_ROWS, "f32"}, ways_of(2));
    check_model(&(shape){"3", "1", "true", "0.001", "true", 1, "f32"}, ways_of(2));
}

static double distance(const float *want, const float *got, size_t n)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        error += pow((double)got[i] - (double)want[i], 2);
        norm += pow((double)want[i], 2);
    }
    return sqrt(error / norm);
}

/* Errors of the logits have either sign, so the mean loss has far smaller ones. A distance of less
 * than FAR_FROM_F32 would be f32. */
static void check_bf16(const shape *s, size_t ways)
{
    static const double BOUND = 0.036, LOSS_BOUND = 1e-3, FAR_FROM_F32 = 1e-4;
    static outcome want, first, got;
    dl_backend *b;
    CHECK_OK(dl_backend_create(&b, "cpu")); /* computes in f32 whatever the precision is */
    run_model(&want, b, s);
    for (size_t i = 0; i < ways; i++) {
        const emulated_setup setup = one_way(i);
        CHECK_OK(emulated_open(&b, &setup));
        run_model(&got, b, s);
        CHECK_INT(0, emulated_leaked());
        const double once = distance(want.once, got.once, want.n);
        const double twice = distance(want.twice, got.twice, want.n);
        const double logits = distance(want.logits, got.logits, VOCAB);
        if (!(once > FAR_FROM_F32 && once < BOUND && twice < BOUND && logits < BOUND))
            CHECK_FAIL("errors of gradients %g and %g, of logits %g", once, twice, logits);
        CHECK_NEAR(want.loss, got.loss, LOSS_BOUND * want.loss);
        CHECK_NEAR(want.eval, got.eval, LOSS_BOUND * want.eval);
        CHECK_INT(want.n_correct_of_equals, got.n_correct_of_equals);
        if (i == 0) first = got;
        CHECK_BYTES(first.once, got.once, want.n * sizeof(float));
        CHECK_BYTES(first.twice, got.twice, want.n * sizeof(float));
    }
}

TEST(gpt_in_bf16_is_within_its_roundings_of_f32_and_has_the_same_bits_in_every_order)
{
    check_bf16(&(shape){"4", "2", "true", "0", "false", 2, "bf16"}, ways_of(2));
    check_bf16(&(shape){"2", "2", "false", "0.001", "true", MAX_ROWS, "bf16"}, ways_of(2));
}

/* ---- memory */

/* A card gives memory in pages of 2 MiB, so a model on it is larger. */
#ifdef DILOCO_ON_CARD
static const char wide_ffn[] = "262144";
#else
static const char wide_ffn[] = "16384";
#endif

/* Bytes a parameter of a model with AdamW whose activations are few: one position. */
static double bytes_a_parameter(const char *precision)
{
    const char *const options[][2] = {
        {"parameters.model.layers", "1"},   {"parameters.model.channels", "24"},
        {"parameters.model.heads", "2"},    {"parameters.model.context", "1"},
        {"parameters.model.ffn", wide_ffn}, {"trainer.precision", precision}};
    dl_config config;
    dl_backend *b;
    dl_model *model;
    dl_inner *inner;
    dl_pool *pool;
    uint64_t before, after;
    size_t n_tensors;
    const dl_sample sample = dl_sample_tokens(VOCAB, 1);
    dl_config_init(&config);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        CHECK_OK(dl_config_set(&config, options[i][0], options[i][1], "test"));
    CHECK_OK(emulated_open(&b, &(emulated_setup){.seed = 1}));
    CHECK_OK(dl_pool_create(&pool, 1));
    CHECK_OK(dl_backend_cuda_memory_left(&before, b));
    CHECK_OK(dl_model_create(&model, &config, &sample, 1, b, pool));
    const diloco_tensor *tensors = dl_model_tensors(model, &n_tensors);
    const dl_inner_model of = {.tensors = tensors,
                               .hidden = dl_model_hidden(model),
                               .n_tensors = n_tensors,
                               .parameters = dl_model_parameters(model),
                               .gradients = dl_model_gradients(model),
                               .backend = b,
                               .pool = pool};
    CHECK_OK(dl_inner_create(&inner, &config, &of));
    CHECK_OK(dl_backend_cuda_memory_left(&after, b));
    const double bytes = (double)(before - after) / (double)dl_model_n_parameters(model);
    dl_inner_destroy(inner);
    dl_model_destroy(model);
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
    CHECK_INT(0, emulated_leaked());
    return bytes;
}

/* f32: parameters, gradients, two moments. bf16: the rounded weights besides. */
TEST(training_takes_16_bytes_a_parameter_in_f32_and_18_in_bf16)
{
    CHECK_NEAR(16, bytes_a_parameter("f32"), 0.5);
    CHECK_NEAR(18, bytes_a_parameter("bf16"), 0.5);
}

/* Bytes that the plan has for values in a pass on a card, with the vocabulary of GPT-2. */
static size_t planned_values(size_t rows)
{
    dl_config config;
    dl_model_plan plan;
    const dl_sample sample = dl_sample_tokens(50304, 1024);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "parameters.model.layers", "1", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.model.channels", "4", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.model.heads", "1", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.model.context", "1024", "test"));
    const dl_graph_target target = {
        .device = DL_DEVICE_CUDA, .element = DILOCO_F32, .max_rows = rows, .n_threads = 1};
    CHECK_OK(dl_model_plan_for(&plan, &config, &sample, &target));
    return plan.activation_bytes;
}

TEST(plan_counts_the_logits_of_4096_positions_on_a_card)
{
    const size_t logits = (size_t)4096 * 50304 * sizeof(float);
    CHECK(planned_values(2) < logits);
    CHECK(planned_values(4) >= logits);
    CHECK(planned_values(8) < logits + logits / 10);
}

/* ---- refusals */

static void check_refused(const char *name, size_t channels, size_t side)
{
    dl_config config;
    dl_backend *b;
    dl_model *model;
    dl_pool *pool;
    const dl_sample sample = {.kind = DL_IMAGES,
                              .length = 1,
                              .classes = 10,
                              .channels = channels,
                              .height = side,
                              .width = side,
                              .deviation = {1, 1, 1}};
    const emulated_setup setup = {.seed = 1};
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "trainer.model_name", name, "test"));
    CHECK_OK(emulated_open(&b, &setup));
    CHECK_OK(dl_pool_create(&pool, 1));
    CHECK_STATUS(DILOCO_EREFUSED, dl_model_create(&model, &config, &sample, 1, b, pool));
    CHECK_CONTAINS("backend has no operation image", diloco_error_text());
    dl_pool_destroy(pool);
    dl_backend_destroy(b);
    CHECK_INT(0, emulated_leaked());
}

TEST(models_with_operations_without_kernels_are_refused_by_name)
{
    check_refused("lenet5", 1, 28);
    check_refused("resnet_18", 3, 32);
    check_refused("mlp", 1, 28);
}

TEST_MAIN(gpt_has_the_gradients_of_the_cpu_and_the_same_bits_in_every_order,
          gpt_in_bf16_is_within_its_roundings_of_f32_and_has_the_same_bits_in_every_order,
          training_takes_16_bytes_a_parameter_in_f32_and_18_in_bf16,
          plan_counts_the_logits_of_4096_positions_on_a_card,
          models_with_operations_without_kernels_are_refused_by_name)
