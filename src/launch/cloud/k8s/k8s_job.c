/* k8s_job.c - see k8s_job.h. Objects are written member by member, and read by paths of members.
 *
 * A Job of this project is Indexed, and starts no index again by itself after a failure
 * (backoffLimitPerIndex 0): diloco launch starts the next generation. A pod that the cluster
 * evicts, preempts or loses with its node is replaced by the Job (podFailurePolicy). Both need
 * Kubernetes 1.29 or later.
 *
 * An index is over when the Job lists it as completed or failed. Until then its newest pod only
 * says whether it waits, starts or runs. */
#include "launch/cloud/k8s/k8s_job.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Seconds that an ended Job keeps its output, and bytes of a list of indexes. The note is the
 * annotation in which the Job controller writes the index of a pod. */
enum { KEPT_S = 7 * 86400, INDEX_LIST = 8192 };
#define OOM        "OOMKilled" /* the kernel's killer ended the container */
#define INDEX_NOTE "batch.kubernetes.io/job-completion-index"
#define RANK_MARK  "\x01" /* in words, where the index comes; no option holds it */

/* ---- parts of a Job */

void dl_k8s_put_labels(dl_json *j, const dl_launch_spec *spec, const char *queue)
{
    char run[16];
    snprintf(run, sizeof run, "%.8s", spec->run);
    dl_json_object(j, "labels");
    dl_json_str(j, "app.kubernetes.io/name", "diloco");
    dl_json_str(j, "diloco/run", run);
    if (queue) dl_json_str(j, "kueue.x-k8s.io/queue-name", queue);
    dl_json_end(j);
}

/* launch.gang is "", "kueue" or "volcano". */
static bool is_gang(const dl_launch_spec *spec, const char *name)
{
    return strcmp(spec->config->launch_gang, name) == 0;
}

/* Write a text in which Kubernetes replaces nothing but the rank. It expands "$(NAME)" in words and
 * values of variables, and writes "$$(" as "$(" (Kubernetes, "Define Dependent Environment
 * Variables"). */
static diloco_status put_text(dl_json *j, const char *key, const char *text)
{
    dl_buf out;
    dl_buf_init(&out, 1 << 20);
    diloco_status status = DILOCO_OK;
    for (; !status && *text; text++)
        if (*text == *RANK_MARK)
            status = dl_buf_addf(&out, "$(DILOCO_RANK)");
        else if (text[0] == '$' && text[1] == '(')
            status = dl_buf_add(&out, "$$", 2);
        else
            status = dl_buf_add(&out, text, 1);
    if (!status) dl_json_strn(j, key, out.len ? (const char *)out.data : "", out.len);
    dl_buf_deinit(&out);
    return status;
}

/* `command` is the image's entrypoint and `args` its arguments, in Kubernetes' terms. */
static diloco_status put_words(dl_json *j, const dl_launch_spec *spec, const dl_k8s_group *group)
{
    char **words, rank[16];
    snprintf(rank, sizeof rank, "%u", group->jobs[0]->rank);
    DL_TRY(dl_replica_argv(&words, spec, spec->program, group->n == 1 ? rank : RANK_MARK));
    diloco_status status = DILOCO_OK;
    dl_json_array(j, "command");
    dl_json_str(j, NULL, words[0]);
    dl_json_end(j);
    dl_json_array(j, "args");
    for (char **word = words + 1; !status && *word; word++)
        status = put_text(j, NULL, *word);
    dl_json_end(j);
    dl_argv_free(words);
    return status;
}

diloco_status dl_k8s_put_variable(dl_json *j, const char *name, const char *value)
{
    dl_json_object(j, NULL);
    dl_json_str(j, "name", name);
    DL_TRY(put_text(j, "value", value));
    dl_json_end(j);
    return DILOCO_OK;
}

/* The rank is the index of a group, which the Job writes into a note on each pod. fieldRef copies
 * it into the variable. The loop closes fieldRef, valueFrom and the variable. */
