/* batch_test.c - the words of a command, and which batch a store has. */
#include "launch/batch.h"

#include "check.h"
#include "scratch.h"

#include <string.h>

static char **words_of(const char *command)
{
    char **words;
    CHECK_OK(dl_batch_words(&words, command));
    return words;
}

TEST(a_command_is_a_list_of_words)
{
    char **words = words_of("[\"sh\", \"-c\", \"echo a,b  \\\"$x\\\"\\n\", \"{rank}\"]");
    CHECK_STR("sh", words[0]);
    CHECK_STR("echo a,b  \"$x\"\n", words[2]);
    CHECK_STR("{rank}", words[3]);
    CHECK(!words[4]);
    dl_argv_free(words);
}

TEST(a_text_that_is_no_list_of_words_is_refused)
{
    static const char *const bad[] = {"",       "python job.py", "\"python\"",   "[]",
                                      "[\"\"]", "[1]",           "{\"a\":\"b\"}"};
    char **words;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(DILOCO_EINVAL, dl_batch_words(&words, bad[i]));
        CHECK(!words);
        CHECK_CONTAINS("job.command", diloco_error_text());
    }
}

TEST(the_same_command_finds_its_batch_and_another_is_refused)
{
    const char *store = scratch_path("store");
    char **one = words_of("[\"true\",\"{rank}\"]"), **other = words_of("[\"true\"]");
    dl_batch batch, again;
    CHECK_OK(dl_batch_open(&batch, store, 3, one, ""));
    CHECK_INT(32, strlen(batch.id));
    CHECK_OK(dl_batch_open(&again, store, 3, one, ""));
    CHECK_STR(batch.id, again.id);
    CHECK_STATUS(DILOCO_EREFUSED, dl_batch_open(&again, store, 3, other, ""));
    CHECK_CONTAINS("a batch of another command", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, dl_batch_open(&again, store, 4, one, ""));
    CHECK_CONTAINS("a batch of 3 ranks", diloco_error_text());
    CHECK_OK(dl_batch_read(&again, store));
    CHECK_STR(batch.id, again.id);
    CHECK_INT(3, again.ranks);
    dl_argv_free(one);
    dl_argv_free(other);
}

TEST(run_of_the_ranks_is_kept_and_another_is_refused)
{
    const char *store = scratch_path("trains");
    char **words = words_of("[\"true\"]");
    dl_batch batch, again;
    CHECK_OK(dl_batch_open(&batch, store, 2, words, "s3://bucket/run"));
    CHECK_OK(dl_batch_read(&again, store));
    CHECK_STR("s3://bucket/run", again.run);
    CHECK_OK(dl_batch_open(&again, store, 2, words, "s3://bucket/run"));
    CHECK_STR(batch.id, again.id);
    CHECK_STATUS(DILOCO_EREFUSED, dl_batch_open(&again, store, 2, words, ""));
    CHECK_CONTAINS("train the run in s3://bucket/run", diloco_error_text());
    dl_argv_free(words);
}

