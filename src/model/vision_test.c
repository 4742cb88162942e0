/* vision_test.c - LeNet-5, ResNet-18 and the MLP against numbers from PyTorch
 * (tests/goldens/vision_torch.py): losses, gradients, running statistics and a loss in evaluation
 * mode; and what roles do to a model.
 *
 * The reference is float64. Ours is float32: a first loss is within 1e-5 of it, a gradient's norm
 * within 1e-4 of its size (ResNet's 20 layers of batch norm over 4 images magnify rounding: 1e-3).
 * Steps of an optimizer make that worse by what they move. */
#include "check.h"
#include "count_alloc.h"
#include "goldens/vision_torch.h"
#include "model/model.h"
#include "nn/inner.h"
#include "tensor/isa.h"

#include <stdlib.h>

static const dl_sample mnist = {.kind = DL_IMAGES,
                                .length = 1,
                                .classes = 10,
                                .channels = 1,
                                .height = 28,
                                .width = 28,
                                .mean = {0.1307f},
                                .deviation = {0.3081f}};
static const dl_sample cifar = {.kind = DL_IMAGES,
                                .length = 1,
                                .classes = 10,
                                .channels = 3,
                                .height = 32,
                                .width = 32,
                                .mean = {0.485f, 0.456f, 0.406f},
                                .deviation = {0.229f, 0.224f, 0.225f}};

enum { MAX_ROWS = 13, MAX_BYTES = 3072 };

typedef struct rig {
    dl_config config;
    const dl_sample *sample;
    dl_backend *backend;
    dl_pool *pool;
    dl_model *model;
    dl_inner *inner;
    float *host; /* f32[n] */
    size_t n;
    uint8_t images[MAX_ROWS * MAX_BYTES];
    int32_t labels[MAX_ROWS];
} rig;

static void set(rig *r, const char *name, const char *text)
{
    CHECK_OK(dl_config_set(&r->config, name, text, "test"));
}

static rig *new_rig(const char *model, const dl_sample *sample)
{
    rig *r = calloc(1, sizeof *r);
    CHECK(r != NULL);
    r->sample = sample;
    dl_config_init(&r->config);
    set(r, "trainer.model_name", model);
    set(r, "trainer.optimizer", "adamw");
    set(r, "trainer.gradient_clip", "1");
    set(r, "parameters.optimizer.weight_decay", "0.1");
    set(r, "parameters.optimizer.eps", "1e-3");
    set(r, "parameters.model.hidden", "20,12");
    return r;
}

static void open_rig(rig *r, const char *backend, int threads, size_t max_rows)
{
    size_t n_tensors;
    CHECK_OK(dl_backend_create(&r->backend, backend));
    CHECK_OK(dl_pool_create(&r->pool, threads));
    CHECK_OK(dl_model_create(&r->model, &r->config, r->sample, max_rows, r->backend, r->pool));
    r->n = dl_model_n_parameters(r->model);
    r->host = malloc(r->n * sizeof *r->host);
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    const dl_inner_model inner = {.tensors = tensors,
                                  .hidden = dl_model_hidden(r->model),
                                  .n_tensors = n_tensors,
                                  .parameters = dl_model_parameters(r->model),
                                  .gradients = dl_model_gradients(r->model),
                                  .backend = r->backend,
                                  .pool = r->pool};
    CHECK_OK(dl_inner_create(&r->inner, &r->config, &inner));
}

static void close_rig(rig *r)
{
    dl_inner_destroy(r->inner);
    dl_model_destroy(r->model);
    dl_pool_destroy(r->pool);
    dl_backend_destroy(r->backend);
    free(r->host);
    free(r);
}

