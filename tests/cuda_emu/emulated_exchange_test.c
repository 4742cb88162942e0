/* emulated_exchange_test.c - replicas whose due points are computed on the emulated device
 * (trainer.device_exchange). Every entry has the digest that it has without the option, and that of
 * a replica on the CPU in the same run. */
#include "cuda_emu/emulated_backend.h"
#include "cuda_emu/emulated_nccl.h"
#include "nn/device.h"
#include "train_fixture.h"

/* By -Wl,--wrap: a card is the emulated device. */
__typeof__(dl_device_open) __real_dl_device_open, __wrap_dl_device_open;

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
    if (list.kind == DL_DEVICE_CPU) return __real_dl_device_open(out, device, rank);
    return dl_backend_cuda(out, &source, list.cards[rank]);
}

enum { MOST_OPTIONS = 16 };

/* A run of a preset with options, as names and values, the last NULL. */
typedef struct a_run {
    const char *preset;
    const char *options[MOST_OPTIONS];
} a_run;

static dl_config *config_of(const a_run *run, const char *device, const char *on_device)
{
    dl_config *config = fixture_config(run->preset);
    set(config, "trainer.rounds", "3");
    for (size_t i = 0; run->options[i]; i += 2)
        set(config, run->options[i], run->options[i + 1]);
    set(config, "trainer.device", device);
    set(config, "trainer.device_exchange", on_device);
    return config;
}

static void digest_of(char out[33], const fixture_record *record, size_t entry)
{
    CHECK_OK(dl_json_read_str(out, 33, fixture_nth(record, "commit", entry), "digest"));
}

static void check_equal(const fixture_record *a, const fixture_record *b)
{
    char first[33], second[33];
    const size_t n = fixture_count(a, "commit");
    CHECK(n >= 3);
    CHECK_INT(n, fixture_count(b, "commit"));
    for (size_t e = 0; e < n; e++) {
        digest_of(first, a, e), digest_of(second, b, e);
        CHECK_STR(first, second);
    }
}

