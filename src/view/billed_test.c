/* billed_test.c - the traffic of a run by the records of its replicas, each part of them once. */
#include "view/billed.h"

#include "check.h"
#include "log/layout.h"
#include "log/zstd_text.h"
#include "scratch.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

static dl_store *store;
static dl_billed exchanges, records;

static void put(const char *key, const void *bytes, size_t len)
{
    bool taken;
    CHECK_OK(dl_store_create(store, key, &(dl_span){bytes, len}, 1, &taken, DL_NEVER));
}

/* Write a part of a replica's record. */
static void add_part(const char *replica, uint32_t generation, uint64_t part, const char *text)
{
    dl_zipper *zipper;
    dl_span frame;
    dl_key key;
    dl_generation g = {.number = generation};
    snprintf(g.replica, sizeof g.replica, "%s", replica);
    CHECK_OK(dl_zipper_create(&zipper, strlen(text) + 1));
    CHECK_OK(dl_zip(zipper, &frame, text, strlen(text)));
    dl_key_record(key, &g, part);
    put(key, frame.data, frame.len);
    dl_zipper_destroy(zipper);
}

/* Write a line of a commit with n bytes sent, 2 n received, 3 n writes and 4 n reads. */
static const char *commit(int n)
{
    static char line[256];
    snprintf(line, sizeof line,
             "{\"event\":\"commit\",\"entry\":1,\"bytes_sent\":%d,\"bytes_received\":%d,"
             "\"requests_write\":%d,\"requests_read\":%d}\n",
             n, 2 * n, 3 * n, 4 * n);
    return line;
}

static void begin(const char *name)
{
    CHECK_OK(dl_store_open(&store, scratch_path(name), true));
}

static void read_all(dl_billed_run *run)
{
    CHECK_OK(dl_billed_read(run));
    dl_billed_sums(&exchanges, &records, run);
}

TEST(commits_of_all_replicas_are_added_and_each_part_is_read_once)
{
    dl_billed_run *run;
    begin("once");
    add_part("r0", 0, 0, commit(1));
    add_part("r0", 0, 1, commit(10));
    add_part("r1", 0, 0, commit(100));
    CHECK_OK(dl_billed_open(&run, scratch_path("once")));
    for (int i = 0; i < 2; i++) {
        read_all(run);
        CHECK(exchanges.written == 111 && exchanges.read == 222);
        CHECK(exchanges.writes == 333 && exchanges.reads == 444);
        CHECK(records.writes == 3 && records.written > 0 && records.reads == 0);
    }
    /* New parts of a known process, of a new generation, and of replicas before and after. */
    add_part("r0", 0, 2, commit(1000));
    add_part("r0", 1, 0, commit(10000));
    add_part("a", 0, 0, commit(100000));
    add_part("r10", 0, 7, commit(1000000));
    for (int i = 0; i < 2; i++) {
        read_all(run);
        CHECK(exchanges.written == 1111111 && exchanges.reads == 4444444);
        CHECK(records.writes == 7);
    }
    dl_billed_close(run);
    dl_store_close(store);
}

TEST(store_without_a_record_has_no_traffic)
{
    dl_billed_run *run;
    begin("none");
    CHECK_OK(dl_billed_open(&run, scratch_path("none")));
    read_all(run);
    CHECK(exchanges.written == 0 && exchanges.reads == 0 && records.writes == 0);
    dl_billed_close(run);
    dl_store_close(store);
}

TEST(damaged_part_and_foreign_lines_and_hostile_numbers_add_nothing)
{
    dl_billed_run *run;
    begin("foreign");
    put("rec/notes.txt", "junk", 4);
    put("rec/r0.0000/0000000000.jsonl.zst", "junk", 4);
    add_part("r0", 0, 1,
             "{\"event\":\"commit\",\"bytes_sent\":-5,\"bytes_received\":1e999,"
             "\"requests_write\":\"many\"}\n"
             "not json\n"
             "{\"event\":\"abort\",\"bytes_sent\":77}\n"
             "{\"event\":\"commit\",\"bytes_sent\":3}");
    CHECK_OK(dl_billed_open(&run, scratch_path("foreign")));
    for (int i = 0; i < 2; i++) {
        read_all(run);
        CHECK(exchanges.written == 3 && exchanges.read == 0);
        CHECK(exchanges.writes == 0 && exchanges.reads == 0);
        CHECK(records.writes == 1);
    }
    dl_billed_close(run);
    dl_store_close(store);
}

TEST_MAIN(commits_of_all_replicas_are_added_and_each_part_is_read_once,
          store_without_a_record_has_no_traffic,
          damaged_part_and_foreign_lines_and_hostile_numbers_add_nothing)