static diloco_status put_rank(dl_json *j, const dl_k8s_group *group)
{
    char rank[16];
    snprintf(rank, sizeof rank, "%u", group->jobs[0]->rank);
    if (group->n == 1) return dl_k8s_put_variable(j, "DILOCO_RANK", rank);
    dl_json_object(j, NULL);
    dl_json_str(j, "name", "DILOCO_RANK");
    dl_json_object(j, "valueFrom");
    dl_json_object(j, "fieldRef");
    dl_json_str(j, "fieldPath", "metadata.annotations['" INDEX_NOTE "']");
    for (int i = 0; i < 3; i++)
        dl_json_end(j);
    return DILOCO_OK;
}

/* The value stays in the Secret: the Job's description, which more people may read, has only the
 * name. */
static void put_secret_variable(dl_json *j, const dl_launch_spec *spec, const char *name)
{
    char secret[DL_JOB_NAME_MAX + 1];
    dl_k8s_secret_name(secret, spec);
    dl_json_object(j, NULL);
    dl_json_str(j, "name", name);
    dl_json_object(j, "valueFrom");
    dl_json_object(j, "secretKeyRef");
    dl_json_str(j, "name", secret);
    dl_json_str(j, "key", name);
    for (int i = 0; i < 3; i++)
        dl_json_end(j);
}

/* DILOCO_RANK comes first, because "$(DILOCO_RANK)" is expanded only after the variable was
 * defined. */
static diloco_status put_env(dl_json *j, const dl_launch_spec *spec, const dl_k8s_group *group,
                             dl_k8s_put_fn more)
{
    char text[DL_PATH_MAX + 1];
    dl_json_array(j, "env");
    DL_TRY(put_rank(j, group));
    snprintf(text, sizeof text, "diloco-%.8s-r" RANK_MARK "-g%u", spec->run,
             group->jobs[0]->generation);
    DL_TRY(dl_k8s_put_variable(j, "DILOCO_JOB", group->n == 1 ? group->jobs[0]->name : text));
    for (const char *const *e = spec->env; *e; e++) {
        snprintf(text, sizeof text, "%.*s", (int)strcspn(*e, "="), *e);
        DL_TRY(dl_k8s_put_variable(j, text, strchr(*e, '=') + 1));
    }
    for (const char *const *s = spec->secrets; *s; s++)
        put_secret_variable(j, spec, *s);
    if (more) DL_TRY(more(j, spec, group));
    dl_json_end(j);
    return DILOCO_OK;
}

/* Resources in Kubernetes' units. The resource of a GPU is NVIDIA's unless launch.gpu_type has a
 * '/', which names another resource. Memory is in millions of bytes ("M"). */
static void put_amounts(dl_json *j, const char *key, const dl_config *config, bool gpus)
{
    char text[32];
    const char *type = config->launch_gpu_type;
    dl_json_object(j, key);
    if (config->launch_cpus) {
        snprintf(text, sizeof text, "%lld", (long long)config->launch_cpus);
        dl_json_str(j, "cpu", text);
    }
    if (config->launch_memory_gb > 0) {
        snprintf(text, sizeof text, "%.0fM", config->launch_memory_gb * 1000);
        dl_json_str(j, "memory", text);
    }
    if (config->launch_disk_gb > 0) {
        snprintf(text, sizeof text, "%.0fM", config->launch_disk_gb * 1000);
        dl_json_str(j, "ephemeral-storage", text);
    }
    if (config->launch_gpus && gpus) {
        snprintf(text, sizeof text, "%lld", (long long)config->launch_gpus);
        dl_json_str(j, strchr(type, '/') ? type : "nvidia.com/gpu", text);
    }
    dl_json_end(j);
}

/* Requests equal limits. If CPU and memory are given, the pod has the class Guaranteed and is
 * evicted last. */
