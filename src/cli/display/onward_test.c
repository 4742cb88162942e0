/* onward_test.c - the next steps after a run that is complete. */
#include "cli/display/onward.h"

#include "check.h"
#include "scratch.h"

#include <sys/stat.h>

/* Make the folders "<store>-<first>" to "<store>-<last>". */
static void make_folders(const char *store, int first, int last)
{
    char path[PATH_MAX];
    for (int i = first; i <= last; i++) {
        snprintf(path, sizeof path, "%s-%d", store, i);
        CHECK_INT(0, mkdir(path, 0700));
    }
}

static dl_config *of_store(const char *store)
{
    static dl_config configs[2];
    static int n;
    dl_config *config = &configs[n++ % 2];
    dl_config_init(config);
    CHECK_OK(dl_config_set(config, "run.store", store, "test"));
    return config;
}

/* Where the command gives the settings of the run. */
static void proposed(char words[DL_ONWARD_MAX], const dl_config *config)
{
    dl_onward_continue(words, config, config);
}

TEST(the_next_free_name_is_proposed_for_the_store)
{
    char words[DL_ONWARD_MAX];
    const char *store = scratch_path("run");
    char said[DL_ONWARD_MAX];
    make_folders(store, 2, 3);
    snprintf(said, sizeof said, "run-4 --set trainer.init_from=%s --set trainer.init_as=extension",
             store);
    proposed(words, of_store(store));
    CHECK_CONTAINS(said, words);
    proposed(words, of_store("https://example.org/run"));
    CHECK_CONTAINS("--store https://example.org/run-2 "
                   "--set trainer.init_from=https://example.org/run ",
                   words);
}

TEST(no_taken_name_is_proposed_where_all_are_taken)
{
    char words[DL_ONWARD_MAX];
    const char *store = scratch_path("full");
    make_folders(store, 2, 999);
    proposed(words, of_store(store));
    CHECK(!strstr(words, "full-999"));
    CHECK_CONTAINS("--store STORE --set ", words);
    CHECK_CONTAINS("STORE is a new name", words);
}

/* Each option is the run's alone, the command's alone, or both. */
static void check_init_as(const char *option, const char *value, bool in_command, bool in_run,
                          const char *init_as)
{
    char words[DL_ONWARD_MAX], said[64];
    dl_config *config = of_store("s3://bucket/run"), *run = of_store("s3://bucket/run");
    if (in_command) CHECK_OK(dl_config_set(config, option, value, "test"));
    if (in_run) CHECK_OK(dl_config_set(run, option, value, "test"));
    dl_onward_continue(words, config, run);
    snprintf(said, sizeof said, "--set trainer.init_as=%s", init_as);
    CHECK_CONTAINS(said, words);
}

/* It has no step that a second run could continue at. A command need not name the schedule. */
TEST(an_asynchronous_run_is_continued_not_extended)
{
    check_init_as("server.diloco.schedule", "async", true, true, "continuation");
    check_init_as("server.diloco.schedule", "async", false, true, "continuation");
}

TEST(a_run_whose_command_leaves_its_batch_to_the_run_is_continued)
{
    check_init_as("trainer.batch_size", "3", true, true, "extension");
    check_init_as("trainer.batch_size", "3", false, true, "continuation");
}

TEST(an_outer_optimizer_with_a_count_begins_again)
{
    check_init_as("server.diloco.outer_optimizer", "adam", true, true, "model");
    check_init_as("server.diloco.outer_optimizer", "adam", false, true, "model");
    check_init_as("server.diloco.outer_optimizer", "adam", true, false, "model");
}

TEST_MAIN(the_next_free_name_is_proposed_for_the_store,
          no_taken_name_is_proposed_where_all_are_taken,
          an_asynchronous_run_is_continued_not_extended,
          a_run_whose_command_leaves_its_batch_to_the_run_is_continued,
          an_outer_optimizer_with_a_count_begins_again)
