/* run_status_test.c - the requests of a status do not grow with the log. */
#include "inspect/run_status.h"
#include "toy_run.h"

enum { N = 2 };

static void train(const char *url, const char *rounds, const char *check)
{
    toy all[N];
    toy_keep(url);
    toy_crew(all, N, url, "none");
    toy_set_all(all, N, "trainer.rounds", rounds);
    if (check) toy_set_all(all, N, "check.norm", check);
    toy_live_all(all, N);
    for (int i = 0; i < N; i++)
        TOY_OK(all[i]);
}

/* A book that has caught up, and the requests that this took. */
static dl_status_book *caught_up(uint64_t *n_get, uint64_t *n_list, const char *url)
{
    dl_reader r;
    dl_status_book *book;
    CHECK_OK(dl_reader_open(&r, url));
    CHECK_OK(dl_status_book_create(&book, &r));
    const dl_store_counters before = dl_store_counts(r.store);
    CHECK_OK(dl_status_book_catch_up(book, &r));
    const dl_store_counters after = dl_store_counts(r.store);
    *n_get = after.n_get - before.n_get;
    *n_list = after.n_list - before.n_list;
    dl_reader_close(&r);
    return book;
}

static void check_book(uint64_t *n_get, const char *url, uint64_t entries)
{
    uint64_t n_list;
    dl_status_book *book = caught_up(n_get, &n_list, url);
    const diloco_run_status *s = dl_status_book_run(book);
    CHECK_INT(entries, s->entries);
    CHECK_INT(entries, s->commits);
    CHECK_INT(0, s->aborts);
    CHECK(s->entry_written > 0 && s->entry_read > 0);
    CHECK(n_list <= 1);
    dl_status_book_destroy(book);
}

TEST(a_longer_log_takes_no_more_requests)
{
    uint64_t few, many;
    train("mem://status-short", "3", NULL);
    train("mem://status-long", "90", NULL);
    check_book(&few, "mem://status-short", 3);
    check_book(&many, "mem://status-long", 90);
    CHECK_INT(few, many);
    CHECK(many <= 5);
}

TEST(the_length_of_a_longer_log_takes_no_more_requests)
{
    uint64_t n, bytes[2];
    const char *const urls[] = {"mem://status-short", "mem://status-long"};
    for (int i = 0; i < 2; i++) {
        dl_reader r;
        CHECK_OK(dl_reader_open(&r, urls[i]));
        const dl_store_counters before = dl_store_counts(r.store);
        CHECK_OK(dl_reader_length(&n, &r));
        CHECK_INT(i ? 90 : 3, n);
        bytes[i] = dl_store_counts(r.store).bytes_received - before.bytes_received;
        CHECK_INT(2, dl_store_counts(r.store).n_list - before.n_list);
        dl_reader_close(&r);
    }
    CHECK(bytes[1] < bytes[0] + 64); /* numbers of more digits */
}

TEST(where_entries_may_reject_the_log_is_read)
{
    uint64_t n_get, n_list;
    train("mem://status-checked", "5", "1000");
    dl_status_book *book = caught_up(&n_get, &n_list, "mem://status-checked");
    CHECK_INT(5, dl_status_book_run(book)->commits);
    CHECK(n_get >= 5);
    dl_status_book_destroy(book);
}

