/* states_test.c - the state of a replica for each state that a provider documents. The answers are
 * scripted, and each is one poll. */
#include "launch/executor_rows.h"

#include "check.h"
#include "http_script.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

#define NAME "diloco-1f0c2ab9-r3-g1"

static const char run[] = "1f0c2ab9000000000000000000000000";
static const char *const none[] = {NULL};
static dl_config config;

/* A state in the provider's words, and ours for it. */
typedef struct row {
    const char *theirs;
    dl_job_state ours;
} row;

/* An executor, and its answer to a poll: `before`, the state, `after`. With `has_token` the first
 * request is for a token, which the executor keeps for the process. After the answers it asks
 * n_more times, in vain. */
typedef struct backend {
    const dl_executor *executor;
    const char *id, *project, *before, *after;
    bool has_token;
    size_t n_more;
} backend;

enum { ANSWERS = 24 };

static void write_answer(char out[512], const char *before, const char *state, const char *after)
{
    snprintf(out, 512, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s%s%s",
             strlen(before) + strlen(state) + strlen(after), before, state, after);
}

/* The credentials of every provider, with token services at this address. */
static void set_credentials(const char *url)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"type\":\"authorized_user\",\"client_id\":\"a\",\"client_secret\":\"b\","
             "\"refresh_token\":\"c\",\"token_uri\":\"%s/token\"}",
             url);
    CHECK_INT(0, setenv("GOOGLE_APPLICATION_CREDENTIALS",
                        scratch_write("google.json", text, strlen(text)), 1));
    const char *const variables[][2] = {
        {"HF_TOKEN", "hf_test"},           {"RUNPOD_API_KEY", "rpa_test"},
        {"AWS_ACCESS_KEY_ID", "AKIATEST"}, {"AWS_SECRET_ACCESS_KEY", "swordfish"},
        {"AZURE_TENANT_ID", "tenant"},     {"AZURE_CLIENT_ID", "app"},
        {"AZURE_CLIENT_SECRET", "secret"}, {"AZURE_AUTHORITY_HOST", url}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        CHECK_INT(0, setenv(variables[i][0], variables[i][1], 1));
}

/* Poll a replica, and compare its state. */
static void check_poll(const dl_executor *executor, const char *id, const row *r)
{
    char expected[256], got[256];
    dl_job job;
    const dl_launch_spec spec = {
        .run = run, .config = &config, .on = "", .dir = "", .env = none, .secrets = none};
    dl_job_init(&job, run, 3, 1);
    snprintf(job.id, sizeof job.id, "%s", id);
    CHECK_OK(executor->poll(&spec, &job, 1));
    snprintf(expected, sizeof expected, "%s is %s", r->theirs, dl_job_state_name(r->ours));
    snprintf(got, sizeof got, "%s is %s", r->theirs, dl_job_state_name(job.state));
    CHECK_STR(expected, got);
    CHECK(!job.silent);
}

static void check_states(const backend *b, const row *rows, size_t n)
{
    static char texts[ANSWERS][512];
    const char *answers[ANSWERS];
    char url[64];
    http_script script;
    size_t n_answers = 0;
    CHECK(n < ANSWERS);
    if (b->has_token)
        write_answer(texts[n_answers++], "{\"access_token\":\"test\",\"expires_in\":3599}", "", "");
    for (size_t i = 0; i < n; i++)
        write_answer(texts[n_answers++], b->before, rows[i].theirs, b->after);
    for (size_t i = 0; i < n_answers; i++)
        answers[i] = texts[i];
    script_start(&script, answers, n_answers);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    set_credentials(url);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    CHECK_OK(dl_config_set(&config, "launch.region", "us-east1", "test"));
    CHECK_OK(dl_config_set(&config, "launch.project", b->project, "test"));
    for (size_t i = 0; i < n; i++)
        check_poll(b->executor, b->id, &rows[i]);
    CHECK_INT((long long)(n_answers + b->n_more), (long long)atomic_load(&script.n_requests));
    script_stop(&script);
}

#define CHECK_STATES(backend, rows) check_states(backend, rows, sizeof(rows) / sizeof *(rows))

TEST(each_stage_of_hugging_face_has_its_state)
{
    static const backend hf = {&dl_executor_hf_jobs,
                               "687f911e",
                               "alice",
                               "{\"labels\":{\"name\":\"" NAME "\"},\"status\":{\"stage\":\"",
                               "\"}}",
                               false,
                               0};
    static const row rows[] = {{"SCHEDULING", DL_JOB_PENDING}, {"RUNNING", DL_JOB_RUNNING},
                               {"UPDATING", DL_JOB_RUNNING},   {"COMPLETED", DL_JOB_SUCCEEDED},
                               {"ERROR", DL_JOB_FAILED},       {"CANCELED", DL_JOB_CANCELLED},
                               {"DELETED", DL_JOB_CANCELLED}};
    CHECK_STATES(&hf, rows);
}

/* The secondary status distinguishes jobs that are InProgress, and those that ran out of time. */
#define STEP(status, step) status "\",\"SecondaryStatus\":\"" step

