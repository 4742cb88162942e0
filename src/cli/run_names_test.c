/* run_names_test.c - names of the runs that a page shows. */
#include "cli/run_names.h"

#include "check.h"

TEST(an_unknown_name_has_no_url)
{
    dl_run_names runs;
    char url[DL_VIEW_URL];
    dl_run_names_init(&runs);
    CHECK_OK(dl_run_names_add(&runs, "runs/a"));
    CHECK_OK(dl_run_names_add(&runs, "https://h:1/runs/b"));
    CHECK_OK(dl_buf_add(&runs.names, "", 1)); /* the end of the list for a server */
    CHECK(dl_run_names_url(&runs, url, "a"));
    CHECK_STR("runs/a", url);
    CHECK(dl_run_names_url(&runs, url, "b"));
    CHECK_STR("https://h:1/runs/b", url);
    CHECK(!dl_run_names_url(&runs, url, "c"));
    CHECK(!dl_run_names_url(&runs, url, ""));
    dl_run_names_deinit(&runs);
}

TEST_MAIN(an_unknown_name_has_no_url)
