/* hf_jobs_test.c - a log that is followed, on connections that the service does not close. */
#include "launch/executor_rows.h"

#include "check.h"
#include "http_script.h"

#include <stdlib.h>
#include <string.h>

static const char *const none[] = {NULL};

/* An answer that is cut short: the connection stays open. */
#define OPEN       "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
#define LINE(text) "data: {\"data\":\"" text "\",\"timestamp\":\"2026-01-01T00:00:00.000Z\"}\n\n"
#define KEPT       ": keep-alive\n\n"
#define STAGE(len, stage)                                                                          \
    "HTTP/1.1 200 OK\r\nContent-Length: " len                                                      \
    "\r\n\r\n{\"labels\":{\"name\":\"diloco-1f0c2ab9-r0-g0\"},\"status\":{\"stage\":\"" stage      \
    "\"}}"

static diloco_status add_line(void *user, const char *line, size_t len)
{
    char *text = user;
    strncat(text, line, len);
    strcat(text, ";");
    return DILOCO_OK;
}

/* Follow the log of a job whose service answers so, and check its lines. */
static void check_followed(const char *const *answers, size_t n, const char *poll,
                           const char *expected)
{
    static dl_config config;
    char url[64], lines[256] = "";
    dl_job job;
    http_script script;
    const dl_launch_spec spec = {.run = "1f0c2ab9", .config = &config, .on = "", .secrets = none};
    CHECK_INT(0, setenv("HF_TOKEN", "hf_test", 1));
    script_start(&script, answers, n);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    CHECK_OK(dl_config_set(&config, "launch.project", "alice", "test"));
    CHECK_OK(dl_config_set(&config, "launch.poll", poll, "test"));
    dl_job_init(&job, spec.run, 0, 0);
    strcpy(job.id, "687f911e");
    CHECK_OK(dl_executor_hf_jobs.logs(&spec, &job, true, add_line, lines));
    CHECK_STR(expected, lines);
    CHECK_INT((long long)n, (long long)atomic_load(&script.n_requests));
    script_stop(&script);
}

TEST(log_ends_after_a_silence_once_the_job_is_over_and_no_line_comes_twice)
{
    static const char *const answers[] = {STAGE("72", "RUNNING"), OPEN LINE("one"),
                                          STAGE("72", "RUNNING"), OPEN LINE("one") LINE("two"),
                                          STAGE("74", "COMPLETED")};
    check_followed(answers, 5, "0.1", "one;two;");
}

TEST(log_ends_at_a_keep_alive_once_the_job_is_over)
{
    static const char *const answers[] = {
        STAGE("72", "RUNNING"), OPEN LINE("one") KEPT LINE("two") KEPT KEPT,
        STAGE("74", "COMPLETED"), STAGE("74", "COMPLETED"), STAGE("74", "COMPLETED")};
    check_followed(answers, 5, "0.000000001", "one;two;");
}

TEST_MAIN(log_ends_after_a_silence_once_the_job_is_over_and_no_line_comes_twice,
          log_ends_at_a_keep_alive_once_the_job_is_over)
