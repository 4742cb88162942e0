/* evaluate_test.c - the loss of a run's shared model on held-out text. */
#include "train_fixture.h"

/* The last evaluation of training was of the same model on the same text. */
TEST(evaluation_finds_what_training_recorded)
{
    fixture_record record = {0};
    diloco_eval_result result;
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.eval_batches", "0");
    fixture_train(config, &record, 1);
    CHECK_OK(diloco_eval(&result, config));
    dl_json_value last = fixture_nth(&record, "eval", 1);
    CHECK_INT(2, result.entry);
    CHECK_INT(fixture_whole(last, "targets"), result.targets);
    /* Batches of 8 instead of 2: sums in another order. */
    CHECK_NEAR(fixture_number(last, "loss"), result.loss, 1e-4);
    CHECK_NEAR(exp(result.loss), result.perplexity, 1e-9);
    fixture_record_free(&record);
    free(config);
}

TEST(evaluation_without_held_out_text_says_so)
{
    diloco_eval_result result;
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    set(config, "data.test_fraction", "0");
    fixture_train(config, &record, 1);
    CHECK_INT(0, fixture_count(&record, "eval"));
    CHECK_STATUS(DILOCO_EINVAL, diloco_eval(&result, config));
    CHECK_CONTAINS("no validation data", diloco_error_text());
    fixture_record_free(&record);
    free(config);
}

TEST(a_store_without_a_run_cannot_be_evaluated)
{
    diloco_eval_result result;
    dl_config *config = fixture_config("diloco");
    CHECK_STATUS(DILOCO_ENOENT, diloco_eval(&result, config));
    free(config);
}

TEST_MAIN(evaluation_finds_what_training_recorded, evaluation_without_held_out_text_says_so,
          a_store_without_a_run_cannot_be_evaluated)
