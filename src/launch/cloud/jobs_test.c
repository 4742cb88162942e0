/* jobs_test.c - how the answers of a backend become states, and what is written for a replica. */
#include "launch/cloud/jobs.h"
#include "launch/executor_rows.h"

#include "check.h"
#include "http_script.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

static const char run[] = "1f0c2ab9000000000000000000000000";
static const char *const arguments[] = {"join", "s3://bucket/run", "--rank", "{rank}", NULL};
static const char *const env[] = {"WORD=it's", NULL};
static const char *const secrets[] = {"JOBS_TEST_SECRET", NULL};
static dl_config config;

static dl_launch_spec new_spec(void)
{
    dl_config_init(&config);
    return (dl_launch_spec){.run = run,
                            .config = &config,
                            .on = "",
                            .dir = "",
                            .program = "diloco",
                            .argv = arguments,
                            .env = env,
                            .secrets = secrets};
}

static dl_job new_job(void)
{
    dl_job job;
    dl_job_init(&job, run, 3, 1);
    return job;
}

TEST(an_exit_code_is_found_in_a_sentence)
{
    CHECK_INT(137, dl_cloud_code_in("AlgorithmError: , exit code: 137"));
    CHECK_INT(4, dl_cloud_code_in("exitCode=4"));
    CHECK_INT(1, dl_cloud_code_in("returned non-zero exit status of 1"));
    CHECK_INT(-1, dl_cloud_code_in("exit code: none"));
    CHECK_INT(-1, dl_cloud_code_in("exit code 70000"));
    CHECK_INT(-1, dl_cloud_code_in(""));
}

TEST(a_signal_is_a_loss_and_another_code_a_failure)
{
    dl_job job = new_job();
    dl_cloud_set_ended(&job, 0);
    CHECK_INT(DL_JOB_SUCCEEDED, job.state);
    dl_cloud_set_ended(&job, 3);
    CHECK_INT(DL_JOB_FAILED, job.state);
    CHECK_INT(3, job.exit_code);
    dl_cloud_set_ended(&job, 137);
    CHECK_INT(DL_JOB_LOST, job.state);
    CHECK_CONTAINS("killed by signal 9", job.message);
    dl_cloud_set_ended(&job, diloco_exit_code(DILOCO_EINTERRUPTED));
    CHECK_INT(DL_JOB_LOST, job.state);
}

TEST(an_unknown_state_is_named_and_counts_as_silence)
{
    static const dl_cloud_state table[] = {{"Running", DL_JOB_RUNNING}, {NULL, DL_JOB_LOST}};
    dl_job job = new_job();
    dl_cloud_set(&job, table, "Running", "");
    CHECK_INT(DL_JOB_RUNNING, job.state);
    CHECK(!job.silent);
    dl_cloud_set(&job, table, "Hibernating", "");
    CHECK_INT(DL_JOB_RUNNING, job.state);
    CHECK(job.silent);
    CHECK_CONTAINS("Hibernating", job.message);
}

TEST(a_replica_has_words_variables_and_secrets_that_a_dry_run_hides)
{
    dl_launch_spec spec = new_spec();
    const dl_job job = new_job();
    dl_buf text;
    dl_json j;
    CHECK(!setenv("JOBS_TEST_SECRET", "swordfish", 1));
    for (int dry = 0; dry < 2; dry++) {
        spec.dry = dry ? stdout : NULL;
        dl_buf_init(&text, 1 << 16);
        dl_json_init(&j, &text);
        dl_json_object(&j, NULL);
        CHECK_OK(dl_cloud_argv(&j, "args", &spec, "3", 1));
        CHECK_OK(dl_cloud_env(&j, "env", &spec, &job, true));
        dl_cloud_secrets(&j, "secrets", &spec);
        dl_json_end(&j);
        CHECK_OK(dl_json_done(&j));
        const char *written = dl_buf_str(&text);
        CHECK_CONTAINS("\"args\":[\"join\",\"s3://bucket/run\",\"--rank\",\"3\"]", written);
        CHECK_CONTAINS("{\"name\":\"DILOCO_JOB\",\"value\":\"diloco-1f0c2ab9-r3-g1\"}", written);
        CHECK_CONTAINS("{\"name\":\"WORD\",\"value\":\"it's\"}", written);
        CHECK(strstr(written, dry ? "{\"JOBS_TEST_SECRET\":\"***\"}"
                                  : "{\"JOBS_TEST_SECRET\":\"swordfish\"}"));
        dl_buf_deinit(&text);
    }
    dl_buf_init(&text, 1 << 16);
    CHECK_OK(dl_cloud_line(&text, &spec, "3"));
    CHECK(strstr(dl_buf_str(&text), "diloco"));
    dl_buf_deinit(&text);
}

