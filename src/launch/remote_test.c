/* remote_test.c - requests to `diloco host` and its replies, with processes of this machine. */
#include "launch/remote.h"

#include "check.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

static const char *const none[] = {NULL};
/* A replica is this program with this variable. */
static const char *const env[] = {"REMOTE_TEST_REPLICA=1", NULL};
static const char run[] = "1f0c2ab9000000000000000000000000";

__attribute__((constructor)) static void be_replica(void)
{
    if (getenv("REMOTE_TEST_REPLICA")) _exit(0);
}

static void new_jobs(dl_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dl_job_init(&jobs[i], run, (uint32_t)i, 0);
}

/* Serve one request, and read its reply. */
static diloco_status ask(const char *dir, const char *what, dl_job *jobs, size_t n)
{
    static dl_config config;
    dl_buf request;
    char *reply = NULL;
    size_t len;
    const dl_launch_spec spec = {.run = run,
                                 .config = &config,
                                 .on = "",
                                 .dir = dir,
                                 .program = "",
                                 .argv = none,
                                 .env = env,
                                 .secrets = none};
    dl_config_init(&config);
    dl_buf_init(&request, 1 << 16);
    CHECK_OK(dl_remote_request(&request, &spec, what, jobs, n, false, false));
    FILE *in = fopen(scratch_write("request", request.data, request.len), "re");
    FILE *out = open_memstream(&reply, &len);
    CHECK(in && out);
    CHECK_OK(dl_remote_serve(fileno(in), out));
    CHECK_INT(0, fclose(in));
    CHECK_INT(0, fclose(out));
    dl_buf_deinit(&request);
    const diloco_status status = dl_remote_reply(jobs, n, reply, len);
    free(reply);
    return status;
}

TEST(jobs_before_one_that_cannot_be_started_are_reported)
{
    dl_job jobs[3];
    char name[128];
    new_jobs(jobs, 3);
    const char *dir = scratch_folder("start");
    snprintf(name, sizeof name, "start/%s", jobs[1].name);
    scratch_write(name, "", 0); /* a file in the place of its folder */
    CHECK_STATUS(DILOCO_EIO, ask(dir, "start", jobs, 3));
    CHECK_CONTAINS(jobs[1].name, diloco_error_text());
    CHECK(!jobs[0].silent);
    CHECK(jobs[1].silent && jobs[2].silent);
    snprintf(name, sizeof name, "start/%s", jobs[2].name);
    CHECK(access(scratch_path(name), F_OK) != 0);
}

TEST(jobs_after_one_that_cannot_be_stopped_are_asked_to_stop)
{
    dl_job jobs[2];
    char name[128];
    new_jobs(jobs, 2);
    const char *dir = scratch_folder("stop");
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "stop/%s", jobs[i].name);
        scratch_folder(name);
    }
    snprintf(name, sizeof name, "stop/%s/cancel", jobs[0].name);
    scratch_folder(name); /* a folder in the place of its file */
    CHECK_STATUS(DILOCO_EIO, ask(dir, "cancel", jobs, 2));
    CHECK(jobs[0].silent && !jobs[1].silent);
    CHECK_INT(DL_JOB_CANCELLED, jobs[1].state);
}

/* The status of a reply about two jobs. */
static diloco_status read_reply(dl_job jobs[2], const char *text)
{
    new_jobs(jobs, 2);
    return dl_remote_reply(jobs, 2, text, strlen(text));
}

#define JOB(rank)                                                                                  \
    "{\"name\":\"diloco-1f0c2ab9-r" #rank                                                          \
    "-g0\",\"state\":\"RUNNING\",\"code\":-1,\"message\":\"\"}"

TEST(reply_has_each_job_once)
{
    dl_job jobs[2];
    CHECK_OK(read_reply(jobs, "{\"format\":1,\"jobs\":[" JOB(0) "," JOB(1) "]}"));
    CHECK(!jobs[0].silent && !jobs[1].silent);
    CHECK_STATUS(DILOCO_EPROTO, read_reply(jobs, "{\"format\":1,\"jobs\":[" JOB(0) "]}"));
    CHECK_STATUS(DILOCO_EPROTO,
                 read_reply(jobs, "{\"format\":1,\"jobs\":[" JOB(0) "," JOB(0) "]}"));
    CHECK_STATUS(DILOCO_EPROTO,
                 read_reply(jobs, "{\"format\":1,\"jobs\":[" JOB(0) "," JOB(2) "]}"));
}

TEST_MAIN(jobs_before_one_that_cannot_be_started_are_reported,
          jobs_after_one_that_cannot_be_stopped_are_asked_to_stop, reply_has_each_job_once)