static diloco_status put_container(dl_json *j, const dl_launch_spec *spec,
                                   const dl_k8s_group *group, const dl_k8s_container *container)
{
    dl_json_object(j, NULL);
    dl_json_str(j, "name", "replica");
    dl_json_str(j, "image", spec->config->launch_image);
    DL_TRY(container->put_words(j, spec, group));
    DL_TRY(put_env(j, spec, group, container->put_env));
    dl_json_object(j, "resources");
    put_amounts(j, "requests", spec->config, true);
    put_amounts(j, "limits", spec->config, true);
    dl_json_end(j);
    dl_json_end(j);
    return DILOCO_OK;
}

/* restartPolicy is Never: a restart in place would be a new process under an old generation.
 * Seconds of launch.grace are rounded up. */
diloco_status dl_k8s_put_pod(dl_json *j, const dl_launch_spec *spec, const dl_k8s_group *group,
                             const dl_k8s_container *container)
{
    const dl_config *config = spec->config;
    const bool product = config->launch_gpu_type[0] && !strchr(config->launch_gpu_type, '/');
    dl_json_object(j, "template");
    dl_json_object(j, "metadata");
    dl_k8s_put_labels(j, spec, NULL);
    if (is_gang(spec, "volcano")) {
        dl_json_object(j, "annotations");
        dl_json_str(j, "scheduling.k8s.io/group-name", group->name);
        dl_json_end(j);
    }
    dl_json_end(j);
    dl_json_object(j, "spec");
    dl_json_str(j, "restartPolicy", "Never");
    dl_json_i64(j, "terminationGracePeriodSeconds", (int64_t)(config->launch_grace_s + 0.999));
    if (config->launch_role[0]) dl_json_str(j, "serviceAccountName", config->launch_role);
    if (is_gang(spec, "volcano")) dl_json_str(j, "schedulerName", "volcano");
    if (config->launch_machine[0] || product) {
        dl_json_object(j, "nodeSelector");
        if (config->launch_machine[0])
            dl_json_str(j, "node.kubernetes.io/instance-type", config->launch_machine);
        if (product) dl_json_str(j, "nvidia.com/gpu.product", config->launch_gpu_type);
        dl_json_end(j);
    }
    dl_json_array(j, "containers");
    DL_TRY(put_container(j, spec, group, container));
    dl_json_end(j);
    dl_json_end(j);
    dl_json_end(j);
    return DILOCO_OK;
}

/* A pod that the cluster itself ends has the condition DisruptionTarget. It is no failure of the
 * replica, so the Job replaces it. Any other failure ends the index (backoffLimitPerIndex 0). The
 * loop closes the condition, onPodConditions, the rule, rules and the policy. */
static void put_policy(dl_json *j)
{
    dl_json_i64(j, "backoffLimitPerIndex", 0);
    dl_json_object(j, "podFailurePolicy");
    dl_json_array(j, "rules");
    dl_json_object(j, NULL);
    dl_json_str(j, "action", "Ignore");
    dl_json_array(j, "onPodConditions");
    dl_json_object(j, NULL);
    dl_json_str(j, "type", "DisruptionTarget");
    dl_json_str(j, "status", "True");
    for (int i = 0; i < 5; i++)
        dl_json_end(j);
}

/* Completions equal parallelism, so that all replicas run at once. activeDeadlineSeconds is the
 * limit of the whole Job, not of a pod. */
diloco_status dl_k8s_put_job(dl_json *j, const dl_launch_spec *spec, const dl_k8s_group *group)
{
    static const dl_k8s_container container = {.put_words = put_words};
    const bool kueue = is_gang(spec, "kueue");
    dl_json_object(j, NULL);
    dl_json_str(j, "apiVersion", "batch/v1");
    dl_json_str(j, "kind", "Job");
    dl_json_object(j, "metadata");
    dl_json_str(j, "name", group->name);
    dl_k8s_put_labels(j, spec, kueue ? spec->config->launch_queue : NULL);
    dl_json_end(j);
    dl_json_object(j, "spec");
    dl_json_i64(j, "completions", (int64_t)group->n);
    dl_json_i64(j, "parallelism", (int64_t)group->n);
    dl_json_str(j, "completionMode", "Indexed");
    put_policy(j);
    if (kueue) dl_json_bool(j, "suspend", true); /* Kueue resumes it when all of it fits */
    if (spec->config->launch_timeout_s > 0)
        dl_json_i64(j, "activeDeadlineSeconds", (int64_t)(spec->config->launch_timeout_s + 0.999));
    dl_json_i64(j, "ttlSecondsAfterFinished", KEPT_S);
    DL_TRY(dl_k8s_put_pod(j, spec, group, &container));
    dl_json_end(j);
    dl_json_end(j);
    return DILOCO_OK;
}