static size_t count_of(const diloco_tensor *t)
{
    size_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* As vision_torch.py makes them. */
static void fill_golden(float *to, const diloco_tensor *t, size_t index)
{
    size_t n = count_of(t);
    for (size_t i = 0; i < n; i++) {
        double k = (double)i, wave = sin(k * 0.7 + k * k * 0.013 + (double)index * 1.3);
        bool around_one = ends_with(t->name, "running_var") || ends_with(t->name, "weight");
        if (t->n_dims > 1)
            to[i] = (float)(wave * sqrt(2.0 / (double)(n / t->shape[0])));
        else
            to[i] = (float)((around_one ? 1 : 0) + 0.1 * wave);
    }
}

static void set_parameters(rig *r)
{
    size_t n_tensors, at = 0;
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    for (size_t i = 0; i < n_tensors; i++) {
        if (tensors[i].dtype != DILOCO_F32) continue;
        fill_golden(r->host + at, &tensors[i], i);
        at += count_of(&tensors[i]);
    }
    CHECK_INT(r->n, at);
    dl_backend_copy_in(r->backend, dl_model_parameters(r->model), r->host, r->n * sizeof(float));
}

static void set_batch(rig *r, size_t rows, size_t step)
{
    size_t n = dl_sample_bytes(r->sample);
    for (size_t row = 0; row < rows; row++) {
        for (size_t k = 0; k < n; k++)
            r->images[row * n + k] =
                (uint8_t)(k * (3 + row) + k * k % 91 * (row + 2) + row * 31 + step * 17);
        r->labels[row] = (int32_t)((row * 3 + step) % 10);
    }
}

static double mean_loss(rig *r, uint64_t *n_correct)
{
    dl_model_loss loss;
    CHECK_OK(dl_model_take_loss(r->model, &loss));
    if (n_correct) *n_correct = loss.n_correct;
    return loss.sum / (double)loss.n_targets;
}

typedef struct golden {
    const char *model;
    const dl_sample *sample;
    size_t rows;
    double tolerance; /* of a gradient's size */
    const double *losses, *norms, *tensor_norms, *elements, *buffers;
} golden;

static void check_first_gradients(rig *r, const golden *g)
{
    size_t n_tensors, at = 0, k = 0;
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    dl_backend_copy_out(r->backend, r->host, dl_model_gradients(r->model), r->n * sizeof(float));
    for (size_t i = 0; i < n_tensors; i++) {
        if (tensors[i].dtype != DILOCO_F32) continue;
        size_t count = count_of(&tensors[i]);
        double sum = 0;
        for (size_t e = 0; e < count; e++)
            sum += (double)r->host[at + e] * (double)r->host[at + e];
        if (tensors[i].role == DILOCO_PARAMETER) {
            double size = g->tensor_norms[k];
            CHECK_NEAR(size, sqrt(sum), g->tolerance * size);
            CHECK_NEAR(g->elements[k], r->host[at + count * 2 / 3], g->tolerance * size);
            k++;
        } else {
            CHECK(sum == 0);
        }
        at += count;
    }
}

static void check_buffers(rig *r, const golden *g)
{
    size_t n_tensors, k = 0;
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    for (size_t i = 0; i < n_tensors; i++) {
        if (tensors[i].role != DILOCO_BUFFER) continue;
        if (tensors[i].dtype == DILOCO_I64) {
            int64_t count;
            dl_backend_copy_out(r->backend, &count, tensors[i].data, sizeof count);
            CHECK_INT((int64_t)g->buffers[k++], count);
        } else {
            float x;
            const float *from = (const float *)tensors[i].data + count_of(&tensors[i]) * 2 / 3;
            dl_backend_copy_out(r->backend, &x, from, sizeof x);
            CHECK_NEAR(g->buffers[k], x, 10 * g->tolerance * fabs(g->buffers[k]) + 1e-4);
            k++;
        }
    }
}

static void check_golden(const golden *g, const char *backend, int threads)
{
    rig *r = new_rig(g->model, g->sample);
    open_rig(r, backend, threads, g->rows + 1); /* rows < max_rows */
    set_parameters(r);
    for (size_t step = 0; step < GOLDEN_STEPS; step++) {
        double norm;
        set_batch(r, g->rows, step);
        CHECK_OK(dl_model_train(r->model, r->images, r->labels, g->rows, 1, false));
        if (step == 0) check_first_gradients(r, g);
        CHECK_NEAR(g->losses[step], mean_loss(r, NULL), step ? 50 * g->tolerance : 1e-5);
        CHECK_OK(dl_inner_step(r->inner, 2e-3));
        CHECK_OK(dl_inner_norm(r->inner, &norm));
        CHECK_NEAR(g->norms[step], norm, g->norms[step] * (step ? 100 : 1) * g->tolerance);
    }
    if (g->buffers) check_buffers(r, g);
    set_batch(r, g->rows, GOLDEN_STEPS);
    CHECK_OK(dl_model_eval(r->model, r->images, r->labels, g->rows));
    CHECK_NEAR(g->losses[GOLDEN_STEPS], mean_loss(r, NULL), 50 * g->tolerance);
    close_rig(r);
}

static const golden lenet5 = {
    "lenet5",        &mnist, 13, 1e-4, lenet5_losses, lenet5_norms, lenet5_tensor_norms,
    lenet5_elements, NULL};
static const golden mlp = {"mlp",        &cifar, 5, 1e-4, mlp_losses, mlp_norms, mlp_tensor_norms,
                           mlp_elements, NULL};
static const golden resnet = {
    "resnet_18",     &cifar,        4, 1e-3, resnet_losses, resnet_norms, resnet_tensor_norms,
    resnet_elements, resnet_buffers};

TEST(lenet5_is_pytorchs)
{
    check_golden(&lenet5, "cpu", 1);
    check_golden(&lenet5, "cpu", 2);
    check_golden(&lenet5, "trap", 2);
}

TEST(the_mlp_is_pytorchs)
{
    check_golden(&mlp, "cpu", 1);
    check_golden(&mlp, "trap", 2);
}

TEST(resnet_18_is_pytorchs_with_its_running_statistics)
{
    check_golden(&resnet, "cpu",
                 2); /* its operations are on the trap backend in tests of their own */
}

TEST(every_instruction_set_gives_nearly_the_same)
{
    dl_isa before = dl_isa_chosen();
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        check_golden(&lenet5, "cpu", 2);
    }
    dl_isa_use(before);
}

