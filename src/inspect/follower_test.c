/* follower_test.c - a follower gives each entry and each line of the record once, and says what a
 * status says. */
#include "inspect/follower.h"
#include "toy_run.h"

enum { N = 2 };

typedef struct taken {
    uint64_t entries, chained, lines, first;
    size_t bytes;
} taken;

static diloco_status take_entry(void *user, const diloco_log_entry *entry, bool chained)
{
    taken *t = user;
    if (t->entries == 0) t->first = entry->entry;
    t->entries++;
    t->chained += chained;
    return DILOCO_OK;
}

static diloco_status take_line(void *user, const dl_generation *generation, const char *line,
                               size_t len)
{
    taken *t = user;
    (void)generation, (void)line;
    t->lines++;
    t->bytes += len + 1;
    return DILOCO_OK;
}

static taken read_all(dl_follower *f)
{
    taken t = {0};
    const dl_follower_sink sink = {&t, take_entry, take_line};
    bool more;
    CHECK_OK(dl_follower_read(f, &more, &sink, DL_NEVER));
    CHECK(!more);
    return t;
}

static size_t train(toy *all, const char *store, const char *rounds)
{
    size_t len = 0;
    toy_crew(all, N, store, "none");
    toy_set_all(all, N, "trainer.rounds", rounds);
    for (int i = 0; i < N; i++)
        toy_keep_record(&all[i]);
    toy_live_all(all, N);
    for (int i = 0; i < N; i++) {
        TOY_OK(all[i]);
        len += all[i].record_len;
        free(all[i].record);
    }
    return len;
}

TEST(each_entry_and_each_line_is_given_once)
{
    toy all[N];
    dl_follower *f;
    toy_keep("mem://follower");
    const size_t record = train(all, "mem://follower", "3");
    CHECK_OK(dl_follower_open(&f, "mem://follower"));
    CHECK_OK(dl_follower_look(f));
    const taken once = read_all(f);
    CHECK_INT(3, once.entries);
    CHECK_INT(3, once.chained);
    CHECK_INT(record, once.bytes);
    const taken again = read_all(f);
    CHECK_INT(0, again.entries);
    CHECK_INT(0, again.lines);
    dl_follower_close(f);
}

TEST(a_read_that_timed_out_resumes_where_it_stopped)
{
    toy all[N];
    dl_follower *f;
    taken t = {0};
    const dl_follower_sink sink = {&t, take_entry, take_line};
    bool more;
    toy_keep("mem://follower-budget");
    train(all, "mem://follower-budget", "3");
    CHECK_OK(dl_follower_open(&f, "mem://follower-budget"));
    for (uint64_t e = 1; e <= 3; e++) {
        CHECK_OK(dl_follower_read(f, &more, &sink, 0));
        CHECK(more);
        CHECK_INT(e, t.entries);
        CHECK(!dl_follower_has_log(f) || e == 3);
    }
    CHECK_INT(0, t.first);
    dl_follower_close(f);
}

TEST(a_follower_reports_the_values_of_a_status)
{
    toy all[N];
    dl_follower *f;
    diloco_run_status read;
    toy_keep("mem://follower-status");
    train(all, "mem://follower-status", "2");
    CHECK_OK(dl_follower_open(&f, "mem://follower-status"));
    read_all(f);
    CHECK_OK(dl_follower_look(f));
    CHECK_OK(dl_follower_look(f)); /* a second look counts nothing twice */
    CHECK_OK(diloco_run_status_read(&read, "mem://follower-status", 0));
    const diloco_run_status *s = dl_follower_status(f);
    CHECK_STR(read.run, s->run);
    CHECK_INT(2, s->entries);
    CHECK_INT(read.commits, s->commits);
    CHECK(s->done && read.done);
    CHECK_INT(N, s->n_replicas);
    for (size_t i = 0; i < N; i++) {
        CHECK_STR(read.replicas[i]->replica, s->replicas[i]->replica);
        CHECK(s->replicas[i]->ended && !s->replicas[i]->alive);
        CHECK_INT(read.replicas[i]->step, s->replicas[i]->step);
    }
    diloco_run_status_free(&read);
    dl_follower_close(f);
}

