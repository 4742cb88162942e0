/* extension_test.c - a run that extends another one (trainer.init_as = "extension") trains as one
 * long run would have: the same samples, learning rates and bits. */
#include "run/extension.h"

#include "nn/inner.h"
#include "state/paths.h"
#include "train_fixture.h"
#include <diloco/inspect.h>

enum { CREW = 2, H = 4 };

/* A run of two replicas and some rounds. Zero settings end the list. */
static dl_config *run_of(const char *rounds, const char *const (*settings)[2])
{
    dl_config *config = fixture_config("diloco");
    set(config, "run.replicas", "2");
    set(config, "trainer.rounds", rounds);
    for (; settings && (*settings)[0]; settings++)
        set(config, (*settings)[0], (*settings)[1]);
    return config;
}

static dl_config *extension_of(const dl_config *other, const char *rounds,
                               const char *const (*settings)[2])
{
    dl_config *config = run_of(rounds, settings);
    set(config, "trainer.init_from", other->store);
    set(config, "trainer.init_as", "extension");
    return config;
}

static void train(const dl_config *config, fixture_record records[CREW])
{
    for (int r = 0; r < CREW; r++)
        records[r] = (fixture_record){0};
    fixture_train(config, records, CREW);
}

static void free_records(fixture_record records[CREW])
{
    for (int r = 0; r < CREW; r++)
        fixture_record_free(&records[r]);
}

static int64_t first_step_of(const dl_config *config)
{
    dl_config *run = malloc(sizeof *run);
    CHECK(run != NULL);
    dl_config_init(run);
    CHECK_OK(diloco_run_config(run, config->store));
    const int64_t step = run->first_step;
    free(run);
    return step;
}

/* The shared model and the outer momentum, of equal bits. */
static void check_same_state(const dl_config *a, const dl_config *b)
{
    void *bytes[2];
    size_t len[2];
    uint64_t entry;
    CHECK_OK(diloco_theta_read(&bytes[0], &len[0], &entry, a->store, UINT64_MAX));
    CHECK_OK(diloco_theta_read(&bytes[1], &len[1], &entry, b->store, UINT64_MAX));
    CHECK_INT(len[0], len[1]);
    CHECK_BYTES(bytes[0], bytes[1], len[0]);
    diloco_free(bytes[0]), diloco_free(bytes[1]);
}

static double number(const fixture_record *record, size_t step, const char *key)
{
    return fixture_number(fixture_nth(record, "step", step), key);
}

/* Each step of the second run is that of the long one, `before` steps later. */
static void check_same_steps(const fixture_record *whole, const fixture_record *part, size_t before)
{
    const size_t n = fixture_count(part, "step");
    CHECK_INT(fixture_count(whole, "step"), before + n);
    for (size_t i = 0; i < n; i++) {
        CHECK(number(whole, before + i, "loss") == number(part, i, "loss"));
        CHECK(number(whole, before + i, "lr") == number(part, i, "lr"));
    }
}

/* With a constant learning rate, after a warm-up, the length of a run is not in its bits. */
static const char *const constant[][2] = {{"trainer.lr_scheduler", "constant"},
                                          {"parameters.learning_rate.warmup_steps", "6"},
                                          {NULL, NULL}};

TEST(a_run_and_its_extension_have_the_bits_of_one_long_run)
{
    fixture_record whole[CREW], half[CREW], rest[CREW];
    dl_config *all = run_of("4", constant), *first = run_of("2", constant);
    train(all, whole);
    train(first, half);
    dl_config *next = extension_of(first, "2", constant);
    train(next, rest);
    for (int r = 0; r < CREW; r++)
        check_same_steps(&whole[r], &rest[r], 2 * H);
    check_same_state(all, next);
    CHECK_INT(2 * H, first_step_of(next));
    CHECK_INT(0, first_step_of(first));
    free_records(whole), free_records(half), free_records(rest);
    free(all), free(first), free(next);
}

TEST(an_extension_of_an_extension_begins_after_both)
{
    static const char *const other_h[][2] = {{"trainer.lr_scheduler", "constant"},
                                             {"parameters.learning_rate.warmup_steps", "6"},
                                             {"trainer.local_steps_phases", "1x2"},
                                             {NULL, NULL}};
    fixture_record records[CREW];
    dl_config *first = run_of("1", constant);
    train(first, records);
    free_records(records);
    dl_config *second = extension_of(first, "2", other_h); /* of 2 + 4 steps */
    train(second, records);
    free_records(records);
    dl_config *third = extension_of(second, "1", constant);
    train(third, records);
    free_records(records);
    CHECK_INT(H, first_step_of(second));
    CHECK_INT(H + 2 + 4, first_step_of(third));
    free(first), free(second), free(third);
}

/* Of a run that is not complete, its newest entry counts. */
TEST(an_extension_of_an_incomplete_run_begins_after_its_last_entry)
{
    fixture_record records[CREW] = {{.stop_at = H + 1}, {.stop_at = H + 1}};
    dl_config *first = run_of("3", constant);
    (void)fixture_run_all(first, records, CREW);
    free_records(records);
    dl_config *next = extension_of(first, "1", constant);
    train(next, records);
    CHECK_INT(H, first_step_of(next));
    free_records(records);
    free(first), free(next);
}

