/* sagemaker_test.c - a name that is taken, and a log that is followed: its credentials, outages and
 * positions. */
#include "launch/executor_rows.h"
#include "store/http/web.h"

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
    static char texts[32][2048];
    static size_t n;
    CHECK(n < 32);
    snprintf(texts[n], sizeof texts[n], "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    return texts[n++];
}

/* Follow the log of a job whose service answers so. The caller stops the script. */
static diloco_status follow(http_script *script, const char *const *answers, size_t n,
                            dl_job_line_fn fn, void *user)
{
    static dl_config config;
    char url[64];
    dl_job job;
    const dl_launch_spec spec = {.run = "1f0c2ab9", .config = &config, .on = "", .secrets = none};
    script_start(script, answers, n);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script->port);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    CHECK_OK(dl_config_set(&config, "launch.region", "us-east-1", "test"));
    CHECK_OK(dl_config_set(&config, "launch.poll", "0.01", "test"));
    dl_job_init(&job, spec.run, 0, 0);
    strcpy(job.id, job.name);
    return dl_executor_sagemaker.logs(&spec, &job, true, fn, user);
}

TEST(log_that_is_followed_is_read_with_the_present_keys)
{
    const char *const answers[] = {
        answer("{\"logStreams\":[{\"logStreamName\":\"stream\"}]}"),
        answer("{\"events\":[{\"message\":\"one\"}],\"nextForwardToken\":\"f/1\"}"),
        answer("{\"events\":[],\"nextForwardToken\":\"f/1\"}"),
        answer("{\"TrainingJobStatus\":\"Completed\",\"SecondaryStatus\":\"Completed\"}"),
        answer("{\"events\":[],\"nextForwardToken\":\"f/1\"}"),
    };
    int lines = 0;
    http_script script;
    use_key("AKIAOLD");
    CHECK_OK(follow(&script, answers, 5, change_keys, &lines));
    CHECK_INT(1, lines);
    CHECK_INT(5, (long long)atomic_load(&script.n_requests));
    CHECK_CONTAINS("GetLogEvents", script.requests[1]);
    CHECK_CONTAINS("Credential=AKIAOLD", script.requests[1]);
    CHECK_CONTAINS("GetLogEvents", script.requests[4]);
    CHECK_CONTAINS("Credential=AKIANEW", script.requests[4]);
    script_stop(&script);
}

TEST(throttled_request_is_repeated_and_no_refusal)
{
    static const char throttled[] =
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 58\r\n\r\n"
        "{\"__type\":\"ThrottlingException\",\"message\":\"Rate exceeded\"}";
    const char *const answers[] = {
        throttled,
        answer("{\"logStreams\":[{\"logStreamName\":\"stream\"}]}"),
        throttled,
        throttled,
        answer("{\"events\":[{\"message\":\"one\"}],\"nextForwardToken\":\"f/1\"}"),
        answer("{\"events\":[],\"nextForwardToken\":\"f/1\"}"),
        throttled,
        answer("{\"TrainingJobStatus\":\"Completed\",\"SecondaryStatus\":\"Completed\"}"),
        answer("{\"events\":[],\"nextForwardToken\":\"f/1\"}"),
    };
    int lines = 0;
    http_script script;
    use_key("AKIAOLD");
    CHECK_OK(follow(&script, answers, 9, change_keys, &lines));
    CHECK_INT(1, lines);
    CHECK_INT(9, (long long)atomic_load(&script.n_requests));
    script_stop(&script);
}

static diloco_status count_line(void *user, const char *line, size_t len)
{
    (void)line, (void)len;
    ++*(int *)user;
    return DILOCO_OK;
}