/* ---- tensors */

TEST(tensors_are_named_and_shaped_as_in_pytorch)
{
    rig *r = new_rig("lenet5", &mnist);
    size_t n;
    open_rig(r, "cpu", 1, 1);
    const diloco_tensor *t = dl_model_tensors(r->model, &n);
    CHECK_INT(61706, r->n);
    CHECK_INT(10, n);
    CHECK_STR("conv2.weight", t[2].name);
    CHECK_INT(4, t[2].n_dims);
    CHECK(t[2].shape[0] == 16 && t[2].shape[1] == 6 && t[2].shape[2] == 5 && t[2].shape[3] == 5);
    CHECK_STR("fc5.bias", t[9].name);
    CHECK_INT(10, t[9].shape[0]);
    close_rig(r);

    r = new_rig("resnet_18", &cifar);
    dl_model_plan plan;
    CHECK_OK(dl_model_plan_for(&plan, &r->config, &cifar,
                               &(dl_graph_target){.max_rows = 1, .n_threads = 1}));
    CHECK_INT(11173962, plan.n_parameters);
    CHECK_INT(11173962 + 2 * 4800, plan.n_floats);
    open_rig(r, "cpu", 1, 1);
    CHECK_INT(plan.n_floats, r->n);
    t = dl_model_tensors(r->model, &n);
    CHECK_INT(62 + 3 * 20, n);
    CHECK_STR("bn1.num_batches_tracked", t[5].name);
    CHECK(t[5].dtype == DILOCO_I64 && t[5].role == DILOCO_BUFFER && t[5].n_dims == 0);
    CHECK_STR("layer2.0.shortcut.1.running_var", t[46].name);
    CHECK(t[46].dtype == DILOCO_F32 && t[46].role == DILOCO_BUFFER);
    CHECK_STR("linear.bias", t[n - 1].name);
    close_rig(r);
}

