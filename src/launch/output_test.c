/* output_test.c - output that was shipped to a store is read again, in its order. A job may have
 * several processes. The store may be full for a while, or have forged objects. The oldest parts
 * are removed. */
#include "launch/output.h"
#include "launch/shipper.h"

#include "check.h"
#include "log/layout.h"
#include "log/zstd_text.h"
#include "scratch.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define JOB "diloco-1f0c2ab9-r0-g0"

static char text[8 << 20];
static size_t text_len;

static diloco_status keep(void *user, const char *line, size_t len)
{
    (void)user;
    CHECK(text_len + len + 2 < sizeof text);
    memcpy(text + text_len, line, len);
    text_len += len + 1;
    text[text_len - 1] = '\n';
    text[text_len] = '\0';
    return DILOCO_OK;
}

static int n_polls;

/* Writes its last line at the first poll, unless it is NULL. */
static dl_shipper *writes_later;

/* The replica ends at the second poll. */
static diloco_status poll_twice(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    (void)spec, (void)n;
    if (writes_later) {
        dl_shipper_add(writes_later, "later\n", 6);
        dl_shipper_close(writes_later, 60 * DL_SECOND);
        writes_later = NULL;
    }
    if (++n_polls == 2) dl_job_set(&jobs[0], DL_JOB_SUCCEEDED, 0, "%s", "");
    return DILOCO_OK;
}

/* The output in the store, in `text`. */
static void read_all(const char *url, bool follow)
{
    static const dl_executor without_log = {.name = "test", .poll = poll_twice};
    static dl_config config;
    dl_launch_spec spec = {.config = &config};
    dl_store *store;
    dl_job job = {.state = DL_JOB_RUNNING, .name = JOB, .id = "1"};
    dl_config_init(&config);
    config.launch_poll_s = 0.001;
    text[text_len = 0] = '\0';
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(dl_output_read(&without_log, &spec, store, &job, follow, keep, NULL));
    dl_store_close(store);
}

static void make_store(const char *url)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, true));
    dl_store_close(store);
}

/* A process of the job that writes this and ends. */
static void ship(const char *url, const char *output)
{
    dl_shipper *shipper;
    CHECK_OK(dl_shipper_create(&shipper, url, JOB));
    dl_shipper_add(shipper, output, strlen(output));
    dl_shipper_close(shipper, 60 * DL_SECOND);
}

TEST(output_of_each_process_of_a_job_is_read_in_order)
{
    const char *url = scratch_path("processes");
    make_store(url);
    read_all(url, false);
    CHECK_STR("", text);
    ship(url, "one\ntwo");
    ship(url, "");
    ship(url, "three\n");
    read_all(url, false);
    CHECK_STR("one\ntwo\nthree\n", text);
    n_polls = 0;
    read_all(url, true);
    CHECK_STR("one\ntwo\nthree\n", text);
    CHECK_INT(2, n_polls);
}

/* Nothing is closed: the part has to be there while its process runs. */
TEST(output_is_in_the_store_while_its_process_runs)
{
    const char *url = scratch_path("running");
    dl_shipper *shipper;
    make_store(url);
    CHECK_OK(dl_shipper_create(&shipper, url, JOB));
    dl_shipper_add(shipper, "one\n", 4);
    do
        read_all(url, false);
    while (!*text);
    CHECK_STR("one\n", text);
    dl_shipper_add(shipper, "two\n", 4);
    dl_shipper_close(shipper, 60 * DL_SECOND);
    read_all(url, false);
    CHECK_STR("one\ntwo\n", text);
}

TEST(output_waits_for_a_store_that_is_full_and_says_what_it_dropped)
{
    static char much[3 << 20];
    const char *url = scratch_path("full");
    struct rlimit before, none;
    dl_shipper *shipper;
    make_store(url);
    memset(much, 'x', sizeof much);
    for (size_t i = 99; i < sizeof much; i += 100)
        much[i] = '\n';
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(0, getrlimit(RLIMIT_FSIZE, &before));
    none = (struct rlimit){0, before.rlim_max};
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &none));
    CHECK_OK(dl_shipper_create(&shipper, url, JOB));
    dl_shipper_add(shipper, "first\n", 6);
    for (int i = 0; i < 10; i++)
        dl_shipper_add(shipper, much, sizeof much);
    dl_shipper_add(shipper, "last\n", 5);
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &before));
    dl_shipper_close(shipper, 60 * DL_SECOND);
    read_all(url, false);
    CHECK_CONTAINS(" bytes of output are missing here: the store took no more\n", text);
    CHECK_STR("xlast\n", text + text_len - 6);
}

static void put(const char *url, const char *key, const void *bytes, size_t n)
{
    const dl_span span = {bytes, n};
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(dl_store_create(store, key, &span, 1, NULL, DL_NEVER));
    dl_store_close(store);
}

/* A frame of 2 MiB of zeros is short, and longer than a part. */
TEST(forged_parts_are_left_out)
{
    static const char zeros[2 << 20];
    const char *url = scratch_path("forged");
    dl_zipper *zipper;
    dl_span frame;
    make_store(url);
    ship(url, "one\n");
    CHECK_OK(dl_zipper_create(&zipper, sizeof zeros));
    CHECK_OK(dl_zip(zipper, &frame, zeros, sizeof zeros));
    put(url, "out/" JOB "/0000000001-0000000001.zst", frame.data, frame.len);
    put(url, "out/" JOB "/0000000001-0000000002.zst", "junk", 4);
    put(url, "out/" JOB "/0000000001-2.zst", "junk", 4);
    put(url, "out/" JOB "/notes", "junk", 4);
    ship(url, "two\n");
    read_all(url, false);
    CHECK_STR("one\ntwo\n", text);
    dl_zipper_destroy(zipper);
}