TEST(option_whose_value_the_backend_repeats_is_named)
{
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.region", "aws/moon-1", "test"));
    CHECK_OK(dl_config_set(&config, "launch.image", "nowhere/none", "test"));
    CHECK_OK(dl_config_set(&config, "launch.gpu_type", "L4", "test"));
    CHECK_STR("launch.region", dl_cloud_blamed(&config, "Invalid region 'moon-1'"));
    CHECK_STR("launch.image", dl_cloud_blamed(&config, "no registry has Nowhere/None"));
    CHECK_STR("launch.region", dl_cloud_blamed(&config, "there is no moon-1."));
    CHECK_STR("launch.region", dl_cloud_blamed(&config, "moon-1: unknown"));
    CHECK(!dl_cloud_blamed(&config, "L4 is not in aws"));
    CHECK(!dl_cloud_blamed(&config, "moon-11 and a-moon-1 and moon-1.example and :moon-1:"));
    CHECK_OK(dl_config_set(&config, "launch.region", "us-east-1", "test"));
    CHECK(!dl_cloud_blamed(&config, "User alice is not authorized to perform: "
                                    "sagemaker:CreateTrainingJob on resource: "
                                    "arn:aws:sagemaker:us-east-1:1:training-job/a"));
    CHECK(!dl_cloud_blamed(&config, "AccessDeniedException in us-east-1"));
    CHECK_OK(dl_config_set(&config, "launch.region", "us-central1", "test"));
    CHECK(!dl_cloud_blamed(&config,
                           "Permission 'aiplatform.customJobs.create' denied on resource "
                           "//aiplatform.googleapis.com/projects/p/locations/us-central1"));
    CHECK(!dl_cloud_blamed(&config, ""));
}

TEST(an_option_that_is_not_set_is_named_with_an_example)
{
    CHECK_OK(dl_cloud_need("value", "launch.image", "k8s", "IMAGE"));
    CHECK_STATUS(DILOCO_EINVAL, dl_cloud_need("", "launch.image", "k8s", "IMAGE"));
    CHECK_CONTAINS("launch.image=IMAGE", diloco_error_text());
}

