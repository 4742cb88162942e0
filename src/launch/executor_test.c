/* executor_test.c - ids of the book that no executor may use, for every row of the table. */
#include "base/json.h"
#include "launch/supervisor.h"

#include "check.h"
#include "scratch.h"
#include <diloco/log.h>

#include <stdlib.h>
#include <string.h>

#define NAME   "diloco-1f0c2ab9-r0-g0"
#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *const none[] = {NULL};
static const char run[] = "1f0c2ab9000000000000000000000000";

/* Ids that the executor's backend gives to rank 0 of generation 0. */
static const struct {
    const char *executor, *id;
} good[] = {
    {"local", "machine-1.example/" NAME},
    {"ssh", "alice@a.example:2222 " DIGEST},
    {"ssh", "b.example " DIGEST},
    {"slurm", "17_0"},
    {"k8s", "diloco-1f0c2ab9-g0/0"},
    {"k8s", NAME "/0"},
    {"hf-jobs", "687f911eaea852de79c4a50a"},
    {"sagemaker", NAME},
    {"vertex", "projects/7/locations/europe-west4/customJobs/4242424242424242424"},
    {"vertex", "projects/example.com:team/locations/us-east1/customJobs/1"},
    {"runpod", "xedezhzb9la3ye"},
    {"azureml", NAME},
    {"skypilot", "17"},
    {"modal", "sb-Hc7kQ2LxV0aBcDeFgHiJkL"},
};

/* Ids that no executor accepts. NULL is replaced by 5,000 characters. */
static const char *const hostile[] = {"'; touch x; '", "--all", "--user=x", "../x", "a/b",
                                      "17\n18",        "",      "17 18",    "..",   NULL};

/* Ids that one executor must not accept, although they resemble its own. */
static const struct {
    const char *executor, *id;
} foreign[] = {
    {"local", "machine/diloco-1f0c2ab9-r1-g0"},
    {"local", "/" NAME},
    {"ssh", "alice@a.example 0123456789abcdef0123456789abcdef0123456789abcdef';touch x;'abcdef"},
    {"ssh", "-oProxyCommand=x " DIGEST},
    {"ssh", "alice@-oProxyCommand=x " DIGEST},
    {"ssh", "a$(touch${IFS}x) " DIGEST},
    {"ssh", "a b " DIGEST},
    {"slurm", "17"},
    {"slurm", "17_1"},
    {"slurm", "_0"},
    {"k8s", "database/0"},
    {"k8s", "diloco-1f0c2ab9-g0/1"},
    {"k8s", "diloco-1f0c2ab9-g1/0"},
    {"sagemaker", "another-job"},
    {"vertex", "projects/7/secrets/token"},
    {"vertex", "projects/../locations/europe-west4/customJobs/1"},
    {"vertex", "projects/7/locations/europe-west4/customJobs/1:x"},
    {"azureml", "another-job"},
    {"hf-jobs", "687f911eaea852de79c4a50a/../../datasets"},
    {"skypilot", "17x"},
    {"skypilot", "-1"},
};

/* ---- a book that another party has written */

static void put(const char *store, unsigned number, const char *text)
{
    dl_store *handle;
    char key[40];
    const dl_span span = {text, strlen(text)};
    snprintf(key, sizeof key, "launch/%010u.json", number);
    CHECK_OK(dl_store_open(&handle, store, false));
    CHECK_OK(dl_store_create(handle, key, &span, 1, NULL, dl_clock_now() + DL_SECOND * 10));
    dl_store_close(handle);
}

/* The record of a handle with this id. The caller frees the text. */
static char *handle_of(const char *id)
{
    dl_buf text;
    dl_json j;
    dl_buf_init(&text, 1 << 16);
    dl_json_init(&j, &text);
    dl_json_object(&j, NULL);
    dl_json_u64(&j, "format", 1);
    dl_json_str(&j, "what", "handle");
    dl_json_u64(&j, "generation", 0);
    dl_json_array(&j, "ids");
    dl_json_array(&j, NULL);
    dl_json_u64(&j, NULL, 0);
    dl_json_str(&j, NULL, id);
    dl_json_end(&j);
    dl_json_end(&j);
    dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    char *copy = strdup(dl_buf_str(&text));
    CHECK(copy);
    dl_buf_deinit(&text);
    return copy;
}

static unsigned warnings;
static char warning[256];
static void keep_warning(void *user, diloco_log_level level, const char *line)
{
    (void)user;
    warnings += level == DILOCO_LOG_WARN;
    snprintf(warning, sizeof warning, "%s", line);
}