/* ---- other objects */

void dl_k8s_secret_name(char out[DL_JOB_NAME_MAX + 1], const dl_launch_spec *spec)
{
    snprintf(out, DL_JOB_NAME_MAX + 1, "diloco-%.8s", spec->run);
}

/* stringData accepts plain text; the API server encodes it. */
void dl_k8s_put_secret(dl_json *j, const dl_launch_spec *spec)
{
    char name[DL_JOB_NAME_MAX + 1];
    dl_k8s_secret_name(name, spec);
    dl_json_object(j, NULL);
    dl_json_str(j, "apiVersion", "v1");
    dl_json_str(j, "kind", "Secret");
    dl_json_object(j, "metadata");
    dl_json_str(j, "name", name);
    dl_k8s_put_labels(j, spec, NULL);
    dl_json_end(j);
    dl_json_str(j, "type", "Opaque");
    dl_cloud_secrets(j, "stringData", spec);
    dl_json_end(j);
}

/* minMember is the size of the group: Volcano starts all of its pods or none. */
void dl_k8s_put_pod_group(dl_json *j, const dl_launch_spec *spec, const dl_k8s_group *group)
{
    dl_json_object(j, NULL);
    dl_json_str(j, "apiVersion", "scheduling.volcano.sh/v1beta1");
    dl_json_str(j, "kind", "PodGroup");
    dl_json_object(j, "metadata");
    dl_json_str(j, "name", group->name);
    dl_k8s_put_labels(j, spec, NULL);
    dl_json_end(j);
    dl_json_object(j, "spec");
    dl_json_i64(j, "minMember", (int64_t)group->n);
    if (spec->config->launch_queue[0]) dl_json_str(j, "queue", spec->config->launch_queue);
    dl_json_end(j);
    dl_json_end(j);
}

/* ---- reading */

/* Kubernetes writes the lists in ascending order; this does not depend on it. */
bool dl_k8s_lists_index(const char *list, uint32_t index)
{
    while (*list >= '0' && *list <= '9') {
        char *at;
        const unsigned long first = strtoul(list, &at, 10);
        const unsigned long last = *at == '-' ? strtoul(at + 1, &at, 10) : first;
        if (index >= first && index <= last) return true;
        if (*at != ',') return false;
        list = at + 1;
    }
    return false;
}

/* Each rank takes at most five characters of the lists, so INDEX_LIST has room for DL_JOBS_MAX
 * ranks. */
bool dl_k8s_is_over(dl_json_value kube_job, uint32_t index)
{
    static const char *const lists[] = {"status.completedIndexes", "status.failedIndexes"};
    char text[INDEX_LIST];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (dl_k8s_lists_index(dl_rest_text(text, sizeof text, kube_job, lists[i]), index))
            return true;
    return false;
}

/* Times are of one form (RFC 3339, in UTC), so their order is that of the texts. */
dl_json_value dl_k8s_pod(dl_json_value pods, uint32_t index)
{
    char text[64], made[64], newest[64] = "";
    dl_json_value pod = {.type = DL_JSON_MISSING};
    for (dl_json_iter it = dl_json_each(dl_json_get(pods, "items")); dl_json_next(&it);) {
        const dl_json_value notes = dl_rest_at(it.value, "metadata.annotations");
        const dl_json_value note = dl_json_get(notes, INDEX_NOTE);
        if (note.type != DL_JSON_STRING || dl_json_as_str(text, sizeof text, note)) continue;
        if (strtoul(text, NULL, 10) != index) continue;
        dl_rest_text(made, sizeof made, it.value, "metadata.creationTimestamp");
        if (pod.type == DL_JSON_MISSING || strcmp(made, newest) >= 0) {
            pod = it.value;
            memcpy(newest, made, sizeof made);
        }
    }
    return pod;
}

