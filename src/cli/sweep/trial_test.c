/* trial_test.c - existing results, and results of other settings. tests/e2e/sweep.sh
 * tests the training of a trial. */
#include "cli/sweep/trial.h"

#include "base/hash.h"
#include "check.h"
#include "scratch.h"

static dl_config config;

static const char good[] =
    "{\"config_digest\":\"%s\",\"entries\":6,\"parameters\":10,\"steps\":240,\"tokens\":960,"
    "\"bytes_sent\":18446744073709551615,\"bytes_received\":7,\"data_parallel_bytes\":9600,"
    "\"train_s\":1.5,\"wait_s\":0.25,\"exchange_s\":0,\"loss\":2.5,\"perplexity\":12.25,"
    "\"digest\":\"abc\"}\n";

/* A folder with this result.json. */
static const char *folder_with(const char *name, const char *text)
{
    char file[64];
    const char *folder = scratch_folder(name);
    snprintf(file, sizeof file, "%s/result.json", name);
    scratch_write(file, text, strlen(text));
    return folder;
}

static const char *result_text(const dl_config *of)
{
    static char text[1024];
    char hex[DL_HASH_HEX + 1];
    dl_hash digest;
    CHECK_OK(dl_options_digest(&digest, dl_config_table, of));
    dl_hash_to_hex(hex, digest);
    snprintf(text, sizeof text, good, hex);
    return text;
}

TEST(a_result_is_read_back)
{
    dl_trial_result r;
    dl_config_init(&config);
    CHECK_OK(dl_trial_read(&r, &config, folder_with("done", result_text(&config))));
    CHECK_INT(6, r.entries);
    CHECK_INT(240, r.steps);
    CHECK(r.bytes_sent == UINT64_MAX);
    CHECK_NEAR(1.5, r.train_s, 0);
    CHECK_NEAR(2.5, r.loss, 0);
    CHECK_STR("abc", r.digest);
    /* Settings of this machine do not make another trial. */
    CHECK_OK(dl_config_set(&config, "run.threads", "2", "test"));
    CHECK_OK(dl_trial_read(&r, &config, scratch_path("done")));
}

TEST(a_trial_that_is_done_is_not_run_again)
{
    dl_trial_result r;
    const dl_args args = {.command = dl_command_find("sweep")};
    dl_config_init(&config); /* which could not train: it has no data */
    CHECK_OK(dl_trial_run(&r, &config, folder_with("again", result_text(&config)), &args));
    CHECK_NEAR(2.5, r.loss, 0);
}

TEST(a_folder_without_a_result_has_none)
{
    dl_trial_result r;
    dl_config_init(&config);
    CHECK_STATUS(DILOCO_ENOENT, dl_trial_read(&r, &config, scratch_folder("begun")));
}

TEST(a_result_of_other_settings_is_refused)
{
    dl_trial_result r;
    dl_config_init(&config);
    const char *folder = folder_with("other", result_text(&config));
    CHECK_OK(dl_config_set(&config, "lr", "0.5", "test"));
    CHECK_STATUS(DILOCO_EDIFFERS, dl_trial_read(&r, &config, folder));
    CHECK_CONTAINS("move it away", diloco_error_text());
}

TEST(a_damaged_result_is_refused_by_name)
{
    dl_trial_result r;
    dl_config_init(&config);
    const char *text = result_text(&config);
    CHECK_STATUS(DILOCO_EPROTO, dl_trial_read(&r, &config, folder_with("cut", "{\"entries\":6")));
    CHECK_CONTAINS("result.json", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO,
                 dl_trial_read(&r, &config, folder_with("less", strchr(text + 1, '}'))));
    CHECK_STATUS(DILOCO_EPROTO, dl_trial_read(&r, &config, folder_with("bare", "{}")));
    CHECK_CONTAINS("config_digest", diloco_error_text());
}

TEST(negative_and_huge_counts_of_a_record_are_left_out)
{
    static const char record[] =
        "{\"event\":\"step\",\"tokens\":-5,\"tokens_per_s\":2}\n"
        "{\"event\":\"step\",\"tokens\":64,\"tokens_per_s\":32}\n"
        "{\"event\":\"commit\",\"bytes_sent\":-1,\"bytes_received\":1e30,\"wait_s\":1}\n"
        "{\"event\":\"commit\",\"bytes_sent\":7,\"bytes_received\":8,\"wait_s\":1}\n"
        "{\"event\":\"commit\",\"bytes_se";
    dl_trial_result r = {0};
    scratch_write("record.jsonl", record, sizeof record - 1);
    CHECK_OK(dl_trial_add_record(&r, scratch_path("record.jsonl"), 2));
    CHECK_INT(2, r.steps);
    CHECK_INT(64, r.tokens);
    CHECK_INT(7, r.bytes_sent);
    CHECK_INT(8, r.bytes_received);
    CHECK_NEAR(1, r.train_s, 0);
    CHECK_NEAR(1, r.wait_s, 0);
}

TEST(a_trial_without_validation_data_is_refused_before_it_trains)
{
    dl_trial_result r;
    const dl_args args = {.command = dl_command_find("sweep")};
    char text[4096];
    memset(text, 'x', sizeof text);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "data.train_path", scratch_write("text.txt", text, sizeof text),
                           "test"));
    CHECK_OK(dl_config_set(&config, "parameters.model.context", "16", "test"));
    CHECK_OK(dl_config_set(&config, "data.test_fraction", "0", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_trial_run(&r, &config, scratch_path("none"), &args));
    CHECK_CONTAINS("no validation data to compare by", diloco_error_text());
}

TEST_MAIN(a_result_is_read_back, a_trial_that_is_done_is_not_run_again,
          a_folder_without_a_result_has_none, a_result_of_other_settings_is_refused,
          a_damaged_result_is_refused_by_name, negative_and_huge_counts_of_a_record_are_left_out,
          a_trial_without_validation_data_is_refused_before_it_trains)
