/* memory_plan_test.c - the plan of a replica's memory, before it is taken. */
#include "high_water.h"
#include "sanitized.h"
#include "train_fixture.h"

#include <sys/wait.h>

TEST(the_plan_adds_up_and_keeps_to_24_bytes_a_parameter)
{
    diloco_memory_plan p;
    dl_config *config = fixture_config("diloco");
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK(p.parameters > 0 && p.threads == 1);
    CHECK_INT(24 * p.parameters, p.local + p.gradient + p.moments + p.theta + p.momentum);
    CHECK_INT(p.total, p.local + p.gradient + p.moments + p.theta + p.momentum + p.activations +
                           p.staging + p.contributions + p.copies + p.data + p.other);
    CHECK(p.flops_per_token >= 6.0 * (double)p.parameters * 0.5);

    set(config, "trainer.optimizer", "sgd");
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK_INT(0, p.moments);
    set(config, "trainer.optimizer", "muon"); /* 8 bytes but for the block's matrices */
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK_INT(8 * p.parameters - 4 * (4 * 16 * 16 + 3 * 16 * 64), p.moments);
    set(config, "run.spool", "disk");
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK_INT(0, p.contributions);
    set(config, "trainer.optimizer", "adamv");
    CHECK_STATUS(DILOCO_EINVAL, diloco_train_plan(&p, config));
    free(config);
}

TEST(plan_counts_the_combiners_memory)
{
    enum { MANY = 500 };
    diloco_memory_plan mean, krum;
    dl_config *config = fixture_config("diloco");
    set(config, "data.train_path", "");
    set(config, "run.replicas", "500");
    set(config, "run.min_replicas", "500");
    CHECK_OK(diloco_train_plan(&mean, config));
    set(config, "server.diloco.combiner", "krum"); /* distances of all to all, part by part */
    CHECK_OK(diloco_train_plan(&krum, config));
    CHECK(krum.staging - mean.staging >= MANY * MANY * sizeof(double));
    free(config);
}

TEST(plan_counts_the_memory_of_matrices_that_the_outer_step_takes_whole)
{
    enum { SIDE = 16, LONGER = 64 }; /* of the largest matrix: channels, ffn */
    diloco_memory_plan adamw, muon;
    dl_config *config = fixture_config("data_parallel");
    CHECK_OK(diloco_train_plan(&adamw, config));
    set(config, "trainer.optimizer", "muon");
    set(config, "server.diloco.outer_optimizer", "muon");
    CHECK_OK(diloco_train_plan(&muon, config));
    CHECK_INT(adamw.momentum, muon.momentum);
    CHECK(muon.staging - adamw.staging >=
          4 * (muon.parameters + 2 * SIDE * LONGER + 2 * SIDE * SIDE)); /* G, X twice, S, D */
    free(config);
}

/* With AdamW a copy has the parameters and two moments. A capture in flight is copied only where a
 * second one may be made before the first is adopted. */
static uint64_t planned_copy(const char *fragments, uint64_t *parameters)
{
    diloco_memory_plan beside, waits;
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.local_steps_per_round", "8");
    set(config, "server.diloco.fragments", fragments);
    set(config, "server.diloco.overlap_steps", "6");
    CHECK_OK(diloco_train_plan(&beside, config));
    set(config, "run.save_beside", "false");
    CHECK_OK(diloco_train_plan(&waits, config));
    *parameters = beside.parameters;
    free(config);
    return beside.staging - waits.staging;
}

TEST(plan_counts_captures_in_the_copy_only_where_several_may_be_in_flight)
{
    uint64_t n;
    CHECK_INT(12, planned_copy("1", &n) / n);
    CHECK(planned_copy("2", &n) / n > 12);
}

/* ---- against a process that trains */

/* Train in a process of its own; the most memory it had. */
static uint64_t measure(const dl_config *config)
{
    int ends[2];
    uint64_t most = 0;
    CHECK_INT(0, pipe(ends));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (diloco_train(config, "r0", NULL)) _exit(1);
        most = high_water();
        _exit(write(ends[1], &most, sizeof most) == sizeof most ? 0 : 1);
    }
    close(ends[1]);
    CHECK_INT(sizeof most, read(ends[0], &most, sizeof most));
    close(ends[0]);
    CHECK_INT(child, waitpid(child, NULL, 0));
    return most;
}

