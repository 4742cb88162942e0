/* log_gap_test.c - a lost entry is reported, and the log's end is not taken for one. */
#include "inspect/reader.h"
#include "toy_run.h"

/* A complete run of 5 entries at a store of that name, which stays open. */
static dl_store *trained(const char *url)
{
    toy one;
    dl_store *store;
    toy_keep(url);
    toy_crew(&one, 1, url, "none");
    toy_set(&one, "trainer.rounds", "5");
    toy_live_all(&one, 1);
    TOY_OK(one);
    CHECK_OK(dl_store_open(&store, url, false));
    return store;
}

TEST(lost_entry_is_named_if_a_later_one_exists)
{
    const char *url = "mem://gap-lost";
    dl_store *store = trained(url);
    CHECK_OK(dl_store_delete(store, "log/0000000002.json", DL_NEVER));
    CHECK_STATUS(DILOCO_EPROTO, diloco_log_check_gap(url, 2));
    CHECK_CONTAINS("entry 2 is missing, and entry 4 exists", diloco_error_text());
    CHECK_OK(diloco_log_check_gap(url, 5)); /* only entries from 5 on are looked for */
    dl_store_close(store);
}

TEST(end_of_a_log_is_no_gap)
{
    const char *url = "mem://gap-end";
    dl_store *store = trained(url);
    CHECK_OK(diloco_log_check_gap(url, 5));
    CHECK_OK(diloco_log_check_gap(url, 0)); /* entries that came after the reader had stopped */
    CHECK_OK(dl_store_delete(store, "log/0000000004.json", DL_NEVER));
    CHECK_OK(diloco_log_check_gap(url, 4));
    CHECK_STATUS(DILOCO_ENOENT, diloco_log_check_gap("mem://gap-none", 0));
    dl_store_close(store);
}

/* Any writer of the store can put an object there. */
TEST(junk_after_the_end_of_a_log_is_no_gap)
{
    const char *url = "mem://gap-junk";
    dl_store *store = trained(url);
    CHECK_OK(dl_store_delete(store, "log/0000000003.json", DL_NEVER));
    CHECK_OK(dl_store_delete(store, "log/0000000004.json", DL_NEVER));
    CHECK_OK(
        dl_store_create(store, "log/0000000004.json", &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
    CHECK_OK(diloco_log_check_gap(url, 3));
    dl_store_close(store);
}

TEST_MAIN(lost_entry_is_named_if_a_later_one_exists, end_of_a_log_is_no_gap,
          junk_after_the_end_of_a_log_is_no_gap)
