/* emulated_failures_test.c - a replica on one emulated device or on two. One call of its driver, or
 * of the library of collectives, fails. The run ends with one error that names the device or its
 * collectives, or the call did not matter. In both cases the same command finishes the run, with
 * the bits of a run without a failure. */
#include "cuda_emu/emulated_backend.h"
#include "cuda_emu/emulated_nccl.h"
#include "nn/device.h"
#include "train_fixture.h"

/* By -Wl,--wrap: the card is the emulated device. */
__typeof__(dl_device_open) __wrap_dl_device_open;

diloco_status __wrap_dl_device_open(dl_backend **out, const char *device, size_t rank)
{
    static const char image[] = "the kernels are in the device program";
    static const dl_span images[] = {{image, sizeof image}};
    const dl_cuda_source source = {.name = "emulated",
                                   .library = EMULATED_LIBRARY,
                                   .images = images,
                                   .n_images = 1,
                                   .poisons = true,
                                   .collectives = EMULATED_NCCL};
    dl_device_list list;
    *out = NULL;
    DL_TRY(dl_device_of_name(&list, device));
    return dl_backend_cuda(out, &source, list.cards[rank]);
}

/* A run of two entries of two steps. Two devices divide the optimizer, and add gradients in parts.
 */
static dl_config *short_run(size_t n_devices, bool exchanges)
{
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.device", n_devices == 1 ? "cuda" : "cuda:1,0");
    set(config, "trainer.local_steps_per_round", "2");
    if (exchanges) set(config, "trainer.device_exchange", "true");
    if (exchanges) set(config, "server.diloco.codec", "int4");
    if (exchanges) set(config, "server.diloco.overlap_steps", "1"); /* saves beside training */
    if (n_devices == 1) return config;
    set(config, "trainer.gradient_accumulation_steps", "2");
    set(config, "trainer.gradient_bucket_bytes", "3000");
    set(config, "trainer.zero_stage", "1");
    return config;
}

/* Runs until the end or an error. The call `fail_at` fails; 0: none. *calls: how many there were.
 */
static diloco_status run(const dl_config *config, uint64_t fail_at, int fail_with, uint64_t *calls)
{
    fixture_record record = {0};
    const diloco_train_hooks hooks = {
        .on_record = fixture_on_record, .user = &record, .stop = &record.stop};
    emulated_setup setup = emulated_way(fail_at % EMULATED_WAYS);
    setup.fail_at = fail_at;
    setup.fail_with = fail_with;
    setup.loses_device = fail_with == DL_CUDA_LAUNCH_FAILED;
    setup.devices = 2;
    emulated_configure(&setup);
    const diloco_status status = diloco_train(config, "r0", &hooks);
    *calls = emulated_calls();
    fixture_record_free(&record);
    CHECK_INT(0, emulated_communicators());
    CHECK(!emulated_has_ended());
    return status;
}

/* The error is one of the device, of its memory, or of collectives. */
static void check_text(void)
{
    static const char *const texts[] = {
        "the emulated device failed: ", "bytes on backend emulated",
        "the collectives between the cards failed: ", "NCCL cannot connect the cards: "};
    const char *text = diloco_error_text();
    bool found = false;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        found |= strstr(text, texts[i]) != NULL;
    if (!found) CHECK_FAIL("the error names no device: %s", text);
    CHECK(!strstr(text, "(null)")); /* it names the call */
}

/* A run, and the theta that it ends with if nothing fails. */
typedef struct setting {
    size_t n_devices;
    bool exchanges; /* on the device */
    const float *expected;
    size_t n;
} setting;

/* Returns whether the run has ended with an error. */
static bool check_failure(const setting *s, uint64_t at, int code)
{
    dl_config *config = short_run(s->n_devices, s->exchanges);
    uint64_t calls;
    size_t n_theta;
    const diloco_status status = run(config, at, code, &calls);
    CHECK(!status || calls >= at); /* a run whose streams work otherwise may have fewer calls */
    if (status) {
        CHECK(status == DILOCO_EIO || status == DILOCO_ENOMEM);
        check_text();
        CHECK_OK(run(config, 0, 0, &calls));
    }
    emulated_configure(&(emulated_setup){.seed = 1, .devices = 2}); /* it may not have failed yet */
    float *theta = fixture_theta(config, &n_theta);
    CHECK_INT(s->n, n_theta);
    CHECK_BYTES(s->expected, theta, s->n * sizeof *theta);
    free(theta), free(config);
    return status != DILOCO_OK;
}

/* Tries the calls of a seed, which are at an even distance. Returns how many have failed. SEEDS
 * seeds have each call once, and the next SEEDS have it with the other result. */
static size_t try_seed(const setting *s, uint64_t calls, uint64_t seed, size_t *n_tried)
{
    enum { SEEDS = 100 };
    static const int codes[] = {DL_CUDA_OUT_OF_MEMORY, DL_CUDA_LAUNCH_FAILED};
    size_t n_failed = 0;
    for (uint64_t at = 1 + seed * 37 % SEEDS; at <= calls; at += SEEDS, ++*n_tried)
        n_failed += check_failure(s, at, codes[(at / SEEDS + (seed - 1) / SEEDS) % 2]);
    return n_failed;
}

static void check_failures(size_t n_devices, bool exchanges)
{
    uint64_t calls;
    size_t n, n_failed = 0, n_tried = 0;
    dl_config *config = short_run(n_devices, exchanges);
    CHECK_OK(run(config, 0, 0, &calls));
    float *expected = fixture_theta(config, &n);
    const setting s = {n_devices, exchanges, expected, n};
    for (uint64_t seed = 0; seed < emulated_seeds(1); seed++)
        n_failed += try_seed(&s, calls, emulated_first_seed() + seed, &n_tried);
    CHECK(n_failed > n_tried / 2);
    free(expected), free(config);
}

TEST(run_whose_driver_fails_once_ends_with_its_error_and_resumes_bitwise)
{
    check_failures(1, false);
}

TEST(run_on_two_devices_with_one_failing_call_ends_with_its_error_and_resumes_bitwise)
{
    check_failures(2, false);
}

TEST(run_that_exchanges_on_a_device_with_one_failing_call_ends_with_its_error_and_resumes_bitwise)
{
    check_failures(1, true);
}

TEST_MAIN(
    run_whose_driver_fails_once_ends_with_its_error_and_resumes_bitwise,
    run_on_two_devices_with_one_failing_call_ends_with_its_error_and_resumes_bitwise,
    run_that_exchanges_on_a_device_with_one_failing_call_ends_with_its_error_and_resumes_bitwise)