/* A part that a party which can create objects has made. */
static void forge(const char *url, const char *name, const char *output)
{
    dl_zipper *zipper;
    dl_span frame;
    dl_key key;
    snprintf(key, sizeof key, "out/" JOB "/%s", name);
    CHECK_OK(dl_zipper_create(&zipper, 1 << 10));
    CHECK_OK(dl_zip(zipper, &frame, output, strlen(output)));
    put(url, key, frame.data, frame.len);
    dl_zipper_destroy(zipper);
}

TEST(forged_numbers_of_processes_hide_no_later_output)
{
    const char *url = scratch_path("numbers");
    make_store(url);
    ship(url, "one\n");
    forge(url, "9999999999-0000000000.zst", "forged\n");
    forge(url, "10000000000-0000000000.zst", "of 11 digits\n");
    forge(url, "18446744073709551615-0000000000.zst", "of 20 digits\n");
    ship(url, "two\n");
    ship(url, "three\n");
    read_all(url, false);
    CHECK_STR("one\ntwo\nthree\nforged\n", text);
    forge(url, "0999999999-0000000000.zst", "greatest\n");
    forge(url, "1000000001-0000000000.zst", "between\n");
    ship(url, "four\n");
    ship(url, "five\n");
    read_all(url, false);
    CHECK_STR("one\ntwo\nthree\ngreatest\nfour\nbetween\nfive\nforged\n", text);
}

/* A process that runs, and whose first line is in the store. */
static dl_shipper *running(const char *url)
{
    dl_shipper *shipper;
    CHECK_OK(dl_shipper_create(&shipper, url, JOB));
    dl_shipper_add(shipper, "one\n", 4);
    do
        read_all(url, false);
    while (!*text);
    return shipper;
}

TEST(a_follower_reads_parts_that_come_before_forged_ones)
{
    const char *url = scratch_path("followed");
    make_store(url);
    writes_later = running(url);
    put(url, "out/" JOB "/0000000001-9999999999.zst", "junk", 4);
    forge(url, "9999999999-9999999999.zst", "forged\n");
    n_polls = 0;
    read_all(url, true);
    CHECK_STR("one\nforged\nlater\n", text);
}

/* A process whose next names are taken continues as the next process. */
TEST(forged_next_parts_do_not_stop_a_process)
{
    char name[64];
    const char *url = scratch_path("taken");
    make_store(url);
    dl_shipper *shipper = running(url);
    for (int i = 1; i <= 20; i++) {
        snprintf(name, sizeof name, "0000000001-%010d.zst", i);
        forge(url, name, "");
    }
    dl_shipper_add(shipper, "two\n", 4);
    dl_shipper_close(shipper, 60 * DL_SECOND);
    read_all(url, false);
    CHECK_STR("one\ntwo\n", text);
}

static diloco_status count(void *user, const char *key, size_t len)
{
    size_t *n = user;
    (void)key, (void)len;
    ++*n;
    return DILOCO_OK;
}

TEST(the_oldest_parts_are_removed)
{
    char path[PATH_MAX];
    const char *url = scratch_path("long");
    dl_store *store;
    dl_key key;
    size_t n = 0;
    make_store(url);
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(dl_store_put(store, "out/" JOB "/0000000001-0000000000.zst", "x", 1, DL_NEVER));
    for (uint64_t i = 1; i < DL_OUTPUT_PARTS + 5; i++) { /* a put would sync each file */
        dl_key_output(key, JOB, 1, i);
        snprintf(path, sizeof path, "%s/%s", url, key);
        FILE *file = fopen(path, "w");
        CHECK(file && fputc('x', file) == 'x' && fclose(file) == 0);
    }
    ship(url, "new\n");
    CHECK_OK(dl_store_list(store, "out/" JOB "/", NULL, count, &n, DL_NEVER));
    CHECK_INT(DL_OUTPUT_PARTS, n);
    dl_store_close(store);
    read_all(url, false);
    CHECK_STR("new\n", text);
}

/* A name of a job from the environment becomes part of a key. */
TEST(a_name_that_is_none_of_a_job_is_refused)
{
    dl_shipper *shipper;
    CHECK_STATUS(DILOCO_EINVAL, dl_shipper_create(&shipper, "nowhere", "../a"));
    CHECK_STATUS(DILOCO_EINVAL, dl_shipper_create(&shipper, "nowhere", ""));
    CHECK_CONTAINS("DILOCO_JOB", diloco_error_text());
}

/* Nothing answers at this place, so nothing is shipped, and the close does not wait for it. */
TEST(a_store_that_is_not_there_is_given_up_at_the_end)
{
    dl_shipper *shipper;
    CHECK_OK(dl_shipper_create(&shipper, scratch_path("absent"), JOB));
    dl_shipper_add(shipper, "one\n", 4);
    dl_shipper_close(shipper, DL_SECOND / 10);
}

TEST_MAIN(output_of_each_process_of_a_job_is_read_in_order,
          output_is_in_the_store_while_its_process_runs,
          output_waits_for_a_store_that_is_full_and_says_what_it_dropped, forged_parts_are_left_out,
          forged_numbers_of_processes_hide_no_later_output,
          a_follower_reads_parts_that_come_before_forged_ones,
          forged_next_parts_do_not_stop_a_process, the_oldest_parts_are_removed,
          a_name_that_is_none_of_a_job_is_refused, a_store_that_is_not_there_is_given_up_at_the_end)