/* Forged generations of r0 fill the table, as their names come first. */
TEST(forged_generations_of_one_replica_hide_no_other)
{
    toy all[N];
    dl_follower *f;
    dl_store *store;
    toy_keep("mem://follower-forged");
    const size_t record = train(all, "mem://follower-forged", "3");
    CHECK_OK(dl_store_open(&store, "mem://follower-forged", false));
    for (uint32_t g = 1; g <= 20; g++) {
        dl_key key;
        const dl_generation forged = {.replica = "r0", .number = g};
        dl_key_gen(key, &forged);
        CHECK_OK(dl_store_create(store, key, &(dl_span){"{}", 2}, 1, NULL, DL_NEVER));
    }
    dl_store_close(store);
    CHECK_OK(dl_follower_open(&f, "mem://follower-forged"));
    dl_follower_set_most(f, 10);
    CHECK_OK(dl_follower_look(f));
    size_t bytes = read_all(f).bytes; /* of r0 alone */
    CHECK(bytes > 0 && bytes < record);
    for (int k = 0; k < 2; k++) { /* the second look displaces nothing again */
        CHECK_OK(dl_follower_look(f));
        bytes += read_all(f).bytes;
        CHECK_INT(record, bytes);
    }
    dl_follower_close(f);
}

TEST(an_entry_that_was_changed_breaks_the_chain_after_it)
{
    toy all[N];
    dl_follower *f;
    char path[1100];
    const char *store = scratch_path("follower");
    train(all, store, "3");
    snprintf(path, sizeof path, "%s/log/0000000001.json", store);
    FILE *file = fopen(path, "a");
    CHECK(file);
    fputc(' ', file);
    fclose(file);
    CHECK_OK(dl_follower_open(&f, store));
    const taken t = read_all(f);
    CHECK_INT(3, t.entries);
    CHECK_INT(2, t.chained);
    dl_follower_close(f);
}

static void copy_file(const char *store, const char *from, const char *to)
{
    char path[1100], command[3000];
    snprintf(path, sizeof path, "%s/%s", store, to);
    *strrchr(path, '/') = '\0';
    snprintf(command, sizeof command, "mkdir -p '%s' && cp '%s/%s' '%s/%s'", path, store, from,
             store, to);
    CHECK_INT(0, system(command));
}

/* Generations of a single committer have random numbers (P26). */
TEST(generations_with_distant_numbers_are_followed_without_those_between)
{
    toy all[N];
    dl_follower *f;
    const char *store = scratch_path("follower-distant");
    const size_t record = train(all, store, "3");
    copy_file(store, "gen/r0.0000", "gen/r0.70000");
    copy_file(store, "rec/r0.0000/0000000000.jsonl.zst", "rec/r0.70000/0000000000.jsonl.zst");
    CHECK_OK(dl_follower_open(&f, store));
    CHECK_OK(dl_follower_look(f));
    CHECK_INT(70000, dl_follower_status(f)->replicas[0]->generation);
    CHECK(read_all(f).bytes > record);
    CHECK_OK(dl_follower_look(f));
    CHECK_INT(0, read_all(f).bytes);
    dl_follower_close(f);
}

TEST(where_there_is_no_run_there_is_nothing_to_follow)
{
    dl_follower *f;
    toy_keep("mem://follower-none");
    CHECK_STATUS(DILOCO_ENOENT, dl_follower_open(&f, "mem://follower-none"));
    CHECK(!f);
}

TEST_MAIN(each_entry_and_each_line_is_given_once, a_read_that_timed_out_resumes_where_it_stopped,
          a_follower_reports_the_values_of_a_status,
          forged_generations_of_one_replica_hide_no_other,
          an_entry_that_was_changed_breaks_the_chain_after_it,
          generations_with_distant_numbers_are_followed_without_those_between,
          where_there_is_no_run_there_is_nothing_to_follow)