static dl_config *wide(const char *preset)
{
    dl_config *config = fixture_config(preset);
    if (strcmp(preset, "data_parallel") != 0) set(config, "trainer.local_steps_per_round", "2");
    set(config, "trainer.eval_batches", "2");
    set(config, "parameters.model.layers", "4");
    set(config, "parameters.model.heads", "4");
    set(config, "parameters.model.channels", "256");
    return config;
}

/* The plan of wide(preset), with `inner` as its inner and outer optimizer unless that is NULL. */
static void check_plan(const char *preset, const char *inner)
{
    diloco_memory_plan p;
    dl_config *config = wide(preset);
    set(config, "parameters.model.context", "64");
    if (inner) set(config, "trainer.optimizer", inner);
    if (inner) set(config, "server.diloco.outer_optimizer", inner);
    CHECK_OK(diloco_train_plan(&p, config));
    double taken = (double)measure(config), planned = (double)p.total;
    if (taken > planned || taken < 0.8 * planned)
        CHECK_FAIL("%s: planned %.1f MB, taken %.1f MB", preset, planned * 1e-6, taken * 1e-6);
    free(config);
}

TEST(plan_matches_the_memory_of_a_training_process)
{
    if (SANITIZED) skip();
    check_plan("diloco", NULL);
    check_plan("muloco", NULL);
    check_plan("streaming", NULL); /* fragments, and what is in flight */
    check_plan("eager", NULL);
    check_plan("sparse", NULL);          /* the residual */
    check_plan("data_parallel", "muon"); /* whole matrices in the outer step */
}

TEST(alg_26_vanilla_needs_at_most_two_more_copies_of_the_model_than_data_parallel)
{
    if (SANITIZED) skip();
    diloco_memory_plan p;
    dl_config *vanilla = wide("diloco"), *parallel = wide("data_parallel");
    CHECK_OK(diloco_train_plan(&p, vanilla));
    const double more = (double)measure(vanilla) - (double)measure(parallel);
    const double model = 4 * (double)p.parameters;
    CHECK(model > 8e6); /* so that pages and stacks do not count */
    if (more > 2 * model) CHECK_FAIL("%.1f MB more, the model has %.1f", more * 1e-6, model * 1e-6);
    free(vanilla), free(parallel);
}

TEST(plan_of_a_card_in_bf16_has_smaller_activations_and_the_cpu_refuses_it)
{
    diloco_memory_plan wide_values, p;
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.batch_size", "64");
    set(config, "trainer.device", "cuda");
    CHECK_OK(diloco_train_plan(&wide_values, config));
    set(config, "trainer.precision", "bf16");
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK_INT(wide_values.local, p.local);
    CHECK_INT(wide_values.gradient, p.gradient);
    CHECK_INT(wide_values.moments, p.moments);
    CHECK(p.activations < wide_values.activations);
    CHECK(p.activations > wide_values.activations / 2);
    set(config, "trainer.device_exchange", "true"); /* theta, and the movement of all of it */
    const uint64_t copies = p.copies;
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK_INT(copies + 2 * 4 * p.parameters, p.copies);
    set(config, "server.diloco.codec", "int8"); /* and two payloads of a byte an element */
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK(p.copies >= copies + (2 * 4 + 2) * p.parameters);
    CHECK(p.copies < copies + (2 * 4 + 3) * p.parameters);
    set(config, "server.diloco.codec", "f32");
    set(config, "trainer.device_exchange", "false");
    set(config, "trainer.device", "cpu");
    CHECK_STATUS(DILOCO_EREFUSED, diloco_train_plan(&p, config));
    CHECK_CONTAINS("trainer.precision is an option of a card", diloco_error_text());
    free(config);
}

TEST(the_library_reports_its_version_and_options)
{
    CHECK(strlen(diloco_version()) > 0);
    CHECK(strlen(diloco_isa()) > 0);
    CHECK(diloco_cores() >= 1);
}

TEST_MAIN(the_plan_adds_up_and_keeps_to_24_bytes_a_parameter, plan_counts_the_combiners_memory,
          plan_counts_the_memory_of_matrices_that_the_outer_step_takes_whole,
          plan_counts_captures_in_the_copy_only_where_several_may_be_in_flight,
          alg_26_vanilla_needs_at_most_two_more_copies_of_the_model_than_data_parallel,
          plan_of_a_card_in_bf16_has_smaller_activations_and_the_cpu_refuses_it,
          plan_matches_the_memory_of_a_training_process,
          the_library_reports_its_version_and_options)
