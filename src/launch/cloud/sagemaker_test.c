/* sagemaker_test.c - the credentials of a log that is followed. */
#include "launch/executor_rows.h"

#include "check.h"
#include "http_script.h"

#include <stdlib.h>
#include <string.h>

static const char *const none[] = {NULL};

static void use_key(const char *access)
{
    CHECK_INT(0, setenv("AWS_ACCESS_KEY_ID", access, 1));
    CHECK_INT(0, setenv("AWS_SECRET_ACCESS_KEY", "swordfish", 1));
}

/* The keys change after the first line, as those of a machine do each few hours. */
static diloco_status change_keys(void *user, const char *line, size_t len)
{
    (void)line, (void)len;
    ++*(int *)user;
    use_key("AKIANEW");
    return DILOCO_OK;
}

/* Append an answer with this body. */
static const char *answer(const char *body)
{
    static char texts[8][512];
    static size_t n;
    CHECK(n < 8);
    snprintf(texts[n], sizeof texts[n], "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    return texts[n++];
}

TEST(log_that_is_followed_is_read_with_the_present_keys)
{
    static dl_config config;
    const char *const answers[] = {
        answer("{\"logStreams\":[{\"logStreamName\":\"stream\"}]}"),
        answer("{\"events\":[{\"message\":\"one\"}],\"nextForwardToken\":\"f/1\"}"),
        answer("{\"events\":[],\"nextForwardToken\":\"f/1\"}"),
        answer("{\"TrainingJobStatus\":\"Completed\",\"SecondaryStatus\":\"Completed\"}"),
        answer("{\"events\":[],\"nextForwardToken\":\"f/1\"}"),
    };
    char url[64];
    int lines = 0;
    dl_job job;
    http_script script;
    const dl_launch_spec spec = {.run = "1f0c2ab9", .config = &config, .on = "", .secrets = none};
    use_key("AKIAOLD");
    script_start(&script, answers, 5);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    CHECK_OK(dl_config_set(&config, "launch.region", "us-east-1", "test"));
    CHECK_OK(dl_config_set(&config, "launch.poll", "0.01", "test"));
    dl_job_init(&job, spec.run, 0, 0);
    strcpy(job.id, job.name);
    CHECK_OK(dl_executor_sagemaker.logs(&spec, &job, true, change_keys, &lines));
    CHECK_INT(1, lines);
    CHECK_INT(5, (long long)atomic_load(&script.n_requests));
    CHECK_CONTAINS("GetLogEvents", script.requests[1]);
    CHECK_CONTAINS("Credential=AKIAOLD", script.requests[1]);
    CHECK_CONTAINS("GetLogEvents", script.requests[4]);
    CHECK_CONTAINS("Credential=AKIANEW", script.requests[4]);
    script_stop(&script);
}

TEST_MAIN(log_that_is_followed_is_read_with_the_present_keys)