/* Trains r0 on the device and r1 on the CPU, in one run. */
static void train_pair(fixture_record records[2], const a_run *run, const char *on_device)
{
    fixture_replica replicas[2];
    dl_config *config = config_of(run, "cuda", on_device), *other = config_of(run, "cpu", "false");
    set(config, "run.replicas", "2"), set(other, "run.replicas", "2");
    set(other, "run.store", config->store);
    for (size_t i = 0; i < 2; i++) {
        replicas[i] = (fixture_replica){.config = i ? other : config, .record = &records[i]};
        snprintf(replicas[i].name, sizeof replicas[i].name, "r%zu", i);
        CHECK_INT(0, pthread_create(&replicas[i].thread, NULL, fixture_run, &replicas[i]));
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(replicas[i].thread, NULL);
    for (size_t i = 0; i < 2; i++)
        if (replicas[i].status) CHECK_FAIL("%s: %s", replicas[i].name, replicas[i].text);
    free(config), free(other);
}

static const a_run runs[] = {
    {"diloco", {"server.diloco.codec", "int8", "server.diloco.compression", "zstd", NULL}},
    {"diloco",
     {"server.diloco.codec", "int4", "server.diloco.fragments", "2", "run.state_dir", "none",
      NULL}},
    {"diloco", {"server.diloco.codec", "int2", "server.diloco.exchange", "sharded", NULL}},
    {"diloco", {NULL}},
    {"diloco", {"run.save_every", "2", "run.save_beside", "false", NULL}},
    {"diloco", {"run.state_dir", "none", "run.offload", "disk", NULL}},
    {"diloco",
     {"server.diloco.codec", "int4", "server.diloco.error_feedback", "0.9",
      "server.diloco.outer_optimizer", "sgd", NULL}},
    {"streaming",
     {"parameters.model.layers", "2", "server.diloco.fragments", "3",
      "trainer.local_steps_per_round", "6", "server.diloco.overlap_steps", "1",
      "server.diloco.local_mix", "0.5", NULL}},
    {"streaming",
     {"parameters.model.layers", "2", "server.diloco.fragments", "3",
      "trainer.local_steps_per_round", "6", "server.diloco.overlap_steps", "3",
      "server.diloco.codec", "int4", NULL}},
    {"diloco", {"parameters.model.frozen", "model.norm", "server.diloco.exchange", "leader", NULL}},
};
enum { N_RUNS = sizeof runs / sizeof runs[0], INT8 = 0, PLAIN = 3, STREAMING = 7, IN_FLIGHT = 8 };

TEST(entries_have_the_digests_of_a_replica_on_the_cpu_and_of_a_run_without_the_option)
{
    for (size_t i = 0; i < N_RUNS; i++) {
        fixture_record with[2] = {{0}}, without[2] = {{0}};
        const emulated_setup setup = emulated_way(i);
        emulated_configure(&setup);
        train_pair(with, &runs[i], "true");
        train_pair(without, &runs[i], "false");
        check_equal(&with[0], &with[1]);
        check_equal(&with[0], &without[0]);
        CHECK_INT(0, emulated_leaked());
        for (size_t k = 0; k < 2; k++)
            fixture_record_free(&with[k]), fixture_record_free(&without[k]);
    }
}

TEST(entries_of_an_asynchronous_run_have_the_digests_of_a_replica_on_the_cpu)
{
    fixture_record records[2] = {{0}};
    emulated_configure(&(emulated_setup){.seed = emulated_first_seed()});
    train_pair(records, &(a_run){"async", {"server.diloco.codec", "int8", NULL}}, "true");
    check_equal(&records[0], &records[1]);
    fixture_record_free(&records[0]), fixture_record_free(&records[1]);
}

/* Trains alone to the end, and gives the theta there, owned by the caller. */
static float *theta_of(const dl_config *config, size_t *n)
{
    fixture_record record = {0};
    fixture_train(config, &record, 1);
    fixture_record_free(&record);
    return fixture_theta(config, n);
}

TEST(two_cards_have_the_bits_of_an_exchange_on_the_host)
{
    size_t n;
    float *theta[2];
    const a_run run = {"diloco", {"trainer.gradient_accumulation_steps", "2", NULL}};
    for (size_t i = 0; i < 2; i++) {
        dl_config *config = config_of(&run, "cuda:1,0", i ? "true" : "false");
        emulated_configure(&(emulated_setup){.seed = 5, .when = EMULATED_RANDOM, .devices = 2});
        theta[i] = theta_of(config, &n);
        CHECK_INT(0, emulated_leaked());
        free(config);
    }
    CHECK_BYTES(theta[0], theta[1], n * sizeof(float));
    free(theta[0]), free(theta[1]);
}

/* A replica is stopped, with captures in flight, and resumes. */
static void check_resumes(const a_run *run)
{
    static const char *const values[][2] = {{"true", "true"}, {"true", "false"}, {"false", "true"}};
    size_t n;
    emulated_configure(&(emulated_setup){.seed = 7, .when = EMULATED_RANDOM});
    dl_config *whole = config_of(run, "cuda", "false");
    float *expected = theta_of(whole, &n);
    for (size_t i = 0; i < 3; i++) {
        fixture_record first = {.stop_at = 8};
        dl_config *config = config_of(run, "cuda", values[i][0]);
        CHECK_STATUS(DILOCO_EINTERRUPTED, fixture_run_all(config, &first, 1)->status);
        CHECK_INT(8, fixture_count(&first, "step"));
        set(config, "trainer.device_exchange", values[i][1]);
        float *theta = theta_of(config, &n);
        CHECK_BYTES(expected, theta, n * sizeof *theta);
        free(theta), free(config);
        fixture_record_free(&first);
    }
    free(expected), free(whole);
}

TEST(replica_resumes_bitwise_with_the_option_and_without_it)
{
    check_resumes(&runs[STREAMING]);
    check_resumes(&runs[IN_FLIGHT]);
}

/* One bit of what a kernel writes changes the run with the option, and not the run without it. */
TEST(kernels_of_the_exchange_run_with_the_option_alone)
{
    static const struct {
        const char *kernel;
        const a_run *run;
    } rows[] = {{"dl_form_movement", &runs[PLAIN]},
                {"dl_adopt_theta", &runs[PLAIN]},
                {"dl_encode_integers", &runs[INT8]}};
    for (size_t k = 0; k < 6; k++) {
        size_t n;
        const a_run *run = rows[k / 2].run;
        emulated_setup setup = {.seed = 1};
        emulated_configure(&setup);
        dl_config *sound = config_of(run, "cuda", "true");
        dl_config *faulty = config_of(run, "cuda", k % 2 ? "true" : "false");
        float *expected = theta_of(sound, &n);
        setup.fault = EMULATED_BIT_FLIPPED;
        snprintf(setup.fault_in, sizeof setup.fault_in, "%s", rows[k / 2].kernel);
        emulated_configure(&setup);
        float *theta = theta_of(faulty, &n);
        CHECK_INT(k % 2, memcmp(expected, theta, n * sizeof *theta) != 0);
        free(theta), free(expected), free(faulty), free(sound);
    }
}

TEST_MAIN(entries_have_the_digests_of_a_replica_on_the_cpu_and_of_a_run_without_the_option,
          entries_of_an_asynchronous_run_have_the_digests_of_a_replica_on_the_cpu,
          two_cards_have_the_bits_of_an_exchange_on_the_host,
          replica_resumes_bitwise_with_the_option_and_without_it,
          kernels_of_the_exchange_run_with_the_option_alone)