/* Open a new book, in which rank 0 was started with this executor and has this id. */
static const dl_executor *open_with(dl_book *book, const char *executor, const char *id, bool lost)
{
    static unsigned number;
    char name[32], text[512];
    dl_store *store;
    const dl_executor *row;
    const char *on;
    snprintf(name, sizeof name, "book%u", number++);
    const char *path = scratch_path(name);
    char *handle = handle_of(id);
    CHECK_OK(dl_store_open(&store, path, true));
    dl_store_close(store);
    snprintf(text, sizeof text,
             "{\"format\":1,\"what\":\"begin\",\"executor\":\"%s%s\",\"dir\":\"%s\",\"min\":1,"
             "\"max\":1,\"options\":{}}",
             executor, strcmp(executor, "ssh") ? "" : "://a", scratch_path("dir"));
    put(path, 0, text);
    put(path, 1,
        "{\"format\":1,\"what\":\"start\",\"at\":1,\"by\":\"x\",\"generation\":0,\"ranks\":[0]}");
    put(path, 2, handle);
    if (lost)
        put(path, 3,
            "{\"format\":1,\"what\":\"state\",\"at\":1,\"rank\":0,\"generation\":0,\"code\":-1,"
            "\"state\":\"LOST\",\"message\":\"\"}");
    free(handle);
    warnings = 0;
    diloco_log_set(keep_warning, NULL, DILOCO_LOG_WARN);
    CHECK_OK(dl_book_open(book, path, run, NULL));
    CHECK_OK(dl_executor_find(&row, &on, book->executor));
    dl_book_bind(book, row);
    diloco_log_set(NULL, NULL, DILOCO_LOG_ERROR);
    return row;
}

static diloco_status find_none(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    (void)spec, (void)jobs, (void)n;
    return DILOCO_OK;
}

/* Nothing of the executor is called about a replica whose id was refused. The programs that
 * executors run are replaced by one that fails the test. */
static void check_refused(const char *executor, const char *id)
{
    for (int lost = 0; lost < 2; lost++) {
        dl_book book;
        const dl_executor *row = open_with(&book, executor, id, lost);
        if (*book.ranks[0].job.id || *book.ranks[0].orphan.id)
            CHECK_FAIL("%s accepts the id \"%.100s\"", executor, id);
        CHECK_INT(1, warnings);
        CHECK_CONTAINS("launch/0000000002.json", warning);
        const dl_launch_spec spec = {.run = run,
                                     .config = book.options,
                                     .on = "a",
                                     .dir = book.dir,
                                     .program = "",
                                     .argv = none,
                                     .env = none,
                                     .secrets = none};
        dl_executor blind = *row; /* it finds no replica by its name either */
        blind.find = find_none;
        const dl_control control = {.spec = &spec, .executor = &blind, .book = &book};
        CHECK_OK(dl_control_poll(&control));
        book.ranks[0].start_seen -= 61 * DL_SECOND; /* its launcher has had its time */
        CHECK_OK(dl_control_cancel(&control));
        CHECK(access(scratch_path("ran"), F_OK) != 0);
        dl_book_close(&book);
    }
}

/* Put programs that only make the file "ran" before the others. */
static void replace_programs(void)
{
    static const char *const names[] = {"ssh", "scancel", "squeue", "sky", "modal"};
    char script[PATH_MAX + 64], path[PATH_MAX];
    CHECK_INT(0, mkdir(scratch_path("bin"), 0700));
    snprintf(script, sizeof script, "#!/bin/sh\n: >'%s'\n", scratch_path("ran"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "bin/%s", names[i]);
        CHECK_INT(0, chmod(scratch_write(path, script, strlen(script)), 0700));
    }
    CHECK_INT(0, setenv("PATH", scratch_path("bin"), 1));
}

TEST(hostile_ids_are_refused_for_every_executor_before_a_command_runs)
{
    static char much[5001];
    memset(much, '1', sizeof much - 1);
    replace_programs();
    for (size_t i = 0; dl_executor_at(i); i++)
        for (size_t k = 0; k < sizeof hostile / sizeof *hostile; k++)
            check_refused(dl_executor_at(i)->name, hostile[k] ? hostile[k] : much);
}

static bool has_row(const char *name)
{
    size_t i = 0;
    while (dl_executor_at(i) && strcmp(dl_executor_at(i)->name, name) != 0)
        i++;
    return dl_executor_at(i);
}