/* Cosine, linear and wsd continue on the curve of both lengths together. */
TEST(a_schedule_continues_on_the_curve_of_the_whole_length)
{
    static const char *const names[] = {"cosine", "linear", "wsd", "LambdaLR"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *const settings[][2] = {{"trainer.lr_scheduler", names[i]},
                                           {"parameters.learning_rate.warmup_steps", "3"},
                                           {NULL, NULL}};
        fixture_record records[CREW];
        dl_config *first = run_of("2", settings), *whole = run_of("4", settings);
        train(first, records);
        free_records(records);
        dl_config *next = extension_of(first, "2", settings);
        train(next, records);
        for (uint64_t step = 0; step < 2 * H; step++) {
            double lr;
            CHECK_OK(dl_schedule_lr(&lr, whole, 2 * H + step, 4 * H, 0));
            CHECK_NEAR(lr, number(&records[0], step, "lr"), 1e-12);
        }
        free_records(records);
        free(first), free(whole), free(next);
    }
}

/* The run has the step, so nothing but its creation needs the other run. */
TEST(a_stopped_extension_resumes_without_the_other_run_and_with_the_same_bits)
{
    fixture_record half[CREW], whole[CREW];
    fixture_record stopped[CREW] = {{.stop_at = H + 2}, {.stop_at = H + 2}}, rest[CREW];
    dl_config *first = run_of("2", constant);
    train(first, half);
    dl_config *undisturbed = extension_of(first, "3", constant);
    dl_config *next = extension_of(first, "3", constant);
    train(undisturbed, whole);
    (void)fixture_run_all(next, stopped, CREW);
    CHECK_INT(0, rename(first->store, scratch_path("moved-away")));
    train(next, rest);
    check_same_state(undisturbed, next);
    free_records(half), free_records(whole), free_records(stopped), free_records(rest);
    free(first), free(undisturbed), free(next);
}

/* --print-config writes the 0, and a saved configuration gives it. */
TEST(a_first_step_that_is_given_as_zero_is_that_of_the_run)
{
    fixture_record records[CREW];
    dl_config *first = run_of("1", constant);
    train(first, records);
    free_records(records);
    dl_config *next = extension_of(first, "1", constant);
    set(next, "trainer.first_step", "0");
    CHECK_OK(diloco_train_create(next));
    train(next, records);
    CHECK_INT(H, first_step_of(next));
    free_records(records);
    free(first), free(next);
}

/* Its options do not name the other run. */
TEST(a_replica_that_joins_takes_the_step_from_the_run)
{
    fixture_record records[CREW], joined[CREW];
    dl_config *first = run_of("2", constant);
    train(first, records);
    dl_config *next = extension_of(first, "1", constant);
    CHECK_OK(diloco_train_create(next));
    set(next, "trainer.init_from", "");
    train(next, joined);
    CHECK_NEAR(1e-3, number(&joined[0], 0, "lr"), 1e-12); /* a step after the warm-up */
    CHECK_INT(2 * H, first_step_of(next));
    free_records(records), free_records(joined);
    free(first), free(next);
}

static void check_softens(const fixture_record *record, bool softens)
{
    char text[512];
    const dl_json_value warned = fixture_nth(record, "warn", 0);
    CHECK(dl_json_is(dl_json_get(warned, "code"), "continuation"));
    CHECK_OK(dl_json_read_str(text, sizeof text, warned, "text"));
    CHECK(softens == (strstr(text, "rewarm_steps softens that") != NULL));
}

/* Moments that are not there start at zero. Then the replica may warm up again. */
TEST(a_replica_without_its_moments_warms_up_again)
{
    static const char *const rewarm[][2] = {{"trainer.lr_scheduler", "constant"},
                                            {"parameters.learning_rate.rewarm_steps", "4"},
                                            {NULL, NULL}};
    fixture_record records[CREW], cold[CREW];
    char local[DL_PATH_MAX + 16];
    dl_config *first = run_of("2", rewarm);
    train(first, records);
    free_records(records);
    dl_config *warm = extension_of(first, "1", rewarm);
    train(warm, records);
    check_softens(&records[0], false);
    CHECK_NEAR(1e-3, number(&records[0], 0, "lr"), 1e-12);
    snprintf(local, sizeof local, "%s.local", first->store);
    CHECK_INT(0, rename(local, scratch_path("moments")));
    dl_config *next = extension_of(first, "1", rewarm);
    train(next, cold);
    check_softens(&cold[0], true);
    CHECK_NEAR(0.25e-3, number(&cold[0], 0, "lr"), 1e-12);
    CHECK_NEAR(1e-3, number(&cold[0], 3, "lr"), 1e-12);
    free_records(records), free_records(cold);
    free(first), free(warm), free(next);
}

/* ---- refused by name */

