/* k8s_ray_job.c - see k8s_ray_job.h. */
#include "launch/cloud/k8s/k8s_ray_job.h"

#include "launch/cloud/k8s/k8s_job.h"

#include <stdlib.h>
#include <string.h>

/* Seconds that a head is kept for its output after its replica has ended. Its machine is paid for
 * meanwhile. */
enum { HEAD_KEPT_S = 600 };

/* The process of the replica writes its number here. No other container sees the file. */
#define PID_FILE "\"${TMPDIR:-/tmp}/diloco-replica.pid\""

/* ---- the RayJob */

/* KubeRay stops no command when it deletes a pod, and Ray kills its commands when it is stopped. So
 * the pod first asks the replica to stop, and waits for its end. Kubernetes ends that wait after
 * launch.grace. */
#define STOP_REPLICA                                                                               \
    "read -r p <" PID_FILE " || exit 0; kill -TERM \"$p\" 2>/dev/null || exit 0; "                 \
    "while kill -0 \"$p\" 2>/dev/null; do sleep 1; done"

/* Ray gives OMP_NUM_THREADS=1 to a command unless the container has set the variable. A replica
 * then would use one core. Process 1 has the container's own variables. */
#define BEFORE_COMMAND                                                                             \
    "echo $$ >" PID_FILE "; "                                                                      \
    "{ tr '\\0' '\\n' </proc/1/environ | grep -q ^OMP_NUM_THREADS=; } 2>/dev/null || "             \
    "unset OMP_NUM_THREADS; exec "

/* The ports that KubeRay's services of a head use, under KubeRay's names. No command: KubeRay
 * writes that of `ray start`. */
static diloco_status put_head(dl_json *j, const dl_launch_spec *spec, const dl_k8s_group *group)
{
    static const struct {
        const char *name;
        int port;
    } ports[] = {{"gcs-server", 6379}, {"dashboard", 8265}, {"client", 10001}};
    (void)spec, (void)group;
    dl_json_array(j, "ports");
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
        dl_json_object(j, NULL);
        dl_json_str(j, "name", ports[i].name);
        dl_json_i64(j, "containerPort", ports[i].port);
        dl_json_end(j);
    }
    dl_json_end(j);
    dl_json_object(j, "lifecycle");
    dl_json_object(j, "preStop");
    dl_json_object(j, "exec");
    dl_json_array(j, "command");
    dl_json_str(j, NULL, "/bin/sh");
    dl_json_str(j, NULL, "-c");
    dl_json_str(j, NULL, STOP_REPLICA);
    for (int i = 0; i < 4; i++)
        dl_json_end(j); /* command, exec, preStop, lifecycle */
    return DILOCO_OK;
}

/* KubeRay asks Ray to stop the command when a RayJob is deleted. Ray waits launch.grace for it, by
 * default three seconds. Ray's own monitor of memory would kill the command's parent shortly before
 * the memory of the container is used up, so it is turned off. */
static diloco_status put_settings(dl_json *j, const dl_launch_spec *spec, const dl_k8s_group *group)
{
    char text[32];
    (void)group;
    snprintf(text, sizeof text, "%lld", (long long)dl_cloud_ceiling(spec->config->launch_grace_s));
    DL_TRY(dl_k8s_put_variable(j, "RAY_JOB_STOP_WAIT_TIME_S", text));
    return dl_k8s_put_variable(j, "RAY_memory_monitor_refresh_ms", "0");
}

/* Ray runs the text by /bin/sh. KubeRay replaces nothing in it. */
static diloco_status put_entrypoint(dl_json *j, const dl_launch_spec *spec, const dl_job *job)
{
    char rank[16];
    dl_buf line;
    snprintf(rank, sizeof rank, "%u", job->rank);
    dl_buf_init(&line, DL_REST_BODY);
    diloco_status status = dl_buf_add(&line, BEFORE_COMMAND, strlen(BEFORE_COMMAND));
    if (!status) status = dl_cloud_line(&line, spec, rank);
    if (!status) dl_json_strn(j, "entrypoint", (const char *)line.data, line.len);
    dl_buf_deinit(&line);
    return status;
}

/* The pod of the head is that of a Job, with restartPolicy Never. */
static diloco_status put_cluster(dl_json *j, const dl_launch_spec *spec, dl_job *job)
{
    static const dl_k8s_container head = {.put_words = put_head, .put_env = put_settings};
    const dl_k8s_group group = {.jobs = &job, .n = 1};
    dl_json_object(j, "rayClusterSpec");
    dl_json_object(j, "headGroupSpec");
    dl_json_object(j, "rayStartParams");
    dl_json_str(j, "dashboard-host", "0.0.0.0");
    dl_json_end(j);
    DL_TRY(dl_k8s_put_pod(j, spec, &group, &head));
    dl_json_end(j);
    dl_json_end(j);
    return DILOCO_OK;
}

/* The annotation keeps KubeRay from a new head, which would run the command again under an old
 * generation. The number of the submission is the replica's name, so it is known here. */
