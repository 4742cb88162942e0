/* evaluate_test.c - the loss of a run's shared model on held-out text. */
#include "train_fixture.h"

/* The last evaluation of training was of the same model on the same text. */
TEST(evaluation_finds_the_recorded_loss)
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

/* A replica that keeps a share of its own values still records the shared model's loss. */
TEST(evaluation_in_training_is_of_the_shared_model_and_not_of_the_replicas_own)
{
    fixture_record record = {0};
    diloco_eval_result result;
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.eval_batches", "0");
    set(config, "server.diloco.local_mix", "0.9");
    set(config, "parameters.optimizer.lr", "1e-2");
    fixture_train(config, &record, 1);
    CHECK_OK(diloco_eval(&result, config));
    CHECK_NEAR(fixture_number(fixture_nth(&record, "eval", 1), "loss"), result.loss, 1e-4);
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

/* The same windows as validation data of that text, so the same loss; bits per byte are that of
 * bytes where a token is one. */
TEST(a_text_is_evaluated_as_validation_data_would_be)
{
    diloco_eval_result data;
    diloco_text_result text;
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    const char *path = scratch_write("held-out.txt", "the run of the log is a step and moves", 38);
    fixture_train(config, &record, 1);
    dl_config *other = malloc(sizeof *other);
    *other = *config;
    set(other, "data.test_path", path);
    CHECK_OK(diloco_eval(&data, other));
    CHECK_OK(diloco_eval_text(&text, config, path));
    CHECK_INT(data.entry, text.entry);
    CHECK_INT(37, text.targets);
    CHECK_INT(37, text.bytes);
    CHECK_INT(data.targets, text.targets);
    CHECK_NEAR(data.loss, text.loss, 1e-9);
    CHECK_NEAR(data.accuracy, text.accuracy, 1e-9);
    CHECK_NEAR(text.loss / log(2), text.bits_per_byte, 1e-9);
    CHECK_STATUS(DILOCO_EINVAL, diloco_eval_text(&text, config, scratch_write("one", "x", 1)));
    CHECK_CONTAINS("the text gives 1 tokens", diloco_error_text());
    CHECK_STATUS(DILOCO_ENOENT, diloco_eval_text(&text, config, "/no-such-text"));
    fixture_record_free(&record);
    free(config), free(other);
}

TEST_MAIN(evaluation_finds_the_recorded_loss,
          evaluation_in_training_is_of_the_shared_model_and_not_of_the_replicas_own,
          evaluation_without_held_out_text_says_so, a_store_without_a_run_cannot_be_evaluated,
          a_text_is_evaluated_as_validation_data_would_be)
