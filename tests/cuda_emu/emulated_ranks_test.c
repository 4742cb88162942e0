/* emulated_ranks_test.c - one replica on several emulated devices (train/ranks.h) against one
 * device that accumulates the same micro-batches.
 *
 * A product's gradient is added up before it is added to the earlier micro-batches'. So two devices
 * with a micro-batch each have the bits of one device. The embedding's gradient is added to them
 * position by position. It differs by the rounding of its sums, and so do all sums of more devices
 * or micro-batches. The bounds are some roundings of float32 relative to the largest value. */
#include "cuda_emu/emulated_backend.h"
#include "cuda_emu/emulated_nccl.h"
#include "nn/device.h"
#include "tensor/cuda/backend_cuda.h"
#include "train/step.h"
#include "train_fixture.h"

#include <math.h>

enum { STEPS = 5, MOST_DEVICES = 4 };

static size_t n_with_products; /* devices that have the library of products: the first ones */

/* By -Wl,--wrap: each device is an emulated one, and "cpu" is device 0. */
__typeof__(dl_device_open) __wrap_dl_device_open;

diloco_status __wrap_dl_device_open(dl_backend **out, const char *device, size_t rank)
{
    static const char image[] = "the kernels are in the device program";
    static const dl_span images[] = {{image, sizeof image}};
    dl_cuda_source source = {.name = "emulated",
                             .library = EMULATED_LIBRARY,
                             .images = images,
                             .n_images = 1,
                             .poisons = true,
                             .collectives = EMULATED_NCCL};
    static const char *const products[] = {EMULATED_BLAS, NULL};
    dl_device_list list;
    *out = NULL;
    DL_TRY(dl_device_of_name(&list, device));
    if (rank < n_with_products) source.products = products;
    return dl_backend_cuda(out, &source, list.cards[rank]);
}

static void begin(uint64_t seed)
{
    const char *given = getenv("EMULATED_SEED");
    emulated_configure(&(emulated_setup){.seed = given ? strtoull(given, NULL, 10) : seed,
                                         .devices = MOST_DEVICES,
                                         .when = EMULATED_RANDOM,
                                         .order = EMULATED_SHUFFLED});
}

/* A model after some steps. */
typedef struct outcome {
    size_t n, embedding; /* embedding: elements of the first tensor */
    float *parameters;   /* owned; in data_parallel the gradient */
    dl_step_facts facts[STEPS];
} outcome;

static dl_config *config_on(const char *preset, const char *device, const char *micro_batches)
{
    dl_config *config = fixture_config(preset);
    set(config, "trainer.device", device);
    set(config, "trainer.gradient_accumulation_steps", micro_batches);
    return config;
}

static outcome train(const dl_config *config, bool data_parallel)
{
    outcome out;
    dl_setup s;
    dl_step step;
    uint64_t sample = 0;
    const size_t n_steps = data_parallel ? 1 : STEPS;
    CHECK_OK(dl_setup_open(&s, config, 1, (size_t)config->batch_size));
    fixture_initial(&s);
    CHECK_OK(dl_step_init(&step, &s, data_parallel));
    dl_step_anchor(&step);
    for (size_t i = 0; i < n_steps; i++) {
        CHECK_OK(dl_step_take(&out.facts[i], &step, 0, sample, 1e-3));
        sample += out.facts[i].samples;
    }
    out.n = dl_model_n_parameters(s.model);
    CHECK_CONTAINS("embed_tokens", s.tensors[0].name);
    out.embedding = s.tensors[0].shape[0] * s.tensors[0].shape[1];
    out.parameters = data_parallel ? fixture_gradients(&s) : fixture_parameters(&s);
    dl_step_deinit(&step);
    dl_setup_close(&s);
    CHECK_INT(0, emulated_leaked());
    CHECK_INT(0, emulated_communicators());
    return out;
}

/* Trains with the same settings on one device and on `device`. */
static void train_both(outcome outcomes[2], const char *device, const char *micro_batches,
                       const char *optimizer, bool data_parallel)
{
    for (size_t i = 0; i < 2; i++) {
        dl_config *config = config_on("diloco", i ? device : "cpu", micro_batches);
        set(config, "trainer.optimizer", optimizer);
        set(config, "trainer.proximal_mu", "0.01");
        if (data_parallel) set(config, "trainer.gradient_clip", "0");
        begin(1 + i);
        outcomes[i] = train(config, data_parallel);
        free(config);
    }
    CHECK_INT(outcomes[0].n, outcomes[1].n);
}

