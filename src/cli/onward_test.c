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

TEST(the_next_free_name_is_proposed_for_the_store)
{
    char words[DL_ONWARD_MAX];
    const char *store = scratch_path("run");
    make_folders(store, 2, 3);
    dl_onward_continue(words, store);
    CHECK_CONTAINS("run-4 --set trainer.init_from=FILE", words);
    dl_onward_continue(words, "https://example.org/run");
    CHECK_CONTAINS("--store https://example.org/run-2 ", words);
}

TEST(no_taken_name_is_proposed_where_all_are_taken)
{
    char words[DL_ONWARD_MAX];
    const char *store = scratch_path("full");
    make_folders(store, 2, 999);
    dl_onward_continue(words, store);
    CHECK(!strstr(words, "full-999"));
    CHECK_CONTAINS("--store STORE --set ", words);
    CHECK_CONTAINS("STORE is a new name", words);
}

TEST_MAIN(the_next_free_name_is_proposed_for_the_store,
          no_taken_name_is_proposed_where_all_are_taken)
