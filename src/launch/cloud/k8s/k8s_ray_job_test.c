/* k8s_ray_job_test.c - the RayJob of a replica, and the state of a replica from its RayJob and the
 * pods of its head. The messages of Ray were copied from Ray 2.60. */
#include "launch/cloud/k8s/k8s_ray_job.h"

#include "check.h"

#include <string.h>

#define RUN       "1f0c2ab9000000000000000000000000"
#define ENDED(n)  "Job entrypoint command failed with exit code " n
#define TAIL      ", last available logs (truncated to 20,000 chars):\\n"
#define STATUS(m) "{\"status\":{" m "}}"
#define POD(m)    "{\"items\":[{\"metadata\":{\"name\":\"p\"}," m "}]}"
#define NO_POD    "{\"items\":[]}"

static dl_json_value parse(const char *text)
{
    dl_json_value value;
    CHECK_OK(dl_json_parse(&value, text, strlen(text)));
    return value;
}

static dl_job seen(const char *ray_job, const char *pods)
{
    dl_job job;
    dl_job_init(&job, RUN, 1, 0);
    dl_k8s_ray_set(&job, parse(ray_job), parse(pods));
    return job;
}

/* A RayJob with these states of KubeRay and Ray, whose head runs. */
static dl_job seen_in(const char *theirs, const char *state)
{
    char text[256];
    snprintf(text, sizeof text,
             STATUS("\"jobDeploymentStatus\":\"%s\",\"jobStatus\":\"%s\",\"message\":\"m\""),
             theirs, state);
    return seen(text, POD("\"status\":{\"phase\":\"Running\"},\"spec\":{\"nodeName\":\"n1\"}"));
}

/* A RayJob of this message whose command has failed. */
static dl_job failed(const char *reason, const char *message)
{
    char text[512];
    snprintf(text, sizeof text,
             STATUS("\"jobDeploymentStatus\":\"Failed\",\"jobStatus\":\"FAILED\","
                    "\"reason\":\"%s\",\"message\":\"%s\""),
             reason, message);
    return seen(text, NO_POD);
}

TEST(exit_code_is_read_from_the_first_words_of_rays_message_alone)
{
    CHECK_INT(3, dl_k8s_ray_code(ENDED("3, last available logs (truncated to 20,000 chars):\nx")));
    CHECK_INT(7, dl_k8s_ray_code(ENDED("7. No logs available.")));
    CHECK_INT(137, dl_k8s_ray_code(ENDED("-9, last available logs")));
    CHECK_INT(255, dl_k8s_ray_code(ENDED("255, last")));
    CHECK_INT(-1, dl_k8s_ray_code(ENDED("0, last")));
    CHECK_INT(-1, dl_k8s_ray_code(ENDED("256, last")));
    CHECK_INT(-1, dl_k8s_ray_code(ENDED("-65, last")));
    CHECK_INT(-1, dl_k8s_ray_code(ENDED("3")));
    CHECK_INT(-1, dl_k8s_ray_code(ENDED("3x, last")));
    CHECK_INT(-1, dl_k8s_ray_code(ENDED("99999999999999999999, last")));
    CHECK_INT(-1, dl_k8s_ray_code("Unexpected error occurred: " ENDED("3, last")));
    CHECK_INT(-1, dl_k8s_ray_code("Job finished successfully."));
    CHECK_INT(-1, dl_k8s_ray_code(""));
}

TEST(each_state_of_kuberay_and_ray_has_one_of_ours)
{
    static const struct {
        const char *theirs, *state;
        dl_job_state ours;
    } rows[] = {
        {"", "", DL_JOB_PENDING},
        {"Initializing", "", DL_JOB_STARTING},
        {"Running", "", DL_JOB_STARTING},
        {"Running", "PENDING", DL_JOB_STARTING},
        {"Running", "RUNNING", DL_JOB_RUNNING},
        {"Running", "SUCCEEDED", DL_JOB_RUNNING},
        {"Running", "FAILED", DL_JOB_RUNNING},
        {"Running", "STOPPED", DL_JOB_RUNNING},
        {"Complete", "SUCCEEDED", DL_JOB_SUCCEEDED},
        {"Complete", "STOPPED", DL_JOB_CANCELLED},
        {"Complete", "FAILED", DL_JOB_LOST},
        {"Failed", "FAILED", DL_JOB_LOST},
        {"Failed", "", DL_JOB_LOST},
        {"ValidationFailed", "", DL_JOB_FAILED},
        {"Suspending", "RUNNING", DL_JOB_PENDING},
        {"Suspended", "", DL_JOB_PENDING},
        {"Retrying", "FAILED", DL_JOB_PENDING},
        {"Waiting", "", DL_JOB_PENDING},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const dl_job job = seen_in(rows[i].theirs, rows[i].state);
        CHECK_INT(rows[i].ours, job.state);
        CHECK(!job.silent);
    }
    CHECK_CONTAINS("on n1", seen_in("Running", "RUNNING").message);
    CHECK_INT(0, seen_in("Complete", "SUCCEEDED").exit_code);
}