static void check_refused(const dl_config *other, const char *option, const char *value,
                          diloco_status status, const char *said)
{
    dl_config *config = extension_of(other, "1", constant);
    set(config, option, value);
    CHECK_STATUS(status, diloco_train_create(config));
    CHECK_CONTAINS(said, diloco_error_text());
    free(config);
}

TEST(other_data_or_another_division_of_it_is_refused)
{
    static const char *const options[][2] = {
        {"trainer.batch_size", "3"}, {"trainer.gradient_accumulation_steps", "2"},
        {"run.replicas", "3"},       {"run.seed", "7"},
        {"data.sampler", "iid"},     {"parameters.model.context", "8"}};
    fixture_record records[CREW];
    dl_config *first = run_of("1", constant);
    train(first, records);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check_refused(first, options[i][0], options[i][1], DILOCO_EDIFFERS, options[i][0]);
    char other[20000];
    memset(other, 'x', sizeof other);
    check_refused(first, "data.train_path", scratch_write("other.txt", other, sizeof other),
                  DILOCO_EDIFFERS, "the digest of the training data is ");
    free_records(records);
    free(first);
}

TEST(a_file_an_empty_run_and_no_run_cannot_be_extended)
{
    dl_config *empty = run_of("1", constant);
    CHECK_OK(diloco_train_create(empty));
    check_refused(empty, "trainer.init_from", fixture_text(), DILOCO_EREFUSED,
                  "is no folder or URL");
    check_refused(empty, "trainer.init_from", "/", DILOCO_ENOENT, "trainer.init_from = \"/\"");
    check_refused(empty, "trainer.rounds", "2", DILOCO_EREFUSED, "has no entry yet");
    free(empty);
}

TEST(an_asynchronous_run_cannot_be_extended)
{
    fixture_record records[CREW];
    static const char *const async[][2] = {
        {"server.diloco.schedule", "async"}, {"trainer.lr_scheduler", "constant"}, {NULL, NULL}};
    dl_config *first = run_of("1", async);
    train(first, records);
    check_refused(first, "trainer.rounds", "2", DILOCO_EREFUSED,
                  "each replica counts its own steps");
    free_records(records);
    free(first);
}

TEST(another_step_than_that_of_the_other_run_is_refused)
{
    fixture_record records[CREW];
    dl_config *first = run_of("1", constant);
    train(first, records);
    check_refused(first, "trainer.first_step", "9", DILOCO_EINVAL, "stopped at 4: leave it 0");
    free_records(records);
    free(first);
}

/* The step was read before the model, and has to be the same after it. */
TEST(a_run_that_trains_meanwhile_is_refused_by_name)
{
    fixture_record records[CREW];
    dl_config *first = run_of("1", constant);
    train(first, records);
    dl_config *next = extension_of(first, "1", constant);
    CHECK_OK(dl_config_set(next, "trainer.first_step", "2", "extension"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_run_extend(next, ""));
    CHECK_CONTAINS("still trains, as it was at step 2 and is at 4. Stop it first",
                   diloco_error_text());
    free_records(records);
    free(first), free(next);
}

/* Its nodes share a first model and no log. */
TEST(a_run_without_a_log_cannot_be_extended)
{
    dl_config *swarm = run_of("1", NULL);
    CHECK_OK(diloco_preset_apply(swarm, "swarm"));
    CHECK_OK(diloco_train_create(swarm));
    check_refused(swarm, "trainer.rounds", "2", DILOCO_EREFUSED, "each node counts its own steps");
    free(swarm);
}

TEST(runs_without_a_common_step_cannot_extend)
{
    dl_config *other = run_of("1", NULL);
    check_refused(other, "server.diloco.schedule", "async", DILOCO_EREFUSED,
                  "counts its own steps");
    check_refused(other, "data.deal", "log", DILOCO_EREFUSED, "assigns its samples");
    check_refused(other, "server.diloco.outer_lr_schedule", "cosine", DILOCO_EREFUSED,
                  "counts the rounds of one run");
    check_refused(other, "clients.total_clients", "4", DILOCO_EREFUSED,
                  "clients count their own steps");
    check_refused(other, "server.diloco.outer_optimizer", "adam", DILOCO_EREFUSED,
                  "trainer.init_as = \"extension\" restores");
    free(other);
}

TEST_MAIN(a_run_and_its_extension_have_the_bits_of_one_long_run,
          an_extension_of_an_extension_begins_after_both,
          an_extension_of_an_incomplete_run_begins_after_its_last_entry,
          a_schedule_continues_on_the_curve_of_the_whole_length,
          a_stopped_extension_resumes_without_the_other_run_and_with_the_same_bits,
          a_first_step_that_is_given_as_zero_is_that_of_the_run,
          a_replica_that_joins_takes_the_step_from_the_run,
          a_replica_without_its_moments_warms_up_again,
          other_data_or_another_division_of_it_is_refused,
          a_file_an_empty_run_and_no_run_cannot_be_extended, an_asynchronous_run_cannot_be_extended,
          another_step_than_that_of_the_other_run_is_refused,
          a_run_that_trains_meanwhile_is_refused_by_name, a_run_without_a_log_cannot_be_extended,
          runs_without_a_common_step_cannot_extend)