TEST(each_status_of_sagemaker_has_its_state)
{
    static const backend sagemaker = {
        &dl_executor_sagemaker, NAME, "alice", "{\"TrainingJobStatus\":\"", "\"}", false, 0};
    static const row rows[] = {{STEP("InProgress", "Starting"), DL_JOB_PENDING},
                               {STEP("InProgress", "Pending"), DL_JOB_PENDING},
                               {STEP("InProgress", "Interrupted"), DL_JOB_PENDING},
                               {STEP("InProgress", "Downloading"), DL_JOB_STARTING},
                               {STEP("InProgress", "Training"), DL_JOB_RUNNING},
                               {STEP("InProgress", "Uploading"), DL_JOB_RUNNING},
                               {STEP("Completed", "Completed"), DL_JOB_SUCCEEDED},
                               {STEP("Failed", "Failed"), DL_JOB_FAILED},
                               {STEP("Stopping", "Stopping"), DL_JOB_RUNNING},
                               {STEP("Stopped", "Stopped"), DL_JOB_CANCELLED},
                               {STEP("Stopped", "MaxRuntimeExceeded"), DL_JOB_FAILED},
                               {STEP("Stopped", "MaxWaitTimeExceeded"), DL_JOB_FAILED}};
    CHECK_STATES(&sagemaker, rows);
}

TEST(each_state_of_vertex_ai_has_its_state)
{
    static const backend vertex = {&dl_executor_vertex,
                                   "projects/7/locations/us-east1/customJobs/1",
                                   "alice",
                                   "{\"displayName\":\"" NAME "\",\"state\":\"JOB_STATE_",
                                   "\"}",
                                   true,
                                   0};
    static const row rows[] = {{"QUEUED", DL_JOB_PENDING},      {"PENDING", DL_JOB_STARTING},
                               {"RUNNING", DL_JOB_RUNNING},     {"PAUSED", DL_JOB_RUNNING},
                               {"UPDATING", DL_JOB_RUNNING},    {"CANCELLING", DL_JOB_RUNNING},
                               {"SUCCEEDED", DL_JOB_SUCCEEDED}, {"FAILED", DL_JOB_FAILED},
                               {"EXPIRED", DL_JOB_FAILED},      {"CANCELLED", DL_JOB_CANCELLED}};
    CHECK_STATES(&vertex, rows);
}

/* The reason of the last one is asked for, and the state does not depend on the answer. */
TEST(each_status_of_azure_ml_has_its_state)
{
    static const backend azureml = {
        &dl_executor_azureml, NAME, "a/b/c", "{\"properties\":{\"status\":\"", "\"}}", true, 1};
    static const row rows[] = {{"NotStarted", DL_JOB_PENDING}, {"Queued", DL_JOB_PENDING},
                               {"Preparing", DL_JOB_STARTING}, {"Provisioning", DL_JOB_STARTING},
                               {"Starting", DL_JOB_STARTING},  {"Running", DL_JOB_RUNNING},
                               {"Finalizing", DL_JOB_RUNNING}, {"CancelRequested", DL_JOB_RUNNING},
                               {"Paused", DL_JOB_RUNNING},     {"Completed", DL_JOB_SUCCEEDED},
                               {"Canceled", DL_JOB_CANCELLED}, {"NotResponding", DL_JOB_LOST},
                               {"Failed", DL_JOB_LOST}};
    CHECK_STATES(&azureml, rows);
}

TEST(each_status_of_runpod_has_its_state)
{
    static const backend runpod = {&dl_executor_runpod,
                                   "xedezhzb9la3ye",
                                   "alice",
                                   "{\"name\":\"" NAME "\",\"desiredStatus\":\"",
                                   "\"}",
                                   false,
                                   0};
    static const row rows[] = {
        {"RUNNING", DL_JOB_RUNNING}, {"EXITED", DL_JOB_LOST}, {"TERMINATED", DL_JOB_CANCELLED}};
    CHECK_STATES(&runpod, rows);
}

/* A failure of the program is LOST, since SkyPilot has no exit code. */
TEST(each_status_of_skypilot_has_its_state)
{
    static const row rows[] = {{"PENDING", DL_JOB_PENDING},
                               {"SUBMITTED", DL_JOB_PENDING},
                               {"STARTING", DL_JOB_STARTING},
                               {"RECOVERING", DL_JOB_STARTING},
                               {"RUNNING", DL_JOB_RUNNING},
                               {"CANCELLING", DL_JOB_RUNNING},
                               {"SUCCEEDED", DL_JOB_SUCCEEDED},
                               {"CANCELLED", DL_JOB_CANCELLED},
                               {"FAILED", DL_JOB_LOST},
                               {"FAILED_SETUP", DL_JOB_FAILED},
                               {"FAILED_NO_RESOURCE", DL_JOB_FAILED}};
    char script[256];
    CHECK_INT(0, setenv("PATH", scratch_folder("bin"), 1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(script, sizeof script,
                 "#!/bin/sh\necho '[{\"job_id\":17,\"job_name\":\"" NAME
                 "\",\"status\":\"%s\"}]'\n",
                 rows[i].theirs);
        CHECK_INT(0, chmod(scratch_write("bin/sky", script, strlen(script)), 0700));
        check_poll(&dl_executor_skypilot, "17", &rows[i]);
    }
}

TEST_MAIN(each_stage_of_hugging_face_has_its_state, each_status_of_sagemaker_has_its_state,
          each_state_of_vertex_ai_has_its_state, each_status_of_azure_ml_has_its_state,
          each_status_of_runpod_has_its_state, each_status_of_skypilot_has_its_state)