/* The state of the pod's only container. */
static dl_json_value container_state(dl_json_value pod)
{
    dl_json_iter it = dl_json_each(dl_rest_at(pod, "status.containerStatuses"));
    return dl_json_next(&it) ? dl_json_get(it.value, "state")
                             : (dl_json_value){.type = DL_JSON_MISSING};
}

/* The reason of the condition `type` of the object, when it is True; "" otherwise. */
static const char *condition(char out[128], dl_json_value object, const char *type)
{
    char text[64];
    out[0] = '\0';
    for (dl_json_iter it = dl_json_each(dl_rest_at(object, "status.conditions"));
         dl_json_next(&it);) {
        if (strcmp(dl_rest_text(text, sizeof text, it.value, "type"), type) != 0) continue;
        if (strcmp(dl_rest_text(text, sizeof text, it.value, "status"), "True") != 0) continue;
        if (!*dl_rest_text(out, 128, it.value, "reason")) strcpy(out, type);
    }
    return out;
}

/* Write "<reason>: <message>" of an object, such as "Evicted: The node was low on resource: disk";
 * "" without a reason. */
static const char *read_words(char out[224], dl_json_value object)
{
    char reason[64], message[256];
    dl_rest_text(reason, sizeof reason, object, "reason");
    dl_rest_message(message, sizeof message, object, "message");
    snprintf(out, 224, "%s%s%.150s", reason, *reason && *message ? ": " : "",
             *reason ? message : "");
    return out;
}

/* The container of the pod has ended. StartError is that of containerd, and ContainerCannotRun that
 * of Docker: the image lacks the program, for example. The message of another end is the replica's
 * own. */
static void set_container(dl_job *job, dl_json_value end, int code)
{
    char reason[64], words[224];
    dl_rest_text(reason, sizeof reason, end, "reason");
    if (!strcmp(reason, OOM))
        dl_job_set(job, DL_JOB_FAILED, -1, OOM ": it used more than launch.memory");
    else if (!strcmp(reason, "StartError") || !strcmp(reason, "ContainerCannotRun"))
        dl_job_set(job, DL_JOB_FAILED, code, "%s", read_words(words, end));
    else
        dl_cloud_set_ended(job, code);
}

/* The index has failed. Its pod has the exit code, unless it was removed or never started: then the
 * replica is LOST, as it may have been killed. After the deadline or for lack of memory it was
 * killed as well, so those reasons come before the exit code, which would mean LOST. A pod that the
 * cluster has killed or refused has words about that. Another start does not cure a lack of memory,
 * unless the node evicted the pod. */
static void set_failed(dl_job *job, dl_json_value kube_job, dl_json_value pod)
{
    char why[128], words[224], target[128], reason[64];
    uint64_t code;
    const dl_json_value end = dl_json_get(container_state(pod), "terminated");
    const bool has_code =
        end.type == DL_JSON_OBJECT && !dl_json_read_u64(&code, end, "exitCode", 255);
    const bool is_killed = !has_code || code == 128 + SIGKILL || code == 128 + SIGTERM;
    const bool is_oom = strcmp(dl_rest_text(reason, sizeof reason, end, "reason"), OOM) == 0;
    const bool is_evicted =
        *condition(target, pod, "DisruptionTarget") ||
        strcmp(dl_rest_text(reason, sizeof reason, pod, "status.reason"), "Evicted") == 0;
    condition(why, kube_job, "Failed");
    if (!*read_words(words, dl_json_get(pod, "status")) && *target)
        snprintf(words, sizeof words, "the cluster took its pod away: %s", target);
    if (strcmp(why, "DeadlineExceeded") == 0)
        dl_job_set(job, DL_JOB_FAILED, -1, "launch.timeout is over");
    else if (*words && (is_oom ? is_evicted : is_killed))
        dl_job_set(job, DL_JOB_LOST, -1, "%s", words);
    else if (has_code)
        set_container(job, end, (int)code);
    else
        dl_job_set(job, DL_JOB_LOST, -1, "its pod is gone%s%.100s", *why ? ": " : "", why);
}

