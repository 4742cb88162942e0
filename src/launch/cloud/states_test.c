/* states_test.c - the state of a replica for each state that a provider documents, and for one that
 * it does not. The answers are scripted, and each is one poll. */
#include "launch/executor_rows.h"

#include "check.h"
#include "http_script.h"
#include "job_outcome.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

#define NAME "diloco-1f0c2ab9-r3-g1"

static const char run[] = "1f0c2ab9000000000000000000000000";
static const char *const none[] = {NULL};
static dl_config config;

/* A state in the provider's words, and the outcome of a poll (job_outcome.h). */
typedef struct row {
    const char *theirs, *outcome;
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

/* Poll a replica, and compare the outcome. */
static void check_poll(const dl_executor *executor, const char *id, const row *r)
{
    dl_job job;
    const dl_launch_spec spec = {
        .run = run, .config = &config, .on = "", .dir = "", .env = none, .secrets = none};
    dl_job_init(&job, run, 3, 1);
    snprintf(job.id, sizeof job.id, "%s", id);
    CHECK_OK(executor->poll(&spec, &job, 1));
    check_outcome(r->theirs, r->outcome, &job);
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
    static const row rows[] = {
        {"SCHEDULING", "PENDING: SCHEDULING"},
        {"RUNNING", "RUNNING: RUNNING"},
        {"UPDATING", "RUNNING: UPDATING"},
        {"COMPLETED", "SUCCEEDED: COMPLETED"},
        {"ERROR", "FAILED: ERROR"},
        {"CANCELED", "CANCELLED: CANCELED"},
        {"DELETED", "CANCELLED: DELETED"},
        {"DREAMING", "silent: the backend reports the unknown state DREAMING"},
        {"", "silent: the backend reports the unknown state nothing"},
        {"ERROR\",\"message\":\"Job failed with exit code: 137",
         "LOST, again: killed by signal 9 (Killed)"},
    };
    CHECK_STATES(&hf, rows);
}

/* The secondary status distinguishes jobs that are InProgress, and those that ran out of time. */
#define STEP(status, step) status "\",\"SecondaryStatus\":\"" step

TEST(each_status_of_sagemaker_has_its_state)
{
    static const backend sagemaker = {
        &dl_executor_sagemaker, NAME, "alice", "{\"TrainingJobStatus\":\"", "\"}", false, 0};
    static const row rows[] = {
        {STEP("InProgress", "Starting"), "PENDING: Starting"},
        {STEP("InProgress", "Pending"), "PENDING: Pending"},
        {STEP("InProgress", "LaunchingMLInstances"), "PENDING: LaunchingMLInstances"},
        {STEP("InProgress", "PreparingTrainingStack"), "PENDING: PreparingTrainingStack"},
        {STEP("InProgress", "Interrupted"), "PENDING: Interrupted"},
        {STEP("InProgress", "Restarting"), "PENDING: Restarting"},
        {STEP("InProgress", "Downloading"), "STARTING: Downloading"},
        {STEP("InProgress", "DownloadingTrainingImage"), "STARTING: DownloadingTrainingImage"},
        {STEP("InProgress", "Training"), "RUNNING: Training"},
        {STEP("InProgress", "Updating"), "RUNNING: Updating"},
        {STEP("InProgress", "Uploading"), "RUNNING: Uploading"},
        {STEP("InProgress", "Dreaming"), "silent: the backend reports the unknown state Dreaming"},
        {STEP("Completed", "Completed"), "SUCCEEDED: Completed"},
        {STEP("Failed", "Failed"), "FAILED: Failed"},
        {STEP("Stopping", "Stopping"), "RUNNING: Stopping"},
        {STEP("Stopped", "Stopped"), "CANCELLED: Stopped"},
        {STEP("Stopped", "MaxRuntimeExceeded"),
         "FAILED: MaxRuntimeExceeded: launch.timeout (by default a day) is over"},
        {STEP("Stopped", "MaxWaitTimeExceeded"),
         "FAILED: MaxWaitTimeExceeded: launch.timeout (by default a day) and a day more "
         "for spot machines are over; it may never have had one"},
        {STEP("Deleting", "Stopped"), "CANCELLED: Deleting"},
        {STEP("Dreaming", "Training"), "silent: the backend reports the unknown state Dreaming"},
        {STEP("Failed",
              "Failed\",\"FailureReason\":\"AlgorithmError: ExecuteUserScriptError, exit code: 4"),
         "FAILED, again: exit code 4"},
    };
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
    static const row rows[] = {
        {"QUEUED", "PENDING: JOB_STATE_QUEUED"},
        {"PENDING", "STARTING: JOB_STATE_PENDING"},
        {"RUNNING", "RUNNING: JOB_STATE_RUNNING"},
        {"PAUSED", "RUNNING: JOB_STATE_PAUSED"},
        {"UPDATING", "RUNNING: JOB_STATE_UPDATING"},
        {"CANCELLING", "RUNNING: JOB_STATE_CANCELLING"},
        {"SUCCEEDED", "SUCCEEDED: JOB_STATE_SUCCEEDED"},
        {"PARTIALLY_SUCCEEDED", "FAILED: JOB_STATE_PARTIALLY_SUCCEEDED"},
        {"FAILED", "FAILED: JOB_STATE_FAILED"},
        {"EXPIRED", "FAILED: JOB_STATE_EXPIRED"},
        {"CANCELLED", "CANCELLED: JOB_STATE_CANCELLED"},
        {"UNSPECIFIED", "silent: the backend reports the unknown state JOB_STATE_UNSPECIFIED"},
        {"DREAMING", "silent: the backend reports the unknown state JOB_STATE_DREAMING"},
        {"FAILED\",\"error\":{\"message\":\"The replica workerpool0-0 exited with a non-zero "
         "status of 130.\"},\"x\":\"",
         "LOST, again: stopped by its machine, state saved"},
    };
    CHECK_STATES(&vertex, rows);
}

/* The reason of the last one is asked for, and the state does not depend on the answer. */
TEST(each_status_of_azure_ml_has_its_state)
{
    static const backend azureml = {
        &dl_executor_azureml, NAME, "a/b/c", "{\"properties\":{\"status\":\"", "\"}}", true, 1};
    static const row rows[] = {
        {"NotStarted", "PENDING: NotStarted"},
        {"Queued", "PENDING: Queued"},
        {"Preparing", "STARTING: Preparing"},
        {"Provisioning", "STARTING: Provisioning"},
        {"Starting", "STARTING: Starting"},
        {"Running", "RUNNING: Running"},
        {"Finalizing", "RUNNING: Finalizing"},
        {"CancelRequested", "RUNNING: CancelRequested"},
        {"Paused", "RUNNING: Paused"},
        {"Completed", "SUCCEEDED: Completed"},
        {"Canceled", "CANCELLED: Canceled"},
        {"NotResponding", "LOST, again: NotResponding"},
        {"Unknown", "silent: the backend reports the unknown state Unknown"},
        {"Dreaming", "silent: the backend reports the unknown state Dreaming"},
        {"Failed", "LOST, again: Failed: Azure ML reports no exit code"},
    };
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
        {"RUNNING", "RUNNING: RUNNING"},
        {"EXITED", "LOST, again: EXITED"},
        {"TERMINATED", "CANCELLED: TERMINATED"},
        {"DREAMING", "silent: the backend reports the unknown state DREAMING"},
    };
    CHECK_STATES(&runpod, rows);
}