TEST(two_devices_have_the_gradient_of_one_with_two_micro_batches)
{
    outcome o[2];
    train_both(o, "cuda:3,1", "2", "adamw", true);
    const size_t embedding = o[0].embedding;
    float largest = 0;
    for (size_t i = 0; i < embedding; i++)
        largest = fmaxf(largest, fabsf(o[0].parameters[i]));
    CHECK(largest > 0);
    CHECK_NEAR(0, fixture_distance(o[0].parameters, o[1].parameters, embedding), 1e-6 * largest);
    CHECK_BYTES(o[0].parameters + embedding, o[1].parameters + embedding,
                (o[0].n - embedding) * sizeof(float));
    CHECK(o[0].facts[0].loss == o[1].facts[0].loss);
    free(o[0].parameters), free(o[1].parameters);
}

/* Trains on some devices with gradients that are added in parts of `bytes`, on a device that works
 * in some way. */
static outcome train_in_parts(const char *device, const char *bytes, bool frozen, size_t way)
{
    emulated_setup setup = emulated_way(way);
    dl_config *config = config_on("diloco", device, "4");
    set(config, "parameters.model.layers", "2");
    set(config, "trainer.gradient_bucket_bytes", bytes);
    setup.seed += 100 * way; /* other streams are lazy */
    if (frozen) set(config, "parameters.model.frozen", "model.layers.1.mlp, model.norm");
    setup.devices = MOST_DEVICES;
    emulated_configure(&setup);
    outcome out = train(config, false);
    free(config);
    return out;
}

static void check_same(const outcome *a, const outcome *b)
{
    CHECK_INT(a->n, b->n);
    CHECK_BYTES(a->parameters, b->parameters, a->n * sizeof(float));
    for (size_t i = 0; i < STEPS; i++) {
        CHECK(a->facts[i].loss == b->facts[i].loss);
        CHECK(a->facts[i].grad_norm == b->facts[i].grad_norm);
    }
}

/* The first part may be complete while the first device has work left, or not. So devices work
 * late, at once and at random, in all orders of threads. 1 gives the smallest parts, 1000000 a
 * single one; 0 is the sum after the backward pass. */
TEST(gradients_that_are_added_in_parts_of_any_size_have_the_bits_of_one_sum)
{
    static const char *const devices[] = {"cuda:0,1", "cuda:2,0,3,1"};
    static const char *const sizes[] = {"1", "3000", "8192", "1000000"};
    for (size_t k = 0; k < 2; k++) {
        const outcome whole = train_in_parts(devices[k], "0", k, 0);
        for (size_t way = 0; way < EMULATED_WAYS * emulated_seeds(1); way++) {
            const outcome o = train_in_parts(devices[k], sizes[(k + way) % 4], k, way);
            check_same(&whole, &o);
            free(o.parameters);
        }
        free(whole.parameters);
    }
}

/* Trains on some devices with the optimizer on the first one, or divided. */
static outcome train_divided(const char *device, const char *optimizer, bool divided, size_t way)
{
    emulated_setup setup = emulated_way(way);
    dl_config *config = config_on("diloco", device, "4");
    set(config, "parameters.model.layers", "2");
    set(config, "trainer.optimizer", optimizer);
    set(config, "trainer.gradient_clip", "0.5"); /* below each norm */
    set(config, "trainer.proximal_mu", "0.01");
    set(config, "trainer.gradient_bucket_bytes", "3000");
    set(config, "trainer.zero_stage", divided ? "1" : "0");
    setup.devices = MOST_DEVICES;
    emulated_configure(&setup);
    outcome out = train(config, false);
    free(config);
    return out;
}

TEST(optimizer_that_is_divided_among_devices_has_the_bits_of_one)
{
    static const char *const rows[][2] = {{"cuda:0,1", "adamw"},
                                          {"cuda:2,0,3,1", "muon"},
                                          {"cuda:2,0,3,1", "qhadamw"},
                                          {"cuda:1,0", "rmsprop"},
                                          {"cuda:0,1", "sgd"}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        const outcome one = train_divided(rows[k][0], rows[k][1], false, 0);
        for (size_t way = k; way < EMULATED_WAYS * emulated_seeds(1); way += 4) {
            const outcome all = train_divided(rows[k][0], rows[k][1], true, way);
            check_same(&one, &all);
            free(all.parameters);
        }
        CHECK(one.facts[0].grad_norm > 0.5);
        free(one.parameters);
    }
}