TEST(run_of_a_record_is_near_in_the_same_bucket_or_as_a_path)
{
    static const struct {
        const char *run, *url;
        bool near;
    } rows[] = {
        {"/shared/run", "runs/batch", true},
        {"s3://bucket/run", "s3://bucket/batch", true},
        {"s3://bucket/run?endpoint=x", "s3://bucket/batch", false},
        {"az://container/run?account=b", "az://container/batch?account=a", false},
        {"az://container/run?account=a", "az://container/batch?account=a", true},
        {"s3://bucket", "s3://bucket/batch", true},
        {"s3://bucket2/run", "s3://bucket/batch", false},
        {"https://evil.example/run", "/shared/batch", false},
        {"/shared/run", "s3://bucket/batch", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_INT(rows[i].near, dl_batch_run_is_near(rows[i].run, rows[i].url));
}

TEST(an_invalid_record_of_a_batch_is_refused)
{
    static const char *const bad[] = {
        "{\"format\":2,\"id\":\"0123456789abcdef0123456789abcdef\",\"ranks\":1,\"command\":[\"a\"]"
        "}",
        "{\"format\":1,\"id\":\"../../"
        "0123456789abcdef0123456789\",\"ranks\":1,\"command\":[\"a\"]}",
        "{\"format\":1,\"id\":\"0123456789abcdef0123456789abcdef\",\"ranks\":9999999}", "[", ""};
    dl_batch batch;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char name[16];
        dl_store *store;
        snprintf(name, sizeof name, "bad%zu", i);
        const char *path = scratch_path(name);
        const dl_span span = {bad[i], strlen(bad[i])};
        CHECK_OK(dl_store_open(&store, path, true));
        CHECK_OK(dl_store_create(store, DL_BATCH_KEY, &span, 1, NULL, DL_NEVER));
        dl_store_close(store);
        CHECK_STATUS(DILOCO_EPROTO, dl_batch_read(&batch, path));
    }
}

TEST(a_store_without_a_batch_has_none)
{
    dl_batch batch;
    dl_store *store;
    const char *path = scratch_path("none");
    CHECK_OK(dl_store_open(&store, path, true));
    dl_store_close(store);
    CHECK_STATUS(DILOCO_ENOENT, dl_batch_read(&batch, path));
}

TEST(a_batch_is_removed_with_its_book_when_no_rank_runs)
{
    static dl_config config;
    static const char *const none[] = {NULL};
    const dl_launch_spec spec = {.config = &config, .dir = "/far", .secrets = none};
    const uint32_t rank = 0;
    const char *path = scratch_path("removed");
    char **words = words_of("[\"true\"]");
    dl_batch batch;
    dl_book book;
    uint64_t n;
    dl_config_init(&config);
    CHECK_OK(dl_batch_open(&batch, path, 1, words, ""));
    CHECK_OK(dl_book_open(&book, path, batch.id, NULL));
    CHECK_OK(dl_book_begin(&book, &spec, "local", 1, 1));
    CHECK_OK(dl_book_start(&book, &rank, 1, 0, ""));
    CHECK_STATUS(DILOCO_EREFUSED, dl_batch_remove(&n, path));
    CHECK_CONTAINS("1 rank of the batch", diloco_error_text());
    dl_job job = book.ranks[0].job;
    dl_job_set(&job, DL_JOB_SUCCEEDED, 0, "exit code 0");
    CHECK_OK(dl_book_state(&book, &job));
    dl_book_close(&book);
    CHECK_OK(dl_batch_remove(&n, path));
    CHECK_INT(4, n);
    CHECK_STATUS(DILOCO_ENOENT, dl_batch_read(&batch, path));
    dl_argv_free(words);
}

TEST(a_batch_is_complete_when_every_rank_has_succeeded)
{
    static dl_book_rank ranks[DL_JOBS_MAX];
    dl_book book = {.ranks = ranks, .max = 2};
    CHECK(!dl_batch_is_complete(&(dl_book){.ranks = ranks}));
    book.begun = true;
    ranks[0] = (dl_book_rank){.started = true, .job.state = DL_JOB_SUCCEEDED};
    CHECK(!dl_batch_is_complete(&book));
    ranks[1] = (dl_book_rank){.started = true, .job.state = DL_JOB_FAILED};
    CHECK(!dl_batch_is_complete(&book));
    ranks[1].job.state = DL_JOB_SUCCEEDED;
    CHECK(dl_batch_is_complete(&book));
}

TEST_MAIN(a_command_is_a_list_of_words, a_text_that_is_no_list_of_words_is_refused,
          the_same_command_finds_its_batch_and_another_is_refused,
          run_of_the_ranks_is_kept_and_another_is_refused,
          run_of_a_record_is_near_in_the_same_bucket_or_as_a_path,
          an_invalid_record_of_a_batch_is_refused, a_store_without_a_batch_has_none,
          a_batch_is_removed_with_its_book_when_no_rank_runs,
          a_batch_is_complete_when_every_rank_has_succeeded)