diloco_status dl_k8s_put_ray_job(dl_json *j, const dl_launch_spec *spec, dl_job *job)
{
    const double timeout_s = spec->config->launch_timeout_s;
    dl_json_object(j, NULL);
    dl_json_str(j, "apiVersion", "ray.io/v1");
    dl_json_str(j, "kind", "RayJob");
    dl_json_object(j, "metadata");
    dl_json_str(j, "name", job->name);
    dl_k8s_put_labels(j, spec, NULL);
    dl_json_object(j, "annotations");
    dl_json_str(j, "ray.io/disable-provisioned-head-restart", "true");
    dl_json_end(j);
    dl_json_end(j);
    dl_json_object(j, "spec");
    DL_TRY(put_entrypoint(j, spec, job));
    dl_json_str(j, "jobId", job->name);
    dl_json_str(j, "submissionMode", "HTTPMode");
    dl_json_i64(j, "backoffLimit", 0);
    dl_json_bool(j, "shutdownAfterJobFinishes", true);
    dl_json_i64(j, "ttlSecondsAfterFinished", HEAD_KEPT_S);
    if (timeout_s > 0) dl_json_i64(j, "activeDeadlineSeconds", dl_cloud_ceiling(timeout_s));
    DL_TRY(put_cluster(j, spec, job));
    dl_json_end(j);
    dl_json_end(j);
    return DILOCO_OK;
}

/* ---- its state */

/* The sentence is that of JobSupervisor.run in Ray. A negative code is a signal, as Python reports
 * it. After the code comes ", last available logs" or ". No logs available". */
int dl_k8s_ray_code(const char *message)
{
    static const char begin[] = "Job entrypoint command failed with exit code ";
    if (strncmp(message, begin, strlen(begin)) != 0) return -1;
    const char *digits = message + strlen(begin);
    const bool is_signal = *digits == '-';
    if (is_signal) digits++;
    const size_t len = strspn(digits, "0123456789");
    const long number = strtol(digits, NULL, 10);
    if (!len || len > 3 || !number || (digits[len] != ',' && digits[len] != '.')) return -1;
    if (is_signal) return number <= 64 ? (int)(128 + number) : -1;
    return number <= 255 ? (int)number : -1;
}

/* The first line of status.message. Later ones are output of the replica. */
static const char *first_line(char out[160], dl_json_value ray_job)
{
    dl_rest_message(out, 160, ray_job, "status.message");
    out[strcspn(out, "\r\n")] = '\0';
    return out;
}

/* The command has ended with a failure, or KubeRay has given up the RayJob. Ray names the exit code
 * in its message alone. Without one the replica may have been killed. */
static void set_failed(dl_job *job, dl_json_value ray_job)
{
    char reason[64], words[160];
    dl_rest_text(reason, sizeof reason, ray_job, "status.reason");
    const int code = dl_k8s_ray_code(first_line(words, ray_job));
    if (strcmp(reason, "DeadlineExceeded") == 0)
        dl_job_set(job, DL_JOB_FAILED, -1, "launch.timeout is over");
    else if (code >= 0)
        dl_cloud_set_ended(job, code);
    else
        dl_job_set(job, DL_JOB_LOST, -1, "no exit code%s%s%s%s", *reason ? ": " : "", reason,
                   *words ? ": " : "", words);
}

/* KubeRay refuses the RayJob, and it would refuse the next generation. */
static void set_invalid(dl_job *job, dl_json_value ray_job)
{
    char words[160];
    dl_job_set(job, DL_JOB_FAILED, -1, "refused by KubeRay: %s", first_line(words, ray_job));
}

static void set_complete(dl_job *job, dl_json_value ray_job, const char *state)
{
    if (!strcmp(state, "SUCCEEDED"))
        dl_job_set(job, DL_JOB_SUCCEEDED, 0, "exit code 0");
    else if (!strcmp(state, "STOPPED"))
        dl_job_set(job, DL_JOB_CANCELLED, -1, "stopped by a request to Ray");
    else if (!strcmp(state, "FAILED"))
        set_failed(job, ray_job);
    else
        dl_job_set_silent(job, "KubeRay says Complete, and Ray's state is \"%.60s\"", state);
}

/* The newest pod of the head. Times are of one form (RFC 3339, in UTC), so their order is that of
 * the texts. */
static dl_json_value head_of(dl_json_value pods)
{
    char made[64], newest[64] = "";
    dl_json_value head = {.type = DL_JSON_MISSING};
    for (dl_json_iter it = dl_json_each(dl_json_get(pods, "items")); dl_json_next(&it);) {
        dl_rest_text(made, sizeof made, it.value, "metadata.creationTimestamp");
        if (head.type != DL_JSON_MISSING && strcmp(made, newest) < 0) continue;
        head = it.value;
        memcpy(newest, made, sizeof made);
    }
    return head;
}

/* Why KubeRay has made no pod of the head, for example a quota: the words of the condition
 * ReplicaFailure of its cluster, or those of the cluster's reason. */
