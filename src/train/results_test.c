/* results_test.c - the results file with a real log: rows, known and unknown values, consecutive
 * generations, concurrent processes, and files that are something else. */
#include "train/results.h"

#include "base/file.h"
#include "train_fixture.h"

#include <math.h>

enum { ROUNDS = 4 };

/* One run for all tests, which only read its log. */
static dl_config *finished_run(void)
{
    static dl_config *run;
    fixture_record record = {0};
    if (run) return run;
    run = fixture_config("diloco");
    set(run, "trainer.rounds", "4");
    set(run, "trainer.local_steps_per_round", "3");
    fixture_train(run, &record, 1);
    fixture_record_free(&record);
    return run;
}

/* Its results with these columns, in a folder of their own. */
static dl_config *results_in(const char *folder, const char *types)
{
    dl_config *c = malloc(sizeof *c);
    CHECK(c != NULL);
    *c = *finished_run();
    set(c, "results.result_path", scratch_path(folder));
    set(c, "results.types", types);
    return c;
}

static char *text_of(const dl_results *r)
{
    static char text[8192];
    dl_buf buf;
    dl_buf_init(&buf, sizeof text - 1);
    CHECK_OK(dl_file_read(&buf, r->path));
    memcpy(text, buf.data, buf.len);
    text[buf.len] = 0;
    dl_buf_deinit(&buf);
    return text;
}

static void put(dl_results *r, uint64_t round, double accuracy)
{
    const dl_score score = {.accuracy = accuracy, .loss = 2 * accuracy};
    CHECK_OK(dl_results_put(r, round, isnan(accuracy) ? NULL : &score));
}

TEST(columns_are_named_once_and_known)
{
    static const char *const wrong[] = {"", "round, mse", "round,round", "accuracyround"};
    dl_config *c = results_in("columns", "round");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        set(c, "results.types", wrong[i]);
        CHECK_STATUS(DILOCO_EINVAL, dl_results_check(c));
        CHECK_CONTAINS("name columns, each once, of round, accuracy", diloco_error_text());
        dl_results r;
        CHECK_STATUS(DILOCO_EINVAL, dl_results_open(&r, c, 0));
    }
    set(c, "results.types",
        "samples steps,clients, comm_overhead train_loss test_loss elapsed_time accuracy round");
    CHECK_OK(dl_results_check(c));
    free(c);
}

TEST(a_run_that_begins_has_a_file_of_columns_alone)
{
    dl_results r;
    dl_config *c = results_in("begin", "round, accuracy");
    CHECK_OK(dl_results_open(&r, c, 0));
    CHECK_STR("round,accuracy\n", text_of(&r));
    CHECK_CONTAINS("/begin/run", r.path);
    CHECK(isnan(dl_results_accuracy(&r, 1)));
    dl_results_close(&r);
    free(c);
}

TEST(rows_have_the_logs_facts_and_empty_unmeasured_values)
{
    dl_results r;
    dl_config *c = results_in("known", "round,accuracy,test_loss,clients,steps,samples");
    CHECK_OK(dl_results_open(&r, c, 0));
    put(&r, 1, 0.25);
    put(&r, 2, NAN);
    put(&r, 4, 0.5); /* no process wrote round 3: its facts are in the log */
    CHECK_STR("round,accuracy,test_loss,clients,steps,samples\n"
              "1,0.25,0.5,1,3,6\n"
              "2,,,1,6,12\n"
              "3,,,1,9,18\n"
              "4,0.5,1,1,12,24\n",
              text_of(&r));
    CHECK(dl_results_accuracy(&r, 4) == 0.5 && isnan(dl_results_accuracy(&r, 3)));
    dl_results_close(&r);
    free(c);
}

/* Sums have whole bytes and microseconds, and are written that way. */
TEST(sums_have_no_more_than_six_decimals)
{
    dl_results r;
    dl_config *c = results_in("decimals", "round,comm_overhead,elapsed_time");
    CHECK_OK(dl_results_open(&r, c, 0));
    put(&r, 1, 0.5);
    for (int k = 1; k <= 4; k++)
        r.rows[k - 1].values[DL_RESULTS_COMM_OVERHEAD] = 0.1 * 3 * k, /* 0.30000000000000004 */
            r.rows[k - 1].values[DL_RESULTS_ELAPSED_TIME] = 0.1 * 3 * k;
    put(&r, 4, 0.5);
    CHECK_CONTAINS("1,0.3,0.3\n", text_of(&r));
    dl_results_close(&r);
    free(c);
}

TEST(a_round_that_the_log_does_not_have_gets_no_row)
{
    dl_results r;
    dl_config *c = results_in("beyond", "round");
    CHECK_OK(dl_results_open(&r, c, 0));
    CHECK_STATUS(DILOCO_EINVAL, dl_results_put(&r, ROUNDS + 1, NULL));
    CHECK_CONTAINS("has no entry of round 5", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, dl_results_put(&r, 0, NULL));
    dl_results_close(&r);
    free(c);
}