/* Its manifest names the entry before it, and that name was changed. */
TEST(a_snapshot_that_does_not_follow_the_log_counts_nothing)
{
    uint64_t n_get, n_list;
    dl_store *store;
    train("mem://status-forged", "4", NULL);
    CHECK_OK(dl_store_open(&store, "mem://status-forged", false));
    CHECK_OK(dl_store_delete(store, "log/0000000003.json", DL_NEVER));
    CHECK_OK(
        dl_store_create(store, "log/0000000003.json", &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
    dl_status_book *book = caught_up(&n_get, &n_list, "mem://status-forged");
    const diloco_run_status *s = dl_status_book_run(book);
    CHECK_INT(4, s->entries);
    CHECK_INT(3, s->commits);
    CHECK_INT(1, s->aborts);
    dl_status_book_destroy(book);
    dl_store_close(store);
}

static void put_name(dl_store *store, uint64_t entry, int i)
{
    dl_key key;
    dl_generation of = {.number = 0};
    snprintf(of.replica, sizeof of.replica, "z%d", i);
    dl_key_snapshot(key, entry, &of, "manifest.json");
    CHECK_OK(dl_store_create(store, key, &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
}

/* Anyone can create names of snapshots: for the entries of the log, one far entry and many. A
 * joining replica chooses among them as a status does. */
TEST(names_of_snapshots_by_others_cost_few_requests)
{
    uint64_t n_get, n_list;
    dl_store *store;
    train("mem://status-names", "30", NULL);
    CHECK_OK(dl_store_open(&store, "mem://status-names", false));
    for (int i = 0; i < 300; i++) {
        put_name(store, 30, i);
        put_name(store, 9999999999, i);
        put_name(store, 1000 + (uint64_t)i, i);
    }
    dl_status_book *book = caught_up(&n_get, &n_list, "mem://status-names");
    CHECK_INT(30, dl_status_book_run(book)->commits);
    CHECK(n_get <= 40);
    dl_status_book_destroy(book);
    dl_store_close(store);
}

/* 17 names for each of those entries. */
static uint64_t gets_with_names(const char *url, uint64_t first, uint64_t n)
{
    uint64_t n_get, n_list;
    dl_store *store;
    train(url, "30", NULL);
    CHECK_OK(dl_store_open(&store, url, false));
    for (uint64_t e = first; e < first + n; e++)
        for (int i = 0; i < 17; i++)
            put_name(store, e, i);
    dl_status_book *book = caught_up(&n_get, &n_list, url);
    CHECK_INT(30, dl_status_book_run(book)->commits);
    dl_status_book_destroy(book);
    dl_store_close(store);
    return n_get;
}

/* An older name is looked at only if no newer one is whole. */
TEST(names_of_older_snapshots_cost_no_request)
{
    const uint64_t none = gets_with_names("mem://status-none", 1, 0);
    const uint64_t older = gets_with_names("mem://status-older", 1, 29);
    CHECK(older <= none + 2); /* twice the entry before the newest name */
}

TEST(names_beyond_the_logs_end_cost_a_search)
{
    const uint64_t none = gets_with_names("mem://status-end", 1, 0);
    const uint64_t beyond = gets_with_names("mem://status-beyond", 1000, 60);
    CHECK(beyond <= none + 12);
}

static const diloco_replica_status *find(const diloco_run_status *s, const char *name)
{
    for (size_t i = 0; i < s->n_replicas; i++)
        if (!strcmp(s->replicas[i]->replica, name)) return s->replicas[i];
    return NULL;
}

/* A writer needs no key to create gen/ objects, and its names may come before all others in the
 * listing. */
TEST(a_crowd_of_invented_names_leaves_out_no_replica_of_the_log)
{
    enum { CROWD = 300, ROOM = 256 };
    diloco_run_status s;
    dl_store *store;
    train("mem://status-crowd", "3", NULL);
    CHECK_OK(dl_store_open(&store, "mem://status-crowd", false));
    for (int i = 0; i < CROWD; i++) {
        char key[64];
        snprintf(key, sizeof key, "gen/a%d.0000", i);
        CHECK_OK(dl_store_create(store, key, &(dl_span){"{}", 2}, 1, NULL, DL_NEVER));
    }
    CHECK_OK(diloco_run_status_read(&s, "mem://status-crowd", 0));
    CHECK_INT(ROOM, s.n_replicas);
    CHECK_INT(CROWD + N - ROOM, s.n_left_out);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", i);
        CHECK(find(&s, name) && find(&s, name)->step > 0);
    }
    diloco_run_status_free(&s);
    dl_store_close(store);
}

TEST_MAIN(a_longer_log_takes_no_more_requests, the_length_of_a_longer_log_takes_no_more_requests,
          where_entries_may_reject_the_log_is_read,
          a_snapshot_that_does_not_follow_the_log_counts_nothing,
          names_of_snapshots_by_others_cost_few_requests, names_of_older_snapshots_cost_no_request,
          names_beyond_the_logs_end_cost_a_search,
          a_crowd_of_invented_names_leaves_out_no_replica_of_the_log)