/* A failure of the program is LOST, since SkyPilot has no exit code. */
TEST(each_status_of_skypilot_has_its_state)
{
    static const row rows[] = {
        {"PENDING", "PENDING: PENDING"},
        {"SUBMITTED", "PENDING: SUBMITTED"},
        {"STARTING", "STARTING: STARTING"},
        {"RECOVERING", "STARTING: RECOVERING"},
        {"RUNNING", "RUNNING: RUNNING"},
        {"WINDING_DOWN", "RUNNING: WINDING_DOWN"},
        {"CANCELLING", "RUNNING: CANCELLING"},
        {"SUCCEEDED", "SUCCEEDED: SUCCEEDED"},
        {"CANCELLED", "CANCELLED: CANCELLED"},
        {"FAILED", "LOST, again: FAILED"},
        {"FAILED_SETUP", "FAILED: FAILED_SETUP"},
        {"FAILED_PRECHECKS", "FAILED: FAILED_PRECHECKS"},
        {"FAILED_NO_RESOURCE", "FAILED: FAILED_NO_RESOURCE: no cloud has such a machine now; ask "
                               "for a higher quota, or take another machine or region"},
        {"FAILED_CONTROLLER", "LOST, again: FAILED_CONTROLLER"},
        {"DREAMING", "silent: the backend reports the unknown state DREAMING"},
    };
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

/* The script that `modal run` gets answers by an exit code, which is null while a sandbox runs. 124
 * is Modal's code after a time limit. */
TEST(each_answer_of_modal_has_its_state)
{
    static const row rows[] = {
        {"null", "RUNNING"},
        {"0", "SUCCEEDED: exit code 0"},
        {"3", "FAILED: exit code 3"},
        {"4", "FAILED, again: exit code 4"},
        {"130", "LOST, again: stopped by its machine, state saved"},
        {"137", "LOST, again: killed by signal 9 (Killed)"},
        {"137,\"stopped\":true", "CANCELLED: stopped on request"},
        {"124", "LOST, again: stopped by Modal after a day, the longest time it has"},
        {"null,\"gone\":true", "LOST, again: Modal no longer knows this sandbox"},
    };
    char script[256];
    CHECK_INT(0, setenv("PATH", scratch_folder("modal"), 1));
    dl_config_init(&config);
    for (size_t i = 0; i <= sizeof rows / sizeof *rows; i++) {
        const bool limit = i == sizeof rows / sizeof *rows;
        const row *r = limit ? &(row){"124", "FAILED: launch.timeout is over"} : &rows[i];
        if (limit) CHECK_OK(dl_config_set(&config, "launch.timeout", "60", "test"));
        snprintf(script, sizeof script,
                 "#!/bin/sh\nwhile read -r line; do :; done\n"
                 "echo '{\"answers\":[{\"id\":\"sb-1\",\"code\":%s}]}'\n",
                 r->theirs);
        CHECK_INT(0, chmod(scratch_write("modal/modal", script, strlen(script)), 0700));
        check_poll(&dl_executor_modal, "sb-1", r);
    }
}

TEST_MAIN(each_answer_of_modal_has_its_state, each_stage_of_hugging_face_has_its_state,
          each_status_of_sagemaker_has_its_state, each_state_of_vertex_ai_has_its_state,
          each_status_of_azure_ml_has_its_state, each_status_of_runpod_has_its_state,
          each_status_of_skypilot_has_its_state)
