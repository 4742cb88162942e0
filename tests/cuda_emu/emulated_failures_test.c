/* emulated_failures_test.c - a replica on the emulated device, one call of whose driver fails. The
 * run ends with one error that names the device, or the call did not matter. In both cases the same
 * command finishes the run, with the bits of a run without a failure. */
#include "cuda_emu/emulated_backend.h"
#include "nn/device.h"
#include "train_fixture.h"

/* By -Wl,--wrap: the card is the emulated device. */
__typeof__(dl_device_open) __wrap_dl_device_open;

diloco_status __wrap_dl_device_open(dl_backend **out, const char *device, size_t rank)
{
    static const char image[] = "the kernels are in the device program";
    static const dl_span images[] = {{image, sizeof image}};
    const dl_cuda_source source = {
        .name = "emulated", .library = EMULATED_LIBRARY, .images = images, .n_images = 1};
    dl_device_list list;
    *out = NULL;
    DL_TRY(dl_device_of_name(&list, device));
    return dl_backend_cuda(out, &source, list.cards[rank]);
}

/* A run of two entries of two steps. */
static dl_config *short_run(void)
{
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.device", "cuda");
    set(config, "trainer.local_steps_per_round", "2");
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
    emulated_configure(&setup);
    const diloco_status status = diloco_train(config, "r0", &hooks);
    *calls = emulated_calls();
    fixture_record_free(&record);
    return status;
}

/* Returns whether the run has ended with an error. */
static bool check_failure(const float *expected, size_t n, uint64_t at)
{
    const int code = at % 2 ? DL_CUDA_LAUNCH_FAILED : DL_CUDA_OUT_OF_MEMORY;
    dl_config *config = short_run();
    uint64_t calls;
    size_t n_theta;
    const diloco_status status = run(config, at, code, &calls);
    CHECK(calls >= at);
    if (status) {
        CHECK(status == DILOCO_EIO || status == DILOCO_ENOMEM);
        CHECK_CONTAINS("emulated", diloco_error_text());
        CHECK_OK(run(config, 0, 0, &calls));
    }
    float *theta = fixture_theta(config, &n_theta);
    CHECK_INT(n, n_theta);
    CHECK_BYTES(expected, theta, n * sizeof *theta);
    free(theta), free(config);
    return status != DILOCO_OK;
}

/* Calls at an even distance, others with each seed. */
TEST(run_whose_driver_fails_once_ends_with_its_error_and_resumes_bitwise)
{
    enum { EACH = 12 };
    uint64_t calls;
    size_t n, n_failed = 0, n_tried = EACH * emulated_seeds(1);
    dl_config *config = short_run();
    CHECK_OK(run(config, 0, 0, &calls));
    float *expected = fixture_theta(config, &n);
    for (size_t i = 0; i < n_tried; i++)
        n_failed += check_failure(expected, n,
                                  1 + (i * calls + emulated_first_seed() * 7919 % calls) / n_tried);
    CHECK(n_failed > n_tried / 2);
    free(expected), free(config);
}

TEST_MAIN(run_whose_driver_fails_once_ends_with_its_error_and_resumes_bitwise)
