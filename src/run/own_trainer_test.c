/* own_trainer_test.c - options that a caller's own loop does not read are named in a warning. */
#include "run/own_trainer.h"

#include "toy_run.h"

#include <stdlib.h>
#include <string.h>

static diloco_status prepare_own(toy *t, diloco_run *run)
{
    (void)t;
    dl_run_set_own_trainer(run);
    return DILOCO_OK;
}

/* Returns the record of a run of this toy; the caller frees it. */
static char *record_of(toy t)
{
    t.record = calloc(1, TOY_RECORD);
    CHECK(t.record);
    toy_live(&t);
    TOY_OK(t);
    return t.record;
}

static toy with_options(const char *name)
{
    toy t = toy_of("r0", scratch_path(name));
    toy_set(&t, "parameters.optimizer.lr", "1e-3");
    toy_set(&t, "trainer.gradient_clip", "1");
    toy_set(&t, "data.train_path", "corpus.txt");
    return t;
}

TEST(options_that_only_the_programs_trainer_reads_are_named)
{
    char *record = record_of(with_options("loop"));
    CHECK_CONTAINS("\"code\":\"own_trainer\"", record);
    CHECK_CONTAINS("parameters.optimizer.lr, data.train_path\"", record);
    CHECK(!strstr(record, "gradient_clip")); /* it has its default */
    free(record);
}

TEST(the_programs_trainer_reads_them)
{
    toy t = with_options("own");
    t.prepare = prepare_own;
    char *record = record_of(t);
    CHECK(!strstr(record, "own_trainer"));
    free(record);
}

TEST(a_run_of_options_that_count_is_not_warned_of)
{
    char *record = record_of(toy_of("r0", scratch_path("plain")));
    CHECK(!strstr(record, "own_trainer"));
    free(record);
}

TEST(with_gradients_the_options_of_the_optimizer_count)
{
    toy t = toy_of("r0", scratch_path("gradients"));
    t.gradients = true;
    toy_set(&t, "trainer.local_steps_per_round", "1");
    toy_set(&t, "parameters.optimizer.lr", "1e-3");
    toy_set(&t, "trainer.gradient_clip", "2");
    char *record = record_of(t);
    CHECK_CONTAINS("does not: trainer.gradient_clip\"", record);
    free(record);
}

TEST_MAIN(options_that_only_the_programs_trainer_reads_are_named, the_programs_trainer_reads_them,
          a_run_of_options_that_count_is_not_warned_of,
          with_gradients_the_options_of_the_optimizer_count)
