/* book_test.c - a book's contents after its records were read, by one launcher and by two. */
#include "launch/book.h"

#include "check.h"
#include "scratch.h"

#include <string.h>

static const char *const none[] = {NULL};
static const char run[] = "1f0c2ab9000000000000000000000000";

static dl_config config;

static dl_launch_spec spec_in(const char *dir)
{
    return (dl_launch_spec){.run = run,
                            .config = &config,
                            .on = "",
                            .dir = dir,
                            .program = "/bin/true",
                            .argv = none,
                            .env = none,
                            .secrets = none};
}

static const char *new_store(const char *name)
{
    dl_store *store;
    char *path = scratch_path(name);
    CHECK_OK(dl_store_open(&store, path, true));
    dl_store_close(store);
    return path;
}

static void open_begun(dl_book *book, const char *store)
{
    const dl_launch_spec spec = spec_in("/somewhere");
    dl_config_init(&config);
    CHECK_OK(dl_book_open(book, store, run, NULL));
    if (!book->begun) CHECK_OK(dl_book_begin(book, &spec, "local", 2, 3));
}

TEST(an_empty_store_has_an_empty_book)
{
    dl_book book;
    CHECK_OK(dl_book_open(&book, new_store("empty"), run, NULL));
    CHECK(!book.begun);
    CHECK_INT(0, book.next);
    dl_book_close(&book);
}

TEST(another_launcher_reads_the_records_of_the_first)
{
    dl_book one, two;
    const char *store = new_store("read");
    const uint32_t ranks[] = {0, 2};
    open_begun(&one, store);
    CHECK_OK(dl_book_start(&one, ranks, 2, 0, ""));
    dl_job job = one.ranks[2].job;
    snprintf(job.id, sizeof job.id, "machine/%s", job.name);
    CHECK_OK(dl_book_handles(&one, &job, 1));
    dl_job_set(&job, DL_JOB_LOST, -1, "killed by signal %d", 9);
    CHECK_OK(dl_book_state(&one, &job));

    CHECK_OK(dl_book_open(&two, store, run, NULL));
    CHECK(two.begun && !two.cancelled);
    CHECK_STR("local", two.executor);
    CHECK_STR("/somewhere", two.dir);
    CHECK_INT(2, two.min);
    CHECK_INT(3, two.max);
    CHECK(two.ranks[0].started && !two.ranks[1].started);
    CHECK_STR("", two.ranks[0].job.id);
    CHECK_STR("diloco-1f0c2ab9-r2-g0", two.ranks[2].job.name);
    CHECK_STR("machine/diloco-1f0c2ab9-r2-g0", two.ranks[2].job.id);
    CHECK_INT(DL_JOB_LOST, two.ranks[2].job.state);
    CHECK_INT(1, two.ranks[2].lost);
    dl_book_close(&one);
    dl_book_close(&two);
}

static void find_program(char out[DL_FOUND_MAX + 1], const dl_launch_spec *spec)
{
    snprintf(out, DL_FOUND_MAX + 1, "program of %.20s", spec->dir);
}

static bool any_id(const dl_job *job)
{
    (void)job;
    return true;
}

TEST(program_of_the_backend_is_read_back_from_the_last_begin)
{
    static const dl_executor with = {.name = "local", .is_id = any_id, .found = find_program};
    dl_book one, two;
    const char *store = new_store("found");
    const dl_launch_spec spec = spec_in("/somewhere");
    dl_config_init(&config);
    CHECK_OK(dl_book_open(&one, store, run, &with));
    CHECK_STR("", one.found);
    CHECK_OK(dl_book_begin(&one, &spec, "local", 2, 3));
    CHECK_OK(dl_book_open(&two, store, run, NULL));
    CHECK_STR("program of /somewhere", two.found);
    CHECK_OK(dl_book_begin(&two, &spec, "local", 2, 4)); /* its executor finds none */
    CHECK_OK(dl_book_read(&one));
    CHECK_STR("", one.found);
    dl_book_close(&one);
    dl_book_close(&two);
}

TEST(of_two_launchers_that_start_one_rank_the_second_gets_a_message)
{
    dl_book one, two;
    const char *store = new_store("race");
    const uint32_t rank = 1;
    open_begun(&one, store);
    open_begun(&two, store);
    CHECK_OK(dl_book_start(&one, &rank, 1, 0, ""));
    CHECK_STATUS(DILOCO_EEXIST, dl_book_start(&two, &rank, 1, 0, ""));
    CHECK(two.ranks[1].started); /* it was read meanwhile */
    CHECK_STR(one.by, two.ranks[1].by);
    dl_book_close(&one);
    dl_book_close(&two);
}

TEST(a_state_is_written_after_the_records_of_another_launcher)
{
    dl_book one, two;
    const char *store = new_store("behind");
    const uint32_t rank = 0;
    open_begun(&one, store);
    CHECK_OK(dl_book_start(&one, &rank, 1, 0, ""));
    open_begun(&two, store);
    CHECK_OK(dl_book_scale(&one, 1, 5));
    dl_job job = two.ranks[0].job;
    dl_job_set(&job, DL_JOB_SUCCEEDED, 0, "exit code 0");
    CHECK_OK(dl_book_state(&two, &job));
    CHECK_INT(5, two.max);
    CHECK_OK(dl_book_read(&one));
    CHECK_INT(DL_JOB_SUCCEEDED, one.ranks[0].job.state);
    dl_book_close(&one);
    dl_book_close(&two);
}