TEST(message_has_no_full_stop_since_it_becomes_part_of_a_sentence)
{
    dl_job job;
    dl_job_init(&job, "1f0c2ab9", 0, 0);
    dl_job_set(&job, DL_JOB_FAILED, -1, "Failed: %s", "The image nowhere/none was not found.");
    CHECK_STR("Failed: The image nowhere/none was not found", job.message);
    dl_job_set_silent(&job, "%s", "no answer...\n");
    CHECK_STR("no answer", job.message);
}

TEST(ids_of_another_job_are_refused)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (has_row(foreign[i].executor)) check_refused(foreign[i].executor, foreign[i].id);
}

TEST(ids_that_a_backend_gives_are_kept)
{
    for (size_t i = 0; dl_executor_at(i); i++) {
        const char *name = dl_executor_at(i)->name;
        unsigned n = 0;
        for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
            dl_book book;
            if (strcmp(good[k].executor, name) != 0) continue;
            n++;
            open_with(&book, name, good[k].id, true);
            CHECK_STR(good[k].id, book.ranks[0].job.id);
            CHECK_STR(good[k].id, book.ranks[0].orphan.id);
            CHECK_INT(0, warnings);
            dl_book_close(&book);
        }
        if (n == 0) CHECK_FAIL("add an id of %s to the table", name);
        if (!dl_executor_at(i)->find) CHECK_FAIL("%s finds no job by its name", name);
    }
}

TEST(ids_of_another_executor_are_dropped_when_a_book_is_bound)
{
    dl_book book;
    const dl_executor *slurm;
    const char *on;
    open_with(&book, "local", "machine/" NAME, true);
    CHECK_OK(dl_executor_find(&slurm, &on, "slurm"));
    dl_book_bind(&book, slurm);
    CHECK_STR("", book.ranks[0].job.id);
    CHECK_STR("", book.ranks[0].orphan.id);
    dl_book_close(&book);
}

TEST(begin_of_another_executor_does_not_change_the_ids_that_a_bound_book_keeps)
{
    static dl_config config;
    dl_book book, other;
    const dl_launch_spec spec = {.run = run, .config = &config, .dir = "/", .secrets = none};
    dl_config_init(&config);
    const dl_executor *row = open_with(&book, "local", "machine/" NAME, false);
    dl_book_bind(&book, row);
    CHECK_OK(dl_book_open(&other, dl_store_url(book.store), run, NULL));
    CHECK_OK(dl_book_begin(&other, &spec, "slurm", 1, 1));
    CHECK_STR("", other.ranks[0].job.id);
    snprintf(other.ranks[0].job.id, sizeof other.ranks[0].job.id, "17_0");
    CHECK_OK(dl_book_handles(&other, &other.ranks[0].job, 1));
    CHECK_STR("17_0", other.ranks[0].job.id);
    CHECK_OK(dl_book_read(&book));
    CHECK_STR("slurm", book.executor);
    CHECK_STR("machine/" NAME, book.ranks[0].job.id);
    dl_book_close(&other);
    dl_book_close(&book);
}

/* An option that decides the price, and is missing there, would be a surprise on a bill. */
TEST(price_names_every_resource_option_of_its_executor_and_no_other)
{
    static const char *const resources[] = {"machine", "cpus", "gpus",   "gpu_type",
                                            "memory",  "disk", "region", "spot"};
    for (size_t i = 0; dl_executor_at(i); i++) {
        const dl_executor *row = dl_executor_at(i);
        const char *at = row->caps.price ? row->caps.price : "";
        unsigned named = 0, owned = 0;
        char option[32];
        for (size_t k = 0; k < sizeof resources / sizeof *resources; k++)
            owned += dl_executor_uses(row, resources[k]);
        while ((at = strstr(at, "launch."))) {
            at += strlen("launch.");
            snprintf(option, sizeof option, "%.*s", (int)strspn(at, "abcdefghijklmnopqrstuvwxyz_"),
                     at);
            if (!dl_executor_uses(row, option))
                CHECK_FAIL("%s has no option launch.%s", row->name, option);
            for (size_t k = 0; k < sizeof resources / sizeof *resources; k++)
                named += strcmp(option, resources[k]) == 0;
        }
        if (named != owned) CHECK_FAIL("%s: %u of %u options", row->name, named, owned);
    }
}

TEST_MAIN(price_names_every_resource_option_of_its_executor_and_no_other,
          hostile_ids_are_refused_for_every_executor_before_a_command_runs,
          message_has_no_full_stop_since_it_becomes_part_of_a_sentence,
          ids_of_another_job_are_refused, ids_that_a_backend_gives_are_kept,
          ids_of_another_executor_are_dropped_when_a_book_is_bound,
          begin_of_another_executor_does_not_change_the_ids_that_a_bound_book_keeps)