/* An answer with this body. Valid until the fourth call after this one. */
static const char *answer_of(const char *body)
{
    static char texts[4][512];
    static size_t n;
    char *text = texts[n++ % 4];
    snprintf(text, sizeof texts[0], "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    return text;
}

static diloco_status drop_line(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
    return DILOCO_OK;
}

/* The calls that take a job's id from the book. */
enum { CANCEL, POLL, LOGS };

/* Make the call for a job of the executor; the backend answers in this order. Returns the status,
 * and checks the number of requests. */
static diloco_status call_with(int call, dl_job *job, const dl_executor *executor, const char *id,
                               const char *const *answers, size_t n)
{
    char text[512], url[64];
    http_script script;
    const dl_launch_spec spec = new_spec();
    *job = new_job();
    snprintf(job->id, sizeof job->id, "%s", id);
    script_start(&script, answers, n);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    snprintf(text, sizeof text,
             "{\"type\":\"authorized_user\",\"client_id\":\"a\",\"client_secret\":\"b\","
             "\"refresh_token\":\"c\",\"token_uri\":\"%s/token\"}",
             url);
    CHECK_INT(0, setenv("GOOGLE_APPLICATION_CREDENTIALS",
                        scratch_write("google.json", text, strlen(text)), 1));
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    CHECK_OK(dl_config_set(&config, "launch.region", "us-east1", "test"));
    CHECK_OK(dl_config_set(&config, "launch.project", "alice", "test"));
    const diloco_status status = call == CANCEL ? executor->cancel(&spec, job, 1)
                                 : call == POLL
                                     ? executor->poll(&spec, job, 1)
                                     : executor->logs(&spec, job, false, drop_line, NULL);
    CHECK_INT((long long)n, (long long)atomic_load(&script.n_requests));
    script_stop(&script);
    return status;
}

TEST(job_of_another_name_is_neither_stopped_nor_read)
{
    static const char token[] = "{\"access_token\":\"ya29.test\",\"expires_in\":3599}";
    static const struct {
        const dl_executor *executor;
        const char *id, *other, *own;
    } rows[] = {
        {&dl_executor_hf_jobs, "687f911e", "{\"labels\":{\"name\":\"database\"}}",
         "{\"labels\":{\"name\":\"diloco-1f0c2ab9-r3-g1\"}}"},
        {&dl_executor_runpod, "xedezhzb9la3ye", "{\"name\":\"database\"}",
         "{\"name\":\"diloco-1f0c2ab9-r3-g1\"}"},
        {&dl_executor_vertex, "projects/7/locations/us-east1/customJobs/1",
         "{\"displayName\":\"database\"}", "{\"displayName\":\"diloco-1f0c2ab9-r3-g1\"}"},
    };
    CHECK(!setenv("HF_TOKEN", "hf_test", 1));
    CHECK(!setenv("RUNPOD_API_KEY", "rpa_test", 1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        /* The token of Google is requested once. */
        const bool google = rows[i].executor == &dl_executor_vertex;
        const char *const other[] = {answer_of(token), answer_of(rows[i].other)};
        const char *const *answers = google ? other : other + 1;
        const size_t n = google ? 2 : 1;
        dl_job job;
        CHECK_STATUS(DILOCO_EREFUSED,
                     call_with(CANCEL, &job, rows[i].executor, rows[i].id, answers, n));
        CHECK_CONTAINS("diloco-1f0c2ab9-r3-g1", diloco_error_text());
        CHECK_CONTAINS("another job, database", diloco_error_text());
        CHECK_OK(call_with(POLL, &job, rows[i].executor, rows[i].id, answers + n - 1, 1));
        CHECK_INT(DL_JOB_LOST, job.state);
        CHECK_CONTAINS("not ours", job.message);
        CHECK_CONTAINS("another job, database", job.message);
        const char *const own[] = {answer_of(rows[i].own), answer_of("{}")};
        CHECK_OK(call_with(CANCEL, &job, rows[i].executor, rows[i].id, own, 2));
    }
}

TEST(output_of_a_job_of_another_name_is_not_read)
{
    dl_job job;
    const char *const other[] = {answer_of("{\"labels\":{\"name\":\"database\"}}")};
    CHECK(!setenv("HF_TOKEN", "hf_test", 1));
    CHECK_STATUS(DILOCO_EREFUSED,
                 call_with(LOGS, &job, &dl_executor_hf_jobs, "687f911e", other, 1));
    CHECK_CONTAINS("another job, database", diloco_error_text());
}

TEST(job_is_found_by_its_name)
{
    static const char missing[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    static const struct {
        const dl_executor *executor;
        const char *body, *id;
    } rows[] = {
        {&dl_executor_hf_jobs,
         "[{\"id\":\"1\",\"labels\":{\"name\":\"diloco-1f0c2ab9-r3-g10\"}},"
         "{\"id\":\"2\",\"labels\":{\"name\":\"diloco-1f0c2ab9-r3-g1\"}}]",
         "2"},
        {&dl_executor_runpod, "[{\"id\":\"p\",\"name\":\"diloco-1f0c2ab9-r3-g1\"}]", "p"},
        {&dl_executor_runpod, "[]", ""},
        {&dl_executor_k8s, "{\"spec\":{\"completions\":1}}", "diloco-1f0c2ab9-r3-g1/0"},
    };
    char url[64];
    http_script script;
    CHECK(!setenv("HF_TOKEN", "hf_test", 1));
    CHECK(!setenv("RUNPOD_API_KEY", "rpa_test", 1));
    for (size_t i = 0; i <= sizeof rows / sizeof *rows; i++) {
        /* The last one is in the Job of all ranks, and has none of its own. */
        const bool among = i == sizeof rows / sizeof *rows;
        const char *const answers[] = {missing, answer_of("{\"spec\":{\"completions\":4}}")};
        const char *const one[] = {answer_of(among ? "" : rows[i].body)};
        const dl_executor *executor = among ? &dl_executor_k8s : rows[i].executor;
        const dl_launch_spec spec = new_spec();
        dl_job job = new_job();
        script_start(&script, among ? answers : one, among ? 2 : 1);
        snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
        CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
        CHECK_OK(dl_config_set(&config, "launch.project", "alice", "test"));
        CHECK_OK(executor->find(&spec, &job, 1));
        CHECK_STR(among ? "diloco-1f0c2ab9-g1/3" : rows[i].id, job.id);
        script_stop(&script);
    }
}

/* A proxy may answer in the backend's place. */
TEST(answer_without_a_name_makes_the_job_silent)
{
    static const dl_executor *const executors[] = {&dl_executor_hf_jobs, &dl_executor_runpod};
    static const char *const bodies[] = {"{}", "<html>sign in</html>"};
    CHECK(!setenv("HF_TOKEN", "hf_test", 1));
    CHECK(!setenv("RUNPOD_API_KEY", "rpa_test", 1));
    for (size_t i = 0; i < 4; i++) {
        const char *const answers[] = {answer_of(bodies[i / 2])};
        dl_job job;
        CHECK_OK(call_with(POLL, &job, executors[i % 2], "687f911e", answers, 1));
        CHECK_INT(DL_JOB_PENDING, job.state);
        CHECK(job.silent);
        CHECK_CONTAINS("gave no name", job.message);
        CHECK_STATUS(DILOCO_EREFUSED,
                     call_with(CANCEL, &job, executors[i % 2], "687f911e", answers, 1));
        CHECK_CONTAINS("gave no name", diloco_error_text());
    }
}

/* Launch a pod of RunPod, which answers its creation so. */
static diloco_status create_pod(int status, const char *body)
{
    char url[64], refusal[512];
    http_script script;
    const dl_launch_spec spec = new_spec();
    dl_job job = new_job();
    CHECK(!setenv("RUNPOD_API_KEY", "rpa_test", 1));
    snprintf(refusal, sizeof refusal, "HTTP/1.1 %d No\r\nContent-Length: %zu\r\n\r\n%s", status,
             strlen(body), body);
    const char *const answers[] = {answer_of("[]"), refusal};
    script_start(&script, answers, 2);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    CHECK_OK(dl_config_set(&config, "launch.region", "EU-RO-1", "test"));
    CHECK_OK(dl_config_set(&config, "launch.image", "alice/diloco", "test"));
    const diloco_status result = dl_executor_runpod.launch(&spec, &job, 1);
    CHECK_INT(2, (long long)atomic_load(&script.n_requests));
    script_stop(&script);
    return result;
}

TEST(lack_of_machines_may_pass_and_only_a_refused_value_blames_its_option)
{
    CHECK_STATUS(DILOCO_EUNREACHABLE,
                 create_pod(500, "{\"error\":\"There are no longer any instances available\"}"));
    CHECK_CONTAINS("available; ask for a higher quota", diloco_error_text());
    CHECK_STATUS(DILOCO_EUNREACHABLE, create_pod(500, "{\"error\":\"a bug in EU-RO-1\"}"));
    CHECK(!strstr(diloco_error_text(), "check launch"));
    CHECK_STATUS(DILOCO_EREFUSED, create_pod(400, "[{\"error\":\"EU-RO-1 is unknown\"}]"));
    CHECK_CONTAINS("EU-RO-1 is unknown; check launch.region", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, create_pod(403, "{\"error\":\"not for EU-RO-1\"}"));
    CHECK(!strstr(diloco_error_text(), "check launch"));
    CHECK_STATUS(DILOCO_EREFUSED, create_pod(418, "{\"error\":\"EU-RO-1 makes tea\"}"));
    CHECK(!strstr(diloco_error_text(), "check launch"));
}

/* Poll a job of the executor once; the backend answers with this body. */
static void poll_once(dl_job *job, const dl_executor *executor, const char *body)
{
    static char answer[8192];
    const char *const answers[] = {answer};
    char url[64];
    http_script script;
    const dl_launch_spec spec = new_spec();
    snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    script_start(&script, answers, 1);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", script.port);
    CHECK_OK(dl_config_set(&config, "launch.endpoint", url, "test"));
    CHECK_OK(dl_config_set(&config, "launch.region", "us-east-1", "test"));
    CHECK_OK(dl_config_set(&config, "launch.project", "alice", "test"));
    CHECK_OK(executor->poll(&spec, job, 1));
    CHECK_INT(1, (long long)atomic_load(&script.n_requests));
    script_stop(&script);
}

TEST(exit_code_at_the_end_of_a_long_reason_is_found)
{
    static const struct {
        const dl_executor *executor;
        const char *before;
    } rows[] = {
        {&dl_executor_hf_jobs, "{\"labels\":{\"name\":\"diloco-1f0c2ab9-r3-g1\"},\"status\":{"
                               "\"stage\":\"ERROR\",\"message\":\""},
        {&dl_executor_sagemaker, "{\"TrainingJobStatus\":\"Failed\",\"FailureReason\":\""},
    };
    char body[4096];
    CHECK(!setenv("HF_TOKEN", "hf_test", 1));
    CHECK(!setenv("AWS_ACCESS_KEY_ID", "AKIATEST", 1));
    CHECK(!setenv("AWS_SECRET_ACCESS_KEY", "swordfish", 1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dl_job job = new_job();
        snprintf(job.id, sizeof job.id, "%s", job.name);
        char *end = body + snprintf(body, sizeof body, "%s", rows[i].before);
        memset(end, 'x', 1500);
        strcpy(end + 1500, ", exit code: 137\"}}");
        if (i == 1) body[strlen(body) - 1] = '\0';
        poll_once(&job, rows[i].executor, body);
        CHECK_INT(DL_JOB_LOST, job.state);
        CHECK_CONTAINS("killed by signal 9", job.message);
        strcpy(end + 1500, i == 1 ? "\"}" : "\"}}");
        poll_once(&job, rows[i].executor, body);
        CHECK_INT(DL_JOB_FAILED, job.state);
        CHECK_CONTAINS("xxxx", job.message);
    }
}

TEST_MAIN(an_exit_code_is_found_in_a_sentence, a_signal_is_a_loss_and_another_code_a_failure,
          an_unknown_state_is_named_and_counts_as_silence,
          a_replica_has_words_variables_and_secrets_that_a_dry_run_hides,
          option_whose_value_the_backend_repeats_is_named,
          lack_of_machines_may_pass_and_only_a_refused_value_blames_its_option,
          an_option_that_is_not_set_is_named_with_an_example,
          job_of_another_name_is_neither_stopped_nor_read,
          answer_without_a_name_makes_the_job_silent, output_of_a_job_of_another_name_is_not_read,
          job_is_found_by_its_name, exit_code_at_the_end_of_a_long_reason_is_found)