TEST(log_that_is_followed_survives_an_outage_of_the_polls)
{
    enum { BEFORE = 3, AFTER = 3, N = BEFORE + DL_WEB_TRIES + AFTER };
    static const char down[] = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    const char *answers[N] = {
        answer("{\"logStreams\":[{\"logStreamName\":\"stream\"}]}"),
        answer("{\"events\":[{\"message\":\"one\"}],\"nextForwardToken\":\"f/1\"}"),
        answer("{\"events\":[],\"nextForwardToken\":\"f/1\"}"),
    };
    const char *const after[AFTER] = {
        answer("{\"TrainingJobStatus\":\"Completed\",\"SecondaryStatus\":\"Completed\"}"),
        answer("{\"events\":[{\"message\":\"two\"}],\"nextForwardToken\":\"f/2\"}"),
        answer("{\"events\":[],\"nextForwardToken\":\"f/2\"}"),
    };
    int lines = 0;
    http_script script;
    for (size_t i = 0; i < DL_WEB_TRIES; i++)
        answers[BEFORE + i] = down;
    memcpy(answers + BEFORE + DL_WEB_TRIES, after, sizeof after);
    use_key("AKIAOLD");
    CHECK_OK(follow(&script, answers, N, count_line, &lines));
    CHECK_INT(2, lines);
    CHECK_INT(N, (long long)atomic_load(&script.n_requests));
    script_stop(&script);
}

TEST(position_in_a_log_has_any_length)
{
    char token[601], body[768];
    memset(token, 't', sizeof token - 1);
    token[sizeof token - 1] = '\0';
    snprintf(body, sizeof body, "{\"events\":[],\"nextForwardToken\":\"%s\"}", token);
    const char *const end = answer(body);
    snprintf(body, sizeof body, "{\"events\":[{\"message\":\"one\"}],\"nextForwardToken\":\"%s\"}",
             token);
    const char *const answers[] = {
        answer("{\"logStreams\":[{\"logStreamName\":\"stream\"}]}"),
        answer(body),
        end,
        answer("{\"TrainingJobStatus\":\"Completed\",\"SecondaryStatus\":\"Completed\"}"),
        end,
    };
    int lines = 0;
    http_script script;
    use_key("AKIAOLD");
    CHECK_OK(follow(&script, answers, 5, count_line, &lines));
    CHECK_INT(1, lines);
    CHECK_INT(5, (long long)atomic_load(&script.n_requests));
    CHECK_CONTAINS(token, script.requests[2]);
    CHECK_CONTAINS(token, script.requests[4]);
    script_stop(&script);
}

/* The book may have lost the record of a job that SageMaker has. Names are unique there. */
TEST(name_that_is_taken_is_adopted_by_one_request)
{
    static dl_config config;
    static const char *const argv[] = {"join", "s3://bucket/run", NULL};
    static const char body[] =
        "{\"__type\":\"ResourceInUse\",\"message\":\"names must be unique\"}";
    char text[256], url[64];
    const char *const answers[] = {text};
    http_script script;
    dl_job job;
    const dl_launch_spec spec = {.run = "1f0c2ab9",
                                 .config = &config,
                                 .on = "",
                                 .dir = "",
                                 .program = "diloco",
                                 .argv = argv,
                                 .env = none,
                                 .secrets = none};
    snprintf(text, sizeof text, "HTTP/1.1 400 Bad Request\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    script_start(&script, answers, 1);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    CHECK_OK(dl_config_set(&config, "launch.region", "us-east-1", "test"));
    dl_job_init(&job, spec.run, 0, 0);
    use_key("AKIATEST");
    CHECK_OK(dl_executor_sagemaker.launch(&spec, &job, 1));
    CHECK_STR(job.name, job.id);
    CHECK_INT(1, (long long)atomic_load(&script.n_requests));
    CHECK_CONTAINS("CreateTrainingJob", script.requests[0]);
    script_stop(&script);
}

TEST_MAIN(log_that_is_followed_is_read_with_the_present_keys,
          throttled_request_is_repeated_and_no_refusal,
          log_that_is_followed_survives_an_outage_of_the_polls, position_in_a_log_has_any_length,
          name_that_is_taken_is_adopted_by_one_request)
