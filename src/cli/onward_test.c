/* onward_test.c - the next steps after a run that is complete. */
#include "cli/onward.h"

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
    static dl_config config;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "run.store", store, "test"));
    return &config;
}

TEST(the_next_free_name_is_proposed_for_the_store)
{
    char words[DL_ONWARD_MAX];
    const char *store = scratch_path("run");
    char said[DL_ONWARD_MAX];
    make_folders(store, 2, 3);
    snprintf(said, sizeof said, "run-4 --set trainer.init_from=%s --set trainer.init_as=extension",
             store);
    dl_onward_continue(words, of_store(store));
    CHECK_CONTAINS(said, words);
    dl_onward_continue(words, of_store("https://example.org/run"));
    CHECK_CONTAINS("--store https://example.org/run-2 "
                   "--set trainer.init_from=https://example.org/run ",
                   words);
}

TEST(no_taken_name_is_proposed_where_all_are_taken)
{
    char words[DL_ONWARD_MAX];
    const char *store = scratch_path("full");
    make_folders(store, 2, 999);
    dl_onward_continue(words, of_store(store));
    CHECK(!strstr(words, "full-999"));
    CHECK_CONTAINS("--store STORE --set ", words);
    CHECK_CONTAINS("STORE is a new name", words);
}

/* It has no step that a second run could continue at. */
TEST(an_asynchronous_run_is_continued_not_extended)
{
    char words[DL_ONWARD_MAX];
    dl_config *config = of_store("s3://bucket/run");
    CHECK_OK(dl_config_set(config, "server.diloco.schedule", "async", "test"));
    dl_onward_continue(words, config);
    CHECK_CONTAINS("--set trainer.init_as=continuation", words);
}

TEST_MAIN(the_next_free_name_is_proposed_for_the_store,
          no_taken_name_is_proposed_where_all_are_taken,
          an_asynchronous_run_is_continued_not_extended)