/* torch's default: uniform in +-1/sqrt(inputs of an output), batch norm 1, 0, 0, 1. */
TEST(initial_values_are_pytorchs_defaults)
{
    rig *r = new_rig("resnet_18", &cifar);
    size_t n_tensors, at = 0;
    open_rig(r, "cpu", 1, 1);
    dl_model_initial(r->model, r->host, 3);
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    double fan_in = 512; /* of the linear layer, for its bias */
    for (size_t i = 0; i < n_tensors; i++) {
        const diloco_tensor *t = &tensors[i];
        if (t->dtype != DILOCO_F32) continue;
        size_t n = count_of(t);
        float least = r->host[at], most = least;
        for (size_t k = 0; k < n; k++) {
            least = fminf(least, r->host[at + k]);
            most = fmaxf(most, r->host[at + k]);
        }
        bool norm = strstr(t->name, "bn") || strstr(t->name, "shortcut.1");
        if (norm) {
            bool one = ends_with(t->name, "weight") || ends_with(t->name, "running_var");
            CHECK(least == (one ? 1 : 0) && most == (one ? 1 : 0));
        } else {
            if (t->n_dims > 1) fan_in = (double)(n / t->shape[0]);
            double bound = 1 / sqrt(fan_in);
            CHECK((double)most <= bound && (double)least >= -bound);
            /* Of 1,728 draws or more the largest is beyond 0.98 of the bound with 1 - 1e-15. */
            if (n > 1000) CHECK((double)most > 0.98 * bound && (double)least < -0.98 * bound);
        }
        at += n;
    }
    float *again = malloc(r->n * sizeof *again);
    dl_model_initial(r->model, again, 3);
    CHECK_BYTES(r->host, again, r->n * sizeof *again);
    dl_model_initial(r->model, again, 4);
    CHECK(memcmp(r->host, again, r->n * sizeof *again) != 0);
    free(again);
    close_rig(r);
}

/* ---- frozen tensors */

TEST(frozen_tensors_stay_while_the_others_and_the_buffers_move)
{
    rig *r = new_rig("resnet_18", &cifar);
    size_t n_tensors, at = 0;
    set(r, "parameters.model.frozen", "conv1., layer1.0,layer4.1.bn");
    open_rig(r, "cpu", 2, 4);
    set_parameters(r);
    set_batch(r, 4, 0);
    CHECK_OK(dl_model_train(r->model, r->images, r->labels, 4, 1, false));
    CHECK_OK(dl_inner_step(r->inner, 1e-3));
    const diloco_tensor *tensors = dl_model_tensors(r->model, &n_tensors);
    for (size_t i = 0; i < n_tensors; i++) {
        const diloco_tensor *t = &tensors[i];
        if (t->dtype != DILOCO_F32) continue;
        bool named = strncmp(t->name, "conv1.", 6) == 0 || strncmp(t->name, "layer1.0", 8) == 0 ||
                     strncmp(t->name, "layer4.1.bn", 11) == 0;
        size_t bytes = count_of(t) * sizeof(float);
        bool same = memcmp(r->host + at, t->data, bytes) == 0;
        if (t->role != DILOCO_BUFFER) {
            CHECK(t->role == (named ? DILOCO_FROZEN : DILOCO_PARAMETER));
            CHECK(same == named);
        } else {
            CHECK(!same); /* running statistics follow the data whether or not the weight does */
        }
        at += count_of(t);
    }
    close_rig(r);
}

/* ---- batches */

TEST(a_short_batch_has_the_result_of_a_model_planned_for_it)
{
    rig *large = new_rig("lenet5", &mnist), *small = new_rig("lenet5", &mnist);
    open_rig(large, "trap", 2, MAX_ROWS), open_rig(small, "trap", 2, 3);
    set_parameters(large), set_parameters(small);
    set_batch(large, MAX_ROWS, 1), set_batch(small, 3, 1);
    /* Something else first, so that stale activations would show. */
    CHECK_OK(dl_model_train(large->model, large->images, large->labels, MAX_ROWS, 1, false));
    mean_loss(large, NULL);
    CHECK_OK(dl_model_train(large->model, large->images, large->labels, 3, 1, false));
    CHECK_OK(dl_model_train(small->model, small->images, small->labels, 3, 1, false));
    CHECK(mean_loss(large, NULL) == mean_loss(small, NULL));
    size_t bytes = large->n * sizeof(float);
    dl_backend_copy_out(large->backend, large->host, dl_model_gradients(large->model), bytes);
    dl_backend_copy_out(small->backend, small->host, dl_model_gradients(small->model), bytes);
    CHECK_BYTES(large->host, small->host, bytes);
    close_rig(large), close_rig(small);
}