TEST(unknown_state_is_named_and_counts_as_silence)
{
    static const char *const rows[][2] = {
        {"Dreaming", "RUNNING"}, {"Running", "DREAMING"}, {"Complete", "DREAMING"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const dl_job job = seen_in(rows[i][0], rows[i][1]);
        CHECK(job.silent);
        CHECK_CONTAINS(i ? "\"DREAMING\"" : "\"Dreaming\"", job.message);
    }
    CHECK(seen(STATUS("\"jobDeploymentStatus\":7"), NO_POD).silent);
}

TEST(failed_replica_has_the_exit_code_of_rays_message)
{
    dl_job job = failed("AppFailed", ENDED("3" TAIL "failed with exit code 5, last"));
    CHECK_INT(DL_JOB_FAILED, job.state);
    CHECK_INT(3, job.exit_code);
    CHECK_STR("exit code 3", job.message);
    job = failed("AppFailed", ENDED("-9" TAIL));
    CHECK_INT(DL_JOB_LOST, job.state);
    CHECK_CONTAINS("killed by signal 9", job.message);
    job = failed("AppFailed", "Job supervisor actor died\\nsecret output");
    CHECK_INT(DL_JOB_LOST, job.state);
    CHECK_STR("no exit code: AppFailed: Job supervisor actor died", job.message);
    job = failed("DeadlineExceeded", "The RayJob has passed the activeDeadlineSeconds");
    CHECK_INT(DL_JOB_FAILED, job.state);
    CHECK_CONTAINS("launch.timeout is over", job.message);
}

TEST(replica_without_a_running_head_counts_as_silent)
{
    static const char running[] =
        STATUS("\"jobDeploymentStatus\":\"Running\",\"jobStatus\":\"RUNNING\"");
    dl_job job = seen(running, NO_POD);
    CHECK(job.silent);
    CHECK_CONTAINS("the pod of its head is gone", job.message);
    job = seen(running, POD("\"status\":{\"phase\":\"Failed\"}"));
    CHECK(job.silent);
    CHECK_CONTAINS("in phase \"Failed\"", job.message);
}

TEST(head_that_waits_names_the_reason)
{
    static const char begins[] = STATUS("\"jobDeploymentStatus\":\"Initializing\"");
    dl_job job = seen(begins, POD("\"status\":{\"phase\":\"Pending\",\"containerStatuses\":[{"
                                  "\"state\":{\"waiting\":{\"reason\":\"ErrImagePull\"}}}]}"));
    CHECK_INT(DL_JOB_STARTING, job.state);
    CHECK_CONTAINS("ErrImagePull", job.message);
    job = seen(begins, NO_POD);
    CHECK_INT(DL_JOB_PENDING, job.state);
    CHECK_CONTAINS("kubectl describe raycluster -l diloco/run=1f0c2ab9", job.message);
    job = seen(STATUS("\"jobDeploymentStatus\":\"Initializing\",\"rayClusterStatus\":{"
                      "\"conditions\":[{\"type\":\"ReplicaFailure\",\"status\":\"True\","
                      "\"message\":\"pods x is forbidden: exceeded quota\\nmore\"}]}"),
               NO_POD);
    CHECK_INT(DL_JOB_PENDING, job.state);
    CHECK_STR("pods x is forbidden: exceeded quota", job.message);
}

/* The written RayJob of rank 1, with these options of [launch]. */
static const char *written(const char *timeout)
{
    static const char *const argv[] = {"train", "it's", "$(HOME)", "{rank}", NULL};
    static const char *const env[] = {"WORD=$(PATH)", NULL}, *const secrets[] = {"TOKEN", NULL};
    static char text[16384];
    static dl_config config;
    dl_job job;
    dl_buf out;
    dl_json j;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "launch.image", "registry.example/ray:1", "test"));
    CHECK_OK(dl_config_set(&config, "launch.gpus", "1", "test"));
    CHECK_OK(dl_config_set(&config, "launch.grace", "44.5", "test"));
    CHECK_OK(dl_config_set(&config, "launch.timeout", timeout, "test"));
    const dl_launch_spec spec = {.run = RUN,
                                 .config = &config,
                                 .program = "diloco",
                                 .argv = argv,
                                 .env = env,
                                 .secrets = secrets};
    dl_job_init(&job, RUN, 1, 2);
    dl_buf_init(&out, sizeof text);
    dl_json_init(&j, &out);
    CHECK_OK(dl_k8s_put_ray_job(&j, &spec, &job));
    CHECK_OK(dl_json_done(&j));
    snprintf(text, sizeof text, "%.*s", (int)out.len, (const char *)out.data);
    dl_buf_deinit(&out);
    return text;
}

