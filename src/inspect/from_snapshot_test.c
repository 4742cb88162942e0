/* from_snapshot_test.c - readers of the end of a log (inspect.h): diloco_verify_from_snapshot,
 * and a walk of the newest entries.
 *
 * The runs lack their first snapshots and contributions, as after a collection. The log's first
 * entries are then deleted, so a reader that needs one of them fails. */
#include "toy_run.h"

#include "log/layout.h"

enum { ENTRIES = 30, COLLECTED = 10, KEYS = 512 };

/* The keys under a prefix that are of entries before COLLECTED. A store is not to be used from
 * within a listing. */
typedef struct early {
    dl_key keys[KEYS];
    size_t n;
} early;

static diloco_status note_early(void *context, const char *key, size_t len)
{
    early *list = context;
    uint64_t entry;
    (void)len;
    if (!dl_key_entry_of(&entry, key) || entry >= COLLECTED) return DILOCO_OK;
    CHECK(list->n < KEYS);
    memcpy(list->keys[list->n++], key, strlen(key) + 1);
    return DILOCO_OK;
}

static void delete_early(dl_store *store, const char *prefix)
{
    static early list;
    list.n = 0;
    CHECK_OK(dl_store_list(store, prefix, NULL, note_early, &list, DL_NEVER));
    CHECK(list.n > 0);
    for (size_t i = 0; i < list.n; i++)
        CHECK_OK(dl_store_delete(store, list.keys[i], DL_NEVER));
}

/* Makes a complete run in memory that has snapshots and contributions from entry COLLECTED on.
 * Rejections and bans are on: the state then has tables that follow from the whole log. */
static dl_store *collected(const char *url)
{
    toy all[2];
    dl_store *store;
    toy_keep(url);
    toy_crew(all, 2, url, "none");
    toy_set_all(all, 2, "run.retain", "all");
    toy_set_all(all, 2, "run.snapshot_every", "0.001");
    toy_set_all(all, 2, "trainer.rounds", "30");
    toy_set_all(all, 2, "check.repeat", "4");
    toy_set_all(all, 2, "check.ban_after", "3");
    all[0].step_us = all[1].step_us = 500; /* an entry takes longer than run.snapshot_every */
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_OK(dl_store_open(&store, url, false));
    delete_early(store, "snap/");
    delete_early(store, "c/");
    return store;
}

/* Deletes entries [0, end) of the log. */
static void delete_entries(dl_store *store, uint64_t end)
{
    for (uint64_t e = 0; e < end; e++) {
        dl_key key;
        dl_key_entry(key, e);
        CHECK_OK(dl_store_delete(store, key, DL_NEVER));
    }
}

TEST(entries_before_the_oldest_snapshot_are_not_read)
{
    const char *url = "mem://collected";
    dl_store *store = collected(url);
    diloco_verify_report whole, report;
    CHECK_OK(diloco_verify(&whole, url, 1, NULL, NULL));
    CHECK_INT(0, whole.first_chained);
    CHECK(whole.first_replayed >= COLLECTED);
    delete_entries(store, whole.first_replayed - 1); /* the last of them is compared */
    CHECK_OK(diloco_verify_from_snapshot(&report, url, 1, NULL, NULL));
    CHECK_INT(whole.first_replayed, report.first_chained);
    CHECK_INT(whole.first_replayed, report.first_replayed);
    CHECK_INT(ENTRIES, report.entries);
    CHECK_INT(ENTRIES - report.first_chained, report.chained);
    CHECK_INT(whole.replayed, report.replayed);
    CHECK(report.complete);
    CHECK_STR(whole.digest, report.digest);
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify(&report, url, 1, NULL, NULL));
    CHECK_CONTAINS("entry 0 is missing", diloco_error_text());
    dl_store_close(store);
}

/* Puts other bytes at a key. */
static void replace(dl_store *store, const char *key, const char *bytes)
{
    CHECK_OK(dl_store_delete(store, key, DL_NEVER));
    CHECK_OK(dl_store_create(store, key, &(dl_span){bytes, strlen(bytes)}, 1, NULL, DL_NEVER));
}

