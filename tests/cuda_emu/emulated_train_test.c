/* emulated_train_test.c - replicas that train on the emulated device, alone and beside one on the
 * CPU. The outer step runs on the host, so their digests are equal. */
#include "cuda_emu/on_emulated.h"
#include "image_files.h"
#include "train_fixture.h"
#include <diloco/inspect.h>

static diloco_status train(const dl_config *config, fixture_record *record)
{
    diloco_train_hooks hooks = {.on_progress = fixture_on_progress,
                                .on_record = fixture_on_record,
                                .user = record,
                                .stop = &record->stop};
    return diloco_train(config, "r0", &hooks);
}

static void in_bf16(dl_config *config)
{
    set(config, "trainer.device", "cuda");
    set(config, "trainer.precision", "bf16");
}

/* Every second replica is on the device. One on the CPU computes in f32 in any case. */
static void check_digests(const char *const *presets, size_t n_presets, bool bf16)
{
    emulated_every = 2;
    for (size_t i = 0; i < n_presets; i++) {
        fixture_record records[2] = {{0}};
        dl_config *config = fixture_config(presets[i]);
        set(config, "run.replicas", "2");
        if (bf16) in_bf16(config);
        fixture_train(config, records, 2);
        const size_t n = fixture_count(&records[0], "commit");
        CHECK(n >= 2);
        CHECK_INT(n, fixture_count(&records[1], "commit"));
        for (size_t e = 0; e < n; e++) {
            char digest[2][33];
            for (size_t k = 0; k < 2; k++)
                CHECK_OK(dl_json_read_str(digest[k], sizeof digest[k],
                                          fixture_nth(&records[k], "commit", e), "digest"));
            CHECK_STR(digest[0], digest[1]);
        }
        fixture_record_free(&records[0]), fixture_record_free(&records[1]);
        free(config);
    }
    emulated_every = 1;
}

TEST(replica_on_the_device_and_one_on_the_cpu_agree_after_every_entry)
{
    check_digests((const char *const[]){"diloco", "streaming", "data_parallel"}, 3, false);
}

TEST(replica_in_bf16_and_one_in_f32_agree_after_every_entry)
{
    check_digests((const char *const[]){"diloco", "data_parallel"}, 2, true);
}

/* Gives the theta at the end, owned by the caller. */
static float *check_resume(size_t *n, bool bf16)
{
    fixture_record whole = {0}, first = {.stop_at = 6}, second = {0};
    dl_config *a = fixture_config("diloco"), *b = fixture_config("diloco");
    if (bf16) in_bf16(a), in_bf16(b);
    fixture_train(a, &whole, 1);
    CHECK_STATUS(DILOCO_EINTERRUPTED, train(b, &first));
    CHECK_OK(train(b, &second));
    CHECK_INT(6, fixture_count(&first, "step"));
    CHECK_INT(fixture_count(&whole, "step"), 6 + fixture_count(&second, "step"));
    float *expected = fixture_theta(a, n), *theta = fixture_theta(b, n);
    CHECK_BYTES(expected, theta, *n * sizeof *theta);
    free(expected);
    fixture_record_free(&whole), fixture_record_free(&first), fixture_record_free(&second);
    free(a), free(b);
    return theta;
}

TEST(run_on_the_device_that_was_stopped_resumes_bitwise_in_both_precisions)
{
    size_t n;
    float *f32 = check_resume(&n, false), *bf16 = check_resume(&n, true);
    CHECK(memcmp(f32, bf16, n * sizeof *f32) != 0);
    free(f32), free(bf16);
}

TEST(resume_in_another_precision_is_reported)
{
    fixture_record first = {.stop_at = 6}, second = {0};
    dl_config *config = fixture_config("diloco");
    char code[32] = "", text[512] = "";
    in_bf16(config);
    CHECK_STATUS(DILOCO_EINTERRUPTED, train(config, &first));
    set(config, "trainer.precision", "f32");
    CHECK_OK(train(config, &second));
    for (size_t i = 0; i < fixture_count(&second, "warn") && strcmp(code, "machine") != 0; i++) {
        const dl_json_value warning = fixture_nth(&second, "warn", i);
        CHECK_OK(dl_json_read_str(code, sizeof code, warning, "code"));
        CHECK_OK(dl_json_read_str(text, sizeof text, warning, "text"));
    }
    CHECK_STR("machine", code);
    CHECK_CONTAINS(", bf16, ", strstr(text, "saved with "));
    CHECK(strstr(strstr(text, "resumed with "), "bf16") == NULL);
    fixture_record_free(&first), fixture_record_free(&second);
    free(config);
}

/* A run on images, whose models have no kernels. */
static void check_refused(const char *model, const char *source, const char *folder)
{
    fixture_record record = {0};
    dl_config *config = malloc(sizeof *config);
    CHECK(config != NULL);
    dl_config_init(config);
    CHECK_OK(diloco_preset_apply(config, "diloco"));
    set(config, "run.store", scratch_path(model));
    set(config, "trainer.model_name", model);
    set(config, "data.datasource", source);
    set(config, "data.train_path", folder);
    CHECK_STATUS(DILOCO_EREFUSED, train(config, &record));
    CHECK_CONTAINS("backend has no operation image (forward)", diloco_error_text());
    CHECK_INT(0, fixture_count(&record, "step"));
    fixture_record_free(&record);
    free(config);
}

TEST(run_of_a_model_without_kernels_is_refused_by_the_name_of_an_operation)
{
    char *mnist = scratch_folder("mnist"), *cifar = scratch_folder("cifar");
    mnist_files(mnist, "train", 40, 1);
    cifar_file(cifar, "data_batch_1.bin", 40, 1);
    check_refused("lenet5", "MNIST", mnist);
    check_refused("mlp", "MNIST", mnist);
    check_refused("resnet_18", "CIFAR10", cifar);
}

TEST_MAIN(replica_on_the_device_and_one_on_the_cpu_agree_after_every_entry,
          replica_in_bf16_and_one_in_f32_agree_after_every_entry,
          run_on_the_device_that_was_stopped_resumes_bitwise_in_both_precisions,
          resume_in_another_precision_is_reported,
          run_of_a_model_without_kernels_is_refused_by_the_name_of_an_operation)