static diloco_status train_run(const dl_config *config, fixture_record *record)
{
    diloco_train_hooks hooks = {.on_progress = fixture_on_progress,
                                .on_record = fixture_on_record,
                                .user = record,
                                .stop = &record->stop};
    return diloco_train(config, "r0", &hooks);
}

/* The private state is the same, so each may resume what another saved. */
static const struct resume {
    const char *optimizer, *zero; /* zero: of the second part; the first has 1 */
} resumes[] = {{"adamw", "1"}, {"muon", "1"}, {"adamw", "0"}};

static void check_divided_resume(const struct resume *r)
{
    size_t n;
    fixture_record whole = {0}, first = {.stop_at = 6}, second = {0};
    dl_config *a = config_on("diloco", "cuda:0,1", "4"), *b = config_on("diloco", "cuda:0,1", "4");
    set(a, "trainer.optimizer", r->optimizer);
    set(b, "trainer.optimizer", r->optimizer);
    set(b, "trainer.zero_stage", "1");
    begin(1);
    CHECK_OK(train_run(a, &whole));
    CHECK_STATUS(DILOCO_EINTERRUPTED, train_run(b, &first));
    set(b, "trainer.zero_stage", r->zero);
    CHECK_OK(train_run(b, &second));
    CHECK_INT(6, fixture_count(&first, "step"));
    float *expected = fixture_theta(a, &n), *theta = fixture_theta(b, &n);
    CHECK_BYTES(expected, theta, n * sizeof *theta);
    free(expected), free(theta);
    fixture_record_free(&whole), fixture_record_free(&first), fixture_record_free(&second);
    free(a), free(b);
}

TEST(run_with_a_divided_optimizer_resumes_bitwise_also_with_one_that_is_not)
{
    for (size_t i = 0; i < sizeof resumes / sizeof resumes[0]; i++)
        check_divided_resume(&resumes[i]);
}

/* Returns whether a line of the record has the text. */
static bool has_line(const fixture_record *record, const char *text)
{
    bool found = false;
    for (size_t i = 0; i < record->n; i++)
        found |= strstr(record->lines[i], text) != NULL;
    return found;
}

/* Cards that save and others that resume. Other cards update other elements. */
static const struct move {
    const char *from, *to, *optimizer, *warning;
} moves[] = {
    {"cuda:0,1", "cuda:2,0,3,1", "adamw", "saved with 2 x emulated device"},
    {"cuda:2,0,3,1", "cuda:1,0", "muon", "saved with 4 x emulated device"},
    {"cuda:3,1", "cuda", "qhadamw", "saved with 2 x emulated device"},
    {"cuda", "cuda:0,1", "adamw", "saved with emulated device"},
};

/* Trains on m->from up to the stop, and then on m->to. */
static float *train_moved(const struct move *m, bool divided, size_t *n)
{
    fixture_record first = {.stop_at = 6}, second = {0};
    dl_config *config = config_on("diloco", m->from, "4");
    set(config, "trainer.optimizer", m->optimizer);
    set(config, "trainer.zero_stage", divided && strchr(m->from, ',') ? "1" : "0");
    begin(1 + divided);
    CHECK_STATUS(DILOCO_EINTERRUPTED, train_run(config, &first));
    set(config, "trainer.device", m->to);
    set(config, "trainer.zero_stage", divided && strchr(m->to, ',') ? "1" : "0");
    CHECK_OK(train_run(config, &second));
    CHECK_INT(6, fixture_count(&first, "step"));
    CHECK(fixture_count(&second, "step") > 0);
    CHECK(has_line(&second, m->warning));
    float *theta = fixture_theta(config, n);
    fixture_record_free(&first), fixture_record_free(&second);
    free(config);
    return theta;
}

TEST(run_with_a_divided_optimizer_resumes_on_other_cards_as_one_that_is_not)
{
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        size_t n, n_divided;
        float *one = train_moved(&moves[i], false, &n);
        float *divided = train_moved(&moves[i], true, &n_divided);
        CHECK_INT(n, n_divided);
        CHECK_BYTES(one, divided, n * sizeof *one);
        free(one), free(divided);
    }
}

TEST(several_devices_train_as_one_with_the_same_micro_batches)
{
    static const char *const rows[][3] = {
        {"cuda:0,1", "2", "adamw"}, {"cuda:0,1", "4", "muon"}, {"cuda:0,1,2,3", "4", "sgd"}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        outcome o[2];
        train_both(o, rows[k][0], rows[k][1], rows[k][2], false);
        for (size_t i = 0; i < STEPS; i++) {
            const dl_step_facts *one = &o[0].facts[i], *all = &o[1].facts[i];
            CHECK_INT(one->samples, all->samples);
            CHECK_INT(one->tokens, all->tokens);
            CHECK_NEAR(one->loss, all->loss, 1e-5);
            CHECK_NEAR(one->grad_norm, all->grad_norm, 1e-5);
        }
        CHECK_NEAR(0, fixture_distance(o[0].parameters, o[1].parameters, o[0].n), 1e-5);
        free(o[0].parameters), free(o[1].parameters);
    }
}