TEST(later_generation_continues_the_file_and_its_time)
{
    dl_results r;
    dl_config *c = results_in("lives", "round,accuracy,elapsed_time");
    CHECK_OK(dl_results_open(&r, c, 0));
    r.begin -= 100 * DL_SECOND; /* it has run for 100 s */
    put(&r, 1, 0.25);
    put(&r, 2, 0.5);
    dl_results_close(&r);
    CHECK_OK(dl_results_open(&r, c, 2));
    CHECK(dl_results_accuracy(&r, 1) == 0.25 && dl_results_accuracy(&r, 2) == 0.5);
    CHECK(r.before >= 100);
    put(&r, 3, 0.75);
    const double *two = r.rows[1].values, *three = r.rows[2].values;
    CHECK(three[DL_RESULTS_ELAPSED_TIME] >= two[DL_RESULTS_ELAPSED_TIME]);
    CHECK(two[DL_RESULTS_ELAPSED_TIME] >= 100 && two[DL_RESULTS_ACCURACY] == 0.5);
    dl_results_close(&r);
    free(c);
}

/* Another generation's measurements stay, though this one has other columns. */
TEST(columns_may_change_between_generations)
{
    dl_results r;
    dl_config *c = results_in("change", "accuracy,round");
    CHECK_OK(dl_results_open(&r, c, 0));
    put(&r, 1, 0.25);
    dl_results_close(&r);
    set(c, "results.types", "round,clients,accuracy");
    CHECK_OK(dl_results_open(&r, c, 1));
    put(&r, 2, 0.5);
    CHECK_CONTAINS("round,clients,accuracy\n1,1,0.25\n2,1,0.5\n", text_of(&r));
    dl_results_close(&r);
    free(c);
}

TEST(processes_beside_each_other_lose_nothing_of_each_others)
{
    dl_results a, b;
    dl_config *c = results_in("beside", "round,accuracy");
    CHECK_OK(dl_results_open(&a, c, 0));
    CHECK_OK(dl_results_open(&b, c, 1));
    put(&b, 2, 0.5);
    put(&a, 1, 0.25);
    put(&b, 4, 1);
    put(&a, 3, 0.75);
    CHECK_STR("round,accuracy\n1,0.25\n2,0.5\n3,0.75\n4,1\n", text_of(&a));
    dl_results_close(&a);
    dl_results_close(&b);
    free(c);
}

TEST(a_file_that_is_something_else_is_left_alone_and_named)
{
    static const char *const texts[][2] = {{"round,accuracy\n1,0.5\n2,x\n", "line 3 is not a line"},
                                           {"round,accuracy\n1,0.5,7\n", "line 2 is not a line"},
                                           {"round,accuracy\n1,0.5", "line 2 is not a line"},
                                           {"a letter\n", "line 1 is not a line"},
                                           {"", "line 1 is not a line"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dl_results r;
        char path[DL_PATH_MAX + 1], folder[16];
        snprintf(folder, sizeof folder, "foreign%zu", i);
        dl_config *c = results_in(folder, "round,accuracy");
        CHECK_OK(dl_results_open(&r, c, 0));
        snprintf(path, sizeof path, "%s", r.path);
        dl_results_close(&r);
        CHECK_OK(dl_file_write(path, &(dl_span){texts[i][0], strlen(texts[i][0])}, 1));
        for (uint64_t entries = 0; entries <= 1; entries++) { /* 0: a run that begins */
            CHECK_STATUS(DILOCO_EPROTO, dl_results_open(&r, c, entries));
            CHECK_CONTAINS(texts[i][1], diloco_error_text());
            CHECK_CONTAINS("move the file away", diloco_error_text());
        }
        snprintf(r.path, sizeof r.path, "%s", path);
        CHECK_STR(texts[i][0], text_of(&r));
        free(c);
    }
}

TEST(a_run_that_begins_replaces_the_results_of_an_earlier_run)
{
    dl_results r;
    dl_config *c = results_in("again", "round,accuracy");
    CHECK_OK(dl_results_open(&r, c, 0));
    put(&r, 1, 0.25);
    dl_results_close(&r);
    set(c, "results.types", "accuracy,round");
    CHECK_OK(dl_results_open(&r, c, 0));
    CHECK_STR("accuracy,round\n", text_of(&r));
    put(&r, 2, 0.5);
    CHECK_STR("accuracy,round\n,1\n0.5,2\n,3\n,4\n", text_of(&r));
    dl_results_close(&r);
    free(c);
}

TEST(file_is_beside_the_logs_folder_or_under_the_base_path)
{
    dl_results r;
    dl_config *c = results_in("unused", "round");
    set(c, "results.result_path", "");
    CHECK_OK(dl_results_open(&r, c, 0));
    char expected[2 * DL_PATH_MAX];
    snprintf(expected, sizeof expected, "%s.csv", c->store);
    CHECK_STR(expected, r.path);
    dl_results_close(&r);
    set(c, "general.base_path", scratch_path("base"));
    set(c, "run.store", "mem://somewhere/a-run");
    CHECK_OK(dl_results_open(&r, c, 0));
    snprintf(expected, sizeof expected, "%s/a-run.csv", scratch_path("base"));
    CHECK_STR(expected, r.path);
    dl_results_close(&r);
    free(c);
}

TEST_MAIN(columns_are_named_once_and_known, a_run_that_begins_has_a_file_of_columns_alone,
          rows_have_the_logs_facts_and_empty_unmeasured_values, sums_have_no_more_than_six_decimals,
          a_round_that_the_log_does_not_have_gets_no_row,
          later_generation_continues_the_file_and_its_time, columns_may_change_between_generations,
          processes_beside_each_other_lose_nothing_of_each_others,
          a_file_that_is_something_else_is_left_alone_and_named,
          a_run_that_begins_replaces_the_results_of_an_earlier_run,
          file_is_beside_the_logs_folder_or_under_the_base_path)