TEST(the_likeliest_class_is_counted)
{
    rig *r = new_rig("lenet5", &mnist);
    uint64_t n_correct, n_seen = 0;
    open_rig(r, "trap", 2, MAX_ROWS);
    set_parameters(r);
    set_batch(r, MAX_ROWS, 0);
    for (size_t row = 0; row < MAX_ROWS; row++) {
        float logits[10];
        size_t best = 0;
        CHECK_OK(dl_model_logits(r->model, logits, r->images + row * 784, 1));
        for (size_t k = 1; k < 10; k++)
            if (logits[k] > logits[best]) best = k;
        if (row % 2) r->labels[row] = (int32_t)best;
        n_seen += (size_t)r->labels[row] == best;
    }
    CHECK(n_seen >= MAX_ROWS / 2);
    CHECK_OK(dl_model_eval(r->model, r->images, r->labels, MAX_ROWS));
    mean_loss(r, &n_correct);
    CHECK_INT(n_seen, n_correct);
    CHECK_OK(dl_model_train(r->model, r->images, r->labels, MAX_ROWS, 1, false));
    mean_loss(r, &n_correct);
    CHECK_INT(n_seen, n_correct);
    close_rig(r);
}

TEST(a_training_step_allocates_nothing)
{
    if (!count_alloc_works()) {
        print_message("left out: the sanitizer has its own malloc\n");
        skip();
    }
    rig *r = new_rig("resnet_18", &cifar);
    open_rig(r, "cpu", 2, 2);
    set_batch(r, 2, 0);
    size_t before = count_alloc();
    CHECK_OK(dl_model_train(r->model, r->images, r->labels, 2, 1, false));
    CHECK_OK(dl_model_eval(r->model, r->images, r->labels, 2));
    mean_loss(r, NULL);
    CHECK_INT(before, count_alloc());
    close_rig(r);
}

/* ---- refusals */

static void check_refused(const char *model, const dl_sample *sample, const char *option,
                          const char *value, const char *text)
{
    rig *r = new_rig(model, sample);
    dl_model_plan plan;
    if (option) set(r, option, value);
    CHECK_STATUS(DILOCO_EINVAL,
                 dl_model_plan_for(&plan, &r->config, sample,
                                   &(dl_graph_target){.max_rows = 1, .n_threads = 1}));
    CHECK_CONTAINS(text, diloco_error_text());
    free(r);
}

TEST(options_that_do_not_fit_are_named)
{
    const dl_sample tokens = dl_sample_tokens(256, 128);
    check_refused("lenet5", &tokens, NULL, NULL, "takes images");
    check_refused("gpt", &mnist, NULL, NULL, "takes tokens");
    check_refused("lenet5", &cifar, NULL, NULL, "takes images of 28 x 28");
    check_refused("lenet5", &mnist, "parameters.model.num_classes", "9", "num_classes = 9");
    check_refused("lenet5", &mnist, "parameters.model.in_channels", "3", "in_channels = 3");
    check_refused("mlp", &mnist, "parameters.model.hidden", "20,,3", "parameters.model.hidden");
    check_refused("mlp", &mnist, "parameters.model.hidden", "20,", "parameters.model.hidden");
    check_refused("mlp", &mnist, "parameters.model.hidden", "0", "parameters.model.hidden");
    check_refused("mlp", &mnist, "parameters.model.hidden", "1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8",
                  "up to 16 widths");
    check_refused("mlp", &mnist, "parameters.model.frozen", "fc4", "name begins with \"fc4\"");
    check_refused("mlp", &mnist, "parameters.model.frozen", "fc", "leaves nothing to train");
    dl_sample wide = cifar;
    wide.width = 64;
    check_refused("resnet_18", &wide, NULL, NULL, "square images");
}

TEST(more_classes_than_the_data_has_are_fine)
{
    rig *r = new_rig("mlp", &mnist);
    dl_model_plan plan;
    set(r, "parameters.model.hidden", "");
    set(r, "parameters.model.num_classes", "12");
    CHECK_OK(dl_model_plan_for(&plan, &r->config, &mnist,
                               &(dl_graph_target){.max_rows = 1, .n_threads = 1}));
    CHECK_INT(12 * 785, plan.n_parameters);
    free(r);
}

TEST_MAIN(lenet5_is_pytorchs, the_mlp_is_pytorchs,
          resnet_18_is_pytorchs_with_its_running_statistics,
          every_instruction_set_gives_nearly_the_same, tensors_are_named_and_shaped_as_in_pytorch,
          initial_values_are_pytorchs_defaults,
          frozen_tensors_stay_while_the_others_and_the_buffers_move,
          a_short_batch_has_the_result_of_a_model_planned_for_it, the_likeliest_class_is_counted,
          a_training_step_allocates_nothing, options_that_do_not_fit_are_named,
          more_classes_than_the_data_has_are_fine)