TEST(run_on_two_devices_that_was_stopped_resumes_bitwise)
{
    size_t n;
    fixture_record whole = {0}, first = {.stop_at = 6}, second = {0};
    dl_config *a = config_on("diloco", "cuda:0,1", "4"), *b = config_on("diloco", "cuda:0,1", "4");
    begin(1);
    CHECK_OK(train_run(a, &whole));
    CHECK_STATUS(DILOCO_EINTERRUPTED, train_run(b, &first));
    CHECK_OK(train_run(b, &second));
    CHECK_INT(6, fixture_count(&first, "step"));
    CHECK_INT(fixture_count(&whole, "step"), 6 + fixture_count(&second, "step"));
    float *expected = fixture_theta(a, &n), *theta = fixture_theta(b, &n);
    CHECK_BYTES(expected, theta, n * sizeof *theta);
    free(expected), free(theta);
    fixture_record_free(&whole), fixture_record_free(&first), fixture_record_free(&second);
    free(a), free(b);
}

/* Another order of sums: the replica says so, as it does of another card. */
TEST(run_that_resumes_on_another_number_of_devices_warns)
{
    fixture_record first = {.stop_at = 6}, second = {0};
    dl_config *config = config_on("diloco", "cuda:0,1", "2");
    begin(1);
    CHECK_STATUS(DILOCO_EINTERRUPTED, train_run(config, &first));
    set(config, "trainer.device", "cuda");
    CHECK_OK(train_run(config, &second));
    CHECK(has_line(&second, "saved with 2 x emulated device"));
    fixture_record_free(&first), fixture_record_free(&second);
    free(config);
}

/* The name in the saved state is that of the first device. */
TEST(devices_of_which_some_have_the_library_of_products_are_refused)
{
    dl_config *config = config_on("diloco", "cuda:0,1,2", "3");
    for (n_with_products = 0; n_with_products <= 3; n_with_products++) {
        dl_setup s;
        dl_ranks *ranks;
        begin(1);
        CHECK_OK(dl_setup_open(&s, config, 1, (size_t)config->batch_size));
        if (n_with_products % 3 == 0) {
            CHECK_OK(dl_ranks_open(&ranks, &s));
        } else {
            CHECK_STATUS(DILOCO_EREFUSED, dl_ranks_open(&ranks, &s));
            CHECK_CONTAINS("the first is emulated device, cuBLASLt 13.1.1, and number",
                           diloco_error_text());
            CHECK_CONTAINS("of the list is emulated device. Name cards of one kind",
                           diloco_error_text());
        }
        dl_ranks_close(ranks);
        dl_setup_close(&s);
        CHECK_INT(0, emulated_leaked());
    }
    n_with_products = 0;
    free(config);
}

/* Fills the pinned memory of the second device with a copy to new memory, which the caller
 * releases. *memory is NULL after an error. */
static diloco_status fill_stage(void **memory, const dl_step *step)
{
    dl_backend *backend = dl_ranks_backend(step->ranks, 1);
    const size_t n = dl_backend_cuda_room(backend);
    void *host = calloc(1, n);
    CHECK(host != NULL);
    const diloco_status status = dl_backend_alloc(backend, memory, n);
    if (!status) dl_backend_copy_in(backend, *memory, host, n);
    free(host);
    return status;
}

/* A step makes room for these bytes. If the copies took more, one of them could wait for a device
 * that in turn waits for a failed one. */
TEST(micro_batch_copies_the_bytes_that_a_step_makes_room_for)
{
    dl_setup s;
    dl_config *config = config_on("diloco", "cuda:0,1", "2");
    const size_t rows = (size_t)config->batch_size;
    begin(1);
    CHECK_OK(dl_setup_open(&s, config, 1, rows));
    dl_data_batch(s.data, s.inputs, s.targets, 0, 0, rows);
    const size_t room = dl_backend_cuda_room(s.backend);
    CHECK_OK(dl_model_train(s.model, s.inputs, s.targets, rows, 1, false));
    CHECK_INT(room - dl_model_batch_bytes(s.model, rows), dl_backend_cuda_room(s.backend));
    dl_setup_close(&s);
    free(config);
}

