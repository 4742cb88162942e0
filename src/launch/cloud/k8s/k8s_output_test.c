/* k8s_output_test.c - the end of a replica's output that is kept, and the time for it; a cancel
 * that cannot keep it. */
#include "launch/cloud/k8s/k8s_output.h"
#include "launch/executor_rows.h"

#include "check.h"
#include "http_script.h"
#include "scratch.h"

#include <string.h>

#define REPLICA "diloco-1f0c2ab9-r0-g0"

static const char *const none[] = {NULL};

static void add(dl_k8s_tail *tail, const char *line)
{
    CHECK_OK(dl_k8s_tail_add(tail, line, strlen(line)));
}

static void check_end(dl_k8s_tail *tail, const char *want)
{
    const dl_span end = dl_k8s_tail_end(tail);
    CHECK_INT((long long)strlen(want), (long long)end.len);
    if (end.len) CHECK_BYTES(want, end.data, end.len);
}

TEST(short_output_is_kept_whole)
{
    dl_k8s_tail tail;
    dl_k8s_tail_init(&tail, 8);
    check_end(&tail, "");
    add(&tail, "abc");
    add(&tail, "def");
    check_end(&tail, "abc\ndef\n");
    dl_k8s_tail_deinit(&tail);
}

TEST(long_output_keeps_its_last_whole_lines)
{
    dl_k8s_tail tail;
    char line[8];
    dl_k8s_tail_init(&tail, 10);
    for (int i = 0; i < 100; i++) {
        snprintf(line, sizeof line, "n%02d", i);
        add(&tail, line);
        CHECK(tail.text.len <= 2 * tail.most + 4);
    }
    check_end(&tail, "n98\nn99\n");
    dl_k8s_tail_deinit(&tail);
}

TEST(line_of_more_bytes_than_are_kept_leaves_only_later_lines)
{
    dl_k8s_tail tail;
    dl_k8s_tail_init(&tail, 4);
    add(&tail, "first");
    add(&tail, "0123456789");
    check_end(&tail, "");
    add(&tail, "z");
    check_end(&tail, "z\n");
    dl_k8s_tail_deinit(&tail);
}

/* Keep the output of a running pod, by a server with this answer. Returns the path of the file. */
static const char *keep(const char *answer, dl_time until, diloco_status expected)
{
    static const char pod_text[] =
        "{\"metadata\":{\"name\":\"p\"},\"status\":{\"phase\":\"Running\"}}";
    static char path[512];
    static dl_config config;
    const char *const answers[] = {answer};
    char url[64];
    http_script script;
    dl_rest rest;
    dl_json_value pod;
    dl_config_init(&config);
    const dl_launch_spec spec = {.config = &config, .dir = scratch_path("kept"), .secrets = none};
    script_start(&script, answers, 1);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    CHECK_OK(dl_rest_init_at(&rest, &spec, "the fake", url));
    snprintf(rest.project, sizeof rest.project, "default");
    CHECK_OK(dl_json_parse(&pod, pod_text, sizeof pod_text - 1));
    CHECK_STATUS(expected, dl_k8s_output_keep(&rest, pod, REPLICA, until));
    dl_rest_deinit(&rest);
    script_stop(&script);
    snprintf(path, sizeof path, "%s/" REPLICA "/log", spec.dir);
    return path;
}

/* The second server sends a line, and keeps the connection open. */
TEST(output_that_has_not_ended_when_its_time_is_over_is_not_kept)
{
    static const char whole[] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nend\n";
    static const char unended[] = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nline\n";
    CHECK(!dl_file_exists(keep(whole, dl_clock_now() - 1, DILOCO_ETIMEDOUT)));
    CHECK(!dl_file_exists(keep(unended, dl_clock_now() + DL_MILLISECOND, DILOCO_ETIMEDOUT)));
    CHECK(dl_file_exists(keep(whole, DL_NEVER, DILOCO_OK)));
}

/* An answer of the API server with this body of `len` bytes. */
#define ANSWER(len, body) "HTTP/1.1 200 OK\r\nContent-Length: " len "\r\n\r\n" body

TEST(cancel_that_cannot_keep_the_output_reports_that_the_replica_was_stopped)
{
    static const char *const answers[] = {
        ANSWER("26", "{\"spec\":{\"completions\":1}}"),
        ANSWER("129", "{\"items\":[{\"metadata\":{\"name\":\"p\",\"annotations\":{"
                      "\"batch.kubernetes.io/job-completion-index\":\"0\"}},"
                      "\"status\":{\"phase\":\"Running\"}}]}"),
        "HTTP/1.1 500 Bad\r\nContent-Length: 0\r\n\r\n", ANSWER("2", "{}")};
    static dl_config config;
    char url[64];
    dl_job job;
    http_script script;
    const dl_launch_spec spec = {.run = "1f0c2ab9", .config = &config, .dir = "/", .secrets = none};
    script_start(&script, answers, 4);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    dl_job_init(&job, spec.run, 0, 0);
    snprintf(job.id, sizeof job.id, REPLICA "/0");
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_executor_k8s.cancel(&spec, &job, 1));
    CHECK_CONTAINS("was stopped, and its output is not kept", diloco_error_text());
    CHECK_INT(DL_JOB_CANCELLED, job.state);
    CHECK_INT(4, (long long)atomic_load(&script.n_requests));
    script_stop(&script);
}

TEST_MAIN(short_output_is_kept_whole, long_output_keeps_its_last_whole_lines,
          line_of_more_bytes_than_are_kept_leaves_only_later_lines,
          output_that_has_not_ended_when_its_time_is_over_is_not_kept,
          cancel_that_cannot_keep_the_output_reports_that_the_replica_was_stopped)