static void set_without_pod(dl_job *job, dl_json_value ray_job)
{
    char type[64], words[200] = "";
    const dl_json_value cluster = dl_rest_at(ray_job, "status.rayClusterStatus");
    for (dl_json_iter it = dl_json_each(dl_json_get(cluster, "conditions")); dl_json_next(&it);)
        if (!strcmp(dl_rest_text(type, sizeof type, it.value, "type"), "ReplicaFailure"))
            dl_rest_message(words, sizeof words, it.value, "message");
    if (!*words) dl_rest_message(words, sizeof words, cluster, "reason");
    words[strcspn(words, "\r\n")] = '\0';
    if (*words)
        dl_job_set(job, DL_JOB_PENDING, -1, "%s", words);
    else
        dl_job_set(job, DL_JOB_PENDING, -1,
                   "no pod yet: kubectl describe raycluster -l diloco/run=%.8s  has the reason",
                   strchr(job->name, '-') + 1);
}

static void set_initializing(dl_job *job, dl_json_value ray_job, dl_json_value head)
{
    char phase[64];
    dl_rest_text(phase, sizeof phase, head, "status.phase");
    if (head.type == DL_JSON_MISSING)
        set_without_pod(job, ray_job);
    else if (!strcmp(phase, "Pending"))
        dl_k8s_set_waiting(job, head);
    else if (!strcmp(phase, "Running"))
        dl_job_set(job, DL_JOB_STARTING, -1, "Ray starts on its head");
    else
        dl_job_set_silent(job, "the pod of its head is in phase \"%.60s\"", phase);
}

/* Without a pod of the head nothing runs, whatever KubeRay says. */
static void set_running(dl_job *job, dl_json_value head, const char *state)
{
    char phase[64], node[128];
    dl_rest_text(phase, sizeof phase, head, "status.phase");
    dl_rest_text(node, sizeof node, head, "spec.nodeName");
    if (!*state || !strcmp(state, "PENDING"))
        dl_job_set(job, DL_JOB_STARTING, -1, "waits for Ray to start the command");
    else if (!strcmp(state, "SUCCEEDED") || !strcmp(state, "FAILED") || !strcmp(state, "STOPPED"))
        dl_job_set(job, DL_JOB_RUNNING, -1, "it has ended, KubeRay does not say so yet");
    else if (strcmp(state, "RUNNING") != 0)
        dl_job_set_silent(job, "Ray's state is \"%.60s\", which is not known here", state);
    else if (head.type == DL_JSON_MISSING)
        dl_job_set_silent(job, "the pod of its head is gone, KubeRay does not say so yet");
    else if (strcmp(phase, "Running") != 0)
        dl_job_set_silent(job, "the pod of its head is in phase \"%.60s\"", phase);
    else
        dl_job_set(job, DL_JOB_RUNNING, -1, "on %s", node);
}

/* A state that is no text, or a very long one, reads as "?". */
static void read_state(char out[64], dl_json_value ray_job, const char *path)
{
    const dl_json_value value = dl_rest_at(ray_job, path);
    out[0] = '\0';
    if (value.type == DL_JSON_MISSING) return;
    if (value.type != DL_JSON_STRING || dl_json_as_str(out, 64, value)) strcpy(out, "?");
}

/* Suspended: this project never suspends a RayJob, but a person or Kueue may. Waiting and Retrying
 * do not follow from the RayJobs that are created here. */
void dl_k8s_ray_set(dl_job *job, dl_json_value ray_job, dl_json_value pods)
{
    char theirs[64], state[64];
    const dl_json_value head = head_of(pods);
    read_state(theirs, ray_job, "status.jobDeploymentStatus");
    read_state(state, ray_job, "status.jobStatus");
    job->silent = false;
    if (!*theirs)
        dl_job_set(job, DL_JOB_PENDING, -1, "waits for KubeRay's operator");
    else if (!strcmp(theirs, "Initializing"))
        set_initializing(job, ray_job, head);
    else if (!strcmp(theirs, "Running"))
        set_running(job, head, state);
    else if (!strcmp(theirs, "Complete"))
        set_complete(job, ray_job, state);
    else if (!strcmp(theirs, "Failed"))
        set_failed(job, ray_job);
    else if (!strcmp(theirs, "ValidationFailed"))
        set_invalid(job, ray_job);
    else if (!strcmp(theirs, "Suspending") || !strcmp(theirs, "Suspended"))
        dl_job_set(job, DL_JOB_PENDING, -1, "suspended");
    else if (!strcmp(theirs, "Retrying") || !strcmp(theirs, "Waiting"))
        dl_job_set(job, DL_JOB_PENDING, -1, "%s", theirs);
    else
        dl_job_set_silent(job, "KubeRay's state is \"%.60s\", which is not known here", theirs);
}

bool dl_k8s_ray_has_begun(dl_json_value ray_job)
{
    char state[64];
    read_state(state, ray_job, "status.jobStatus");
    return *state && strcmp(state, "PENDING") != 0;
}