TEST(step_with_full_pinned_memory_has_the_loss_of_another)
{
    double losses[2];
    dl_config *config = config_on("diloco", "cuda:0,1", "2");
    for (size_t full = 0; full < 2; full++) {
        dl_setup s;
        dl_step step;
        dl_step_facts facts;
        void *memory = NULL;
        begin(1);
        CHECK_OK(dl_setup_open(&s, config, 1, (size_t)config->batch_size));
        fixture_initial(&s);
        CHECK_OK(dl_step_init(&step, &s, false));
        if (full) CHECK_OK(fill_stage(&memory, &step));
        CHECK_OK(dl_step_take(&facts, &step, 0, 0, 1e-3));
        losses[full] = facts.loss;
        dl_backend_release(dl_ranks_backend(step.ranks, 1), memory);
        dl_step_deinit(&step);
        dl_setup_close(&s);
    }
    CHECK(losses[0] == losses[1]);
    free(config);
}

/* One call of the driver or of the library fails, up to the end of a step. The step or an earlier
 * call fails, and waits for no device. A step whose loss is read already is complete, and the next
 * one fails. With `loses` the call's device is lost. Without, the step also waits before it copies
 * a micro-batch to the second device. at 0: none fails. Returns whether the call was reached. */
static bool fails_at(const dl_config *config, uint64_t at, bool loses, double *loss)
{
    dl_setup s;
    dl_step step;
    dl_step_facts facts;
    void *memory = NULL;
    emulated_configure(&(emulated_setup){.seed = at,
                                         .devices = 2,
                                         .fail_at = at,
                                         .fail_with = DL_CUDA_LAUNCH_FAILED,
                                         .loses_device = loses});
    diloco_status status = dl_setup_open(&s, config, 1, (size_t)config->batch_size);
    if (!status) {
        fixture_initial(&s);
        status = dl_step_init(&step, &s, false);
        if (!status && !loses) status = fill_stage(&memory, &step);
        if (!status) status = dl_step_take(&facts, &step, 0, 0, 1e-3);
        if (!status && !at) *loss = facts.loss;
        if (!status) CHECK(facts.loss == *loss);
        const bool late = !status && at && emulated_calls() >= at;
        if (late) status = dl_step_take(&facts, &step, 0, 0, 1e-3);
        CHECK((!at || emulated_calls() < at) == !status);
        if (memory) dl_backend_release(dl_ranks_backend(step.ranks, 1), memory);
        dl_step_deinit(&step);
        dl_setup_close(&s);
    }
    CHECK_INT(0, emulated_communicators());
    CHECK(!emulated_has_ended());
    return emulated_calls() >= at;
}

/* Also with gradients in parts and a divided optimizer. DISTANCE seeds have each call once, and the
 * next DISTANCE have it with the other value of `loses`. */
TEST(failing_call_fails_the_step_and_leaves_no_device_waiting)
{
    enum { DISTANCE = 23 };
    for (size_t divided = 0; divided < 2; divided++) {
        double loss;
        dl_config *config = config_on("diloco", "cuda:0,1", "2");
        if (divided) set(config, "trainer.gradient_bucket_bytes", "3000");
        if (divided) set(config, "trainer.zero_stage", "1");
        CHECK(fails_at(config, 0, false, &loss));
        const uint64_t seed = emulated_first_seed() - 1;
        uint64_t at = 1 + seed % DISTANCE;
        while (fails_at(config, at, (at + seed / DISTANCE) % 2, &loss))
            at += DISTANCE;
        free(config);
    }
}

TEST_MAIN(two_devices_have_the_gradient_of_one_with_two_micro_batches,
          gradients_that_are_added_in_parts_of_any_size_have_the_bits_of_one_sum,
          optimizer_that_is_divided_among_devices_has_the_bits_of_one,
          run_with_a_divided_optimizer_resumes_bitwise_also_with_one_that_is_not,
          run_with_a_divided_optimizer_resumes_on_other_cards_as_one_that_is_not,
          several_devices_train_as_one_with_the_same_micro_batches,
          run_on_two_devices_that_was_stopped_resumes_bitwise,
          run_that_resumes_on_another_number_of_devices_warns,
          devices_of_which_some_have_the_library_of_products_are_refused,
          micro_batch_copies_the_bytes_that_a_step_makes_room_for,
          step_with_full_pinned_memory_has_the_loss_of_another,
          failing_call_fails_the_step_and_leaves_no_device_waiting)