/* Before the container exists the condition PodScheduled says why no node was found. */
void dl_k8s_set_waiting(dl_job *job, dl_json_value pod)
{
    char reason[64], message[256] = "", type[64];
    const dl_json_value waiting = dl_json_get(container_state(pod), "waiting");
    dl_rest_text(reason, sizeof reason, waiting, "reason");
    dl_rest_message(message, sizeof message, waiting, "message");
    if (*reason) {
        dl_job_set(job, DL_JOB_STARTING, -1, "%s%s%.180s", reason, *message ? ": " : "", message);
        return;
    }
    for (dl_json_iter it = dl_json_each(dl_rest_at(pod, "status.conditions")); dl_json_next(&it);)
        if (!strcmp(dl_rest_text(type, sizeof type, it.value, "type"), "PodScheduled"))
            dl_rest_message(message, sizeof message, it.value, "message");
    dl_job_set(job, DL_JOB_PENDING, -1, "%.200s", message);
}

/* The Job has not listed the index as over, so the state is at most RUNNING, whatever the pod
 * says. */
static void set_by_pod(dl_job *job, dl_json_value kube_job, dl_json_value pod)
{
    char phase[64], node[128], why[128];
    dl_rest_text(phase, sizeof phase, pod, "status.phase");
    dl_rest_text(node, sizeof node, pod, "spec.nodeName");
    if (pod.type == DL_JSON_MISSING)
        dl_job_set(job, DL_JOB_PENDING, -1, "%s",
                   *condition(why, kube_job, "Suspended") ? "suspended: waits for its queue" : "");
    else if (!strcmp(phase, "Pending"))
        dl_k8s_set_waiting(job, pod);
    else if (!strcmp(phase, "Running") && *condition(why, pod, "DisruptionTarget"))
        dl_job_set(job, DL_JOB_RUNNING, -1, "on %s; the cluster takes its pod away: %s", node, why);
    else if (!strcmp(phase, "Running"))
        dl_job_set(job, DL_JOB_RUNNING, -1, "on %s", node);
    else if (!strcmp(phase, "Succeeded") || !strcmp(phase, "Failed"))
        dl_job_set(job, DL_JOB_RUNNING, -1, "its pod has ended, the Job does not say so yet");
    else if (!strcmp(phase, "Unknown"))
        dl_job_set_silent(job, "the node %s does not answer the cluster", node);
    else {
        dl_job_set_silent(job, "its pod is in phase %.60s%s", phase,
                          *phase ? ", which is not known here" : "without a name");
    }
}

/* The lists of the Job come first. A Job that failed as a whole, after its deadline for example,
 * fails all indexes that had not completed. */
void dl_k8s_set(dl_job *job, uint32_t index, dl_json_value kube_job, dl_json_value pods)
{
    char completed[INDEX_LIST], failed[INDEX_LIST], why[128];
    const dl_json_value pod = dl_k8s_pod(pods, index);
    dl_rest_text(completed, sizeof completed, kube_job, "status.completedIndexes");
    dl_rest_text(failed, sizeof failed, kube_job, "status.failedIndexes");
    job->silent = false;
    if (dl_k8s_lists_index(completed, index))
        dl_job_set(job, DL_JOB_SUCCEEDED, 0, "exit code 0");
    else if (dl_k8s_lists_index(failed, index) || *condition(why, kube_job, "Failed"))
        set_failed(job, kube_job, pod);
    else
        set_by_pod(job, kube_job, pod);
}