/* The command has no argument that Kubernetes could replace, as KubeRay passes it on to Ray. */
TEST(ray_job_runs_the_quoted_command_on_a_head_without_workers)
{
    char line[1024];
    const dl_json_value job = parse(written("90.5"));
    dl_rest_text(line, sizeof line, job, "spec.entrypoint");
    CHECK_CONTAINS("; exec diloco train 'it'\\''s' '$(HOME)' 1", line);
    CHECK_STR("diloco-1f0c2ab9-r1-g2", dl_rest_text(line, sizeof line, job, "metadata.name"));
    CHECK_STR("diloco-1f0c2ab9-r1-g2", dl_rest_text(line, sizeof line, job, "spec.jobId"));
    CHECK_STR("HTTPMode", dl_rest_text(line, sizeof line, job, "spec.submissionMode"));
    CHECK_STR("0", dl_rest_text(line, sizeof line, job, "spec.backoffLimit"));
    CHECK_STR("91", dl_rest_text(line, sizeof line, job, "spec.activeDeadlineSeconds"));
    CHECK(dl_rest_at(job, "spec.rayClusterSpec.workerGroupSpecs").type == DL_JSON_MISSING);
}

TEST(head_has_the_container_of_a_job_without_its_command)
{
    const char *text = written("0");
    const dl_json_value job = parse(text);
    CHECK(dl_rest_at(job, "spec.activeDeadlineSeconds").type == DL_JSON_MISSING);
    dl_json_iter it =
        dl_json_each(dl_rest_at(job, "spec.rayClusterSpec.headGroupSpec.template.spec.containers"));
    CHECK(dl_json_next(&it));
    CHECK(dl_json_get(it.value, "command").type == DL_JSON_MISSING);
    CHECK(dl_json_get(it.value, "args").type == DL_JSON_MISSING);
    CHECK_CONTAINS("\"image\":\"registry.example/ray:1\"", text);
    CHECK_CONTAINS("\"restartPolicy\":\"Never\"", text);
    CHECK_CONTAINS("\"terminationGracePeriodSeconds\":45", text);
    CHECK_CONTAINS("{\"name\":\"DILOCO_RANK\",\"value\":\"1\"}", text);
    CHECK_CONTAINS("{\"name\":\"WORD\",\"value\":\"$$(PATH)\"}", text);
    CHECK_CONTAINS("{\"name\":\"RAY_JOB_STOP_WAIT_TIME_S\",\"value\":\"45\"}", text);
    CHECK_CONTAINS("{\"name\":\"RAY_memory_monitor_refresh_ms\",\"value\":\"0\"}", text);
    CHECK_CONTAINS("\"secretKeyRef\":{\"name\":\"diloco-1f0c2ab9\",\"key\":\"TOKEN\"}", text);
    CHECK_CONTAINS("\"limits\":{\"nvidia.com/gpu\":\"1\"}", text);
}

TEST_MAIN(exit_code_is_read_from_the_first_words_of_rays_message_alone,
          each_state_of_kuberay_and_ray_has_one_of_ours,
          unknown_state_is_named_and_counts_as_silence,
          failed_replica_has_the_exit_code_of_rays_message,
          replica_without_a_running_head_counts_as_silent, head_that_waits_names_the_reason,
          ray_job_runs_the_quoted_command_on_a_head_without_workers,
          head_has_the_container_of_a_job_without_its_command)