TEST(message_that_is_cut_within_a_character_or_is_no_text_is_recorded)
{
    dl_book book;
    char text[301];
    const uint32_t ranks[] = {0, 1};
    open_begun(&book, new_store("utf8"));
    CHECK_OK(dl_book_start(&book, ranks, 2, 0, ""));
    dl_job job = book.ranks[0].job;
    for (size_t i = 0; i < 150; i++)
        memcpy(text + 2 * i, "\xc3\xa4", 3);
    dl_job_set(&job, DL_JOB_LOST, -1, "%s", text); /* 255 bytes end within a character */
    CHECK_OK(dl_book_state(&book, &job));
    CHECK_STR("\xc3\xa4?", book.ranks[0].job.message + 252);
    job = book.ranks[1].job;
    dl_job_set(&job, DL_JOB_LOST, -1, "no \xff text");
    CHECK_OK(dl_book_state(&book, &job));
    CHECK_STR("no ? text", book.ranks[1].job.message);
    dl_book_close(&book);
}

TEST(a_begin_after_a_cancel_restarts_the_stopped_replicas)
{
    dl_book book;
    const uint32_t rank = 0;
    const dl_launch_spec spec = spec_in("/somewhere");
    open_begun(&book, new_store("again"));
    CHECK_OK(dl_book_start(&book, &rank, 1, 4, ""));
    CHECK_OK(dl_book_cancel(&book));
    CHECK(book.cancelled);
    CHECK(!dl_book_agrees(&book, &spec, "local", 2, 3));
    dl_job job = book.ranks[0].job;
    dl_job_set(&job, DL_JOB_CANCELLED, -1, "stopped on request");
    CHECK_OK(dl_book_state(&book, &job));
    CHECK_OK(dl_book_begin(&book, &spec, "local", 2, 3));
    CHECK(!book.cancelled && book.ranks[0].again);
    CHECK(dl_book_agrees(&book, &spec, "local", 2, 3));
    CHECK_INT(4, book.ranks[0].job.generation);
    dl_book_close(&book);
}

TEST(options_of_launch_are_read_back_and_no_others)
{
    dl_book book;
    const char *store = new_store("options");
    const dl_launch_spec spec = spec_in("/somewhere");
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.restarts", "7", "test"));
    CHECK_OK(dl_config_set(&config, "launch.env", "A=\"b\"", "test"));
    CHECK_OK(dl_config_set(&config, "run.seed", "5", "test"));
    CHECK_OK(dl_book_open(&book, store, run, NULL));
    CHECK_OK(dl_book_begin(&book, &spec, "local", 1, 1));
    CHECK_INT(7, book.options->launch_restarts);
    CHECK_STR("A=\"b\"", book.options->launch_env);
    CHECK_INT(1, book.options->seed);
    dl_book_close(&book);
}

static void put(const char *store, const char *key, const char *text)
{
    dl_store *handle;
    const dl_span span = {text, strlen(text)};
    CHECK_OK(dl_store_open(&handle, store, false));
    CHECK_OK(dl_store_create(handle, key, &span, 1, NULL, dl_clock_now() + DL_SECOND * 10));
    dl_store_close(handle);
}

TEST(a_record_of_a_later_format_is_refused_by_its_name)
{
    dl_book book;
    const char *store = new_store("later");
    put(store, "launch/0000000000.json", "{\"format\":2,\"what\":\"begin\"}");
    CHECK_STATUS(DILOCO_EPROTO, dl_book_open(&book, store, run, NULL));
    CHECK_CONTAINS("launch/0000000000.json", diloco_error_text());
    CHECK_CONTAINS("its format is 2", diloco_error_text());
}

TEST(damaged_records_are_refused)
{
    static const char *const damaged[] = {
        "",
        "{",
        "[]",
        "{\"format\":1,\"what\":\"dance\"}",
        "{\"format\":1,\"what\":\"start\",\"at\":1,\"by\":\"x\",\"generation\":0,\"ranks\":[1024]}",
        "{\"format\":1,\"what\":\"handle\",\"generation\":0,\"ids\":[[]]}",
        "{\"format\":1,\"what\":\"state\",\"rank\":0,\"generation\":0,\"code\":-1,\"at\":1,"
        "\"state\":\"DANCING\",\"message\":\"\"}",
        "{\"format\":1,\"what\":\"begin\",\"executor\":\"local\",\"dir\":\"\",\"min\":1,\"max\":1,"
        "\"options\":{\"run.seed\":\"3\"}}"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        dl_book book;
        char name[32];
        snprintf(name, sizeof name, "damaged%zu", i);
        const char *store = new_store(name);
        put(store, "launch/0000000000.json", damaged[i]);
        CHECK_STATUS(DILOCO_EPROTO, dl_book_open(&book, store, run, NULL));
    }
}

TEST_MAIN(an_empty_store_has_an_empty_book, another_launcher_reads_the_records_of_the_first,
          program_of_the_backend_is_read_back_from_the_last_begin,
          of_two_launchers_that_start_one_rank_the_second_gets_a_message,
          a_state_is_written_after_the_records_of_another_launcher,
          message_that_is_cut_within_a_character_or_is_no_text_is_recorded,
          a_begin_after_a_cancel_restarts_the_stopped_replicas,
          options_of_launch_are_read_back_and_no_others,
          a_record_of_a_later_format_is_refused_by_its_name, damaged_records_are_refused)