TEST(damage_since_the_oldest_snapshot_is_named_and_earlier_damage_is_not_seen)
{
    const char *url = "mem://damaged";
    dl_store *store = collected(url);
    diloco_verify_report report;
    dl_key key;
    CHECK_OK(diloco_verify_from_snapshot(&report, url, 1, NULL, NULL));
    const uint64_t first = report.first_chained;
    CHECK(first >= COLLECTED && first + 1 < ENTRIES);
    /* Before the snapshot: only verify of the whole log finds it. */
    dl_key_entry(key, first - 2);
    replace(store, key, "junk");
    CHECK_OK(diloco_verify_from_snapshot(&report, url, 1, NULL, NULL));
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify(&report, url, 1, NULL, NULL));
    /* A contribution after it. */
    const dl_generation r1 = {.replica = "r1"};
    dl_key_contribution(key, ENTRIES - 1, &r1);
    replace(store, key, "junk");
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify_from_snapshot(&report, url, 1, NULL, NULL));
    CHECK_CONTAINS("entry 29 ", diloco_error_text());
    /* An entry after it: the next one names the bytes that were there. */
    dl_key_entry(key, first);
    replace(store, key, "junk");
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify_from_snapshot(&report, url, 1, NULL, NULL));
    CHECK_INT(first, report.first_chained);
    CHECK_OK(dl_store_delete(store, key, DL_NEVER));
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify_from_snapshot(&report, url, 1, NULL, NULL));
    CHECK_CONTAINS("is missing: the log has a gap", diloco_error_text());
    dl_store_close(store);
}

TEST(without_an_entry_after_a_snapshot_the_whole_log_is_verified)
{
    toy t = toy_of("r0", "mem://one");
    diloco_verify_report report;
    toy_keep("mem://one");
    toy_set(&t, "run.state_dir", "none");
    toy_live(&t);
    TOY_OK(t);
    CHECK_OK(diloco_verify_from_snapshot(&report, "mem://one", 1, NULL, NULL));
    CHECK_INT(0, report.first_chained);
    CHECK_INT(0, report.first_replayed);
    CHECK_INT(4, report.chained);
    CHECK_INT(4, report.replayed);
}

static diloco_status on_entry(void *user, const diloco_log_entry *e)
{
    uint64_t *next = user;
    CHECK_INT(*next, e->entry);
    CHECK(e->commit);
    ++*next;
    return DILOCO_OK;
}

TEST(the_newest_entries_are_walked_without_the_earlier_ones)
{
    const char *url = "mem://newest";
    dl_store *store = collected(url);
    uint64_t n, next = ENTRIES - 3;
    CHECK_OK(diloco_log_length(&n, url));
    CHECK_INT(ENTRIES, n);
    diloco_verify_report report;
    CHECK_OK(diloco_verify_from_snapshot(&report, url, 1, NULL, NULL));
    delete_entries(store, report.first_chained - 1);
    CHECK_OK(diloco_log_length(&n, url));
    CHECK_INT(ENTRIES, n);
    CHECK_OK(diloco_log_walk(url, next, on_entry, &next));
    CHECK_INT(ENTRIES, next);
    dl_store_close(store);
    CHECK_STATUS(DILOCO_ENOENT, diloco_log_length(&n, scratch_folder("empty")));
    CHECK_INT(0, n);
}

TEST(junk_after_the_end_of_a_log_does_not_change_its_length)
{
    const char *url = "mem://unfinished";
    toy t = toy_of("r0", url);
    dl_store *store;
    uint64_t n, again;
    const dl_span junk = {"junk", 4};
    toy_keep(url);
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "trainer.rounds", "30");
    t.stop_after = 30; /* an entry is 3 steps, so the search reads entry 14 */
    toy_live(&t);
    TOY_OK(t);
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(diloco_log_length(&n, url));
    CHECK(n >= 9 && n <= 11);
    for (uint64_t e = n + 1; e < ENTRIES + 3; e++) {
        dl_key key;
        dl_key_entry(key, e);
        CHECK_OK(dl_store_create(store, key, &junk, 1, NULL, DL_NEVER));
        CHECK_OK(diloco_log_length(&again, url));
        CHECK_INT(n, again);
        CHECK_OK(dl_store_delete(store, key, DL_NEVER));
    }
    dl_store_close(store);
}

TEST_MAIN(entries_before_the_oldest_snapshot_are_not_read,
          damage_since_the_oldest_snapshot_is_named_and_earlier_damage_is_not_seen,
          without_an_entry_after_a_snapshot_the_whole_log_is_verified,
          the_newest_entries_are_walked_without_the_earlier_ones,
          junk_after_the_end_of_a_log_does_not_change_its_length)
