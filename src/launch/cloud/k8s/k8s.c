/* k8s.c - replicas as pods of Indexed Jobs of Kubernetes (batch/v1), by its REST API. With
 * launch.k8s_kind = "RayJob" they are RayJobs of KubeRay, see k8s_ray.h.
 *
 * All ranks of a generation that start together are one Job, diloco-<run>-g<generation>, whose
 * index is the rank. Ranks that start later are Jobs of one index each, under the replica's name.
 * The id of a replica is "<Job>/<index>". Names are unique in a namespace, so a name is created
 * once. Secrets are in one Secret of the run, which is removed when every replica is over.
 *
 * A poll costs two requests for each Job, whatever the number of its replicas: the Job, and its
 * pods by label. The objects themselves are written and read in k8s_job.c. */
#include "base/clock.h"
#include "launch/cloud/k8s/k8s_calls.h"
#include "launch/cloud/k8s/k8s_events.h"
#include "launch/cloud/k8s/k8s_job.h"
#include "launch/cloud/k8s/k8s_output.h"
#include "launch/cloud/k8s/k8s_ray.h"
#include "launch/cloud/k8s/k8s_ready.h"
#include "launch/cloud/k8s/kubeconfig.h"
#include "launch/executor_rows.h"

#include <stdlib.h>
#include <string.h>

/* The longest time that a cancel spends on the output of one Job's pods. Their machines are paid
 * for meanwhile. */
#define KEEP_TIME (60 * DL_SECOND)

/* Paths below the API server's address; %s is the namespace. It is not escaped: dl_kube_open
 * accepts no namespace with characters that a URL changes. */
#define JOBS  "/apis/batch/v1/namespaces/%s/jobs"
#define PODS  "/api/v1/namespaces/%s/pods"
#define GANGS "/apis/scheduling.volcano.sh/v1beta1/namespaces/%s/podgroups"

/* ---- ids */

/* "<Job>/<index>" in its two parts. Without a '/' the index is 0. */
static void split_id(char name[DL_JOB_NAME_MAX + 1], uint32_t *index, const char *id)
{
    const size_t len = strcspn(id, "/");
    snprintf(name, DL_JOB_NAME_MAX + 1, "%.*s", (int)len, id);
    *index = id[len] ? (uint32_t)strtoul(id + len + 1, NULL, 10) : 0;
}

/* The ids that this replica can have: two that create_group gives, and the name of its RayJob. No
 * other object of the namespace may be read or deleted. */
static bool is_id(const dl_job *job)
{
    char alone[DL_JOB_NAME_MAX + 16], among[DL_JOB_NAME_MAX + 16];
    const int begin = (int)(strstr(job->name, "-r") - job->name); /* diloco-<run>, run in hex */
    snprintf(alone, sizeof alone, "%s/0", job->name);
    snprintf(among, sizeof among, "%.*s-g%u/%u", begin, job->name, job->generation, job->rank);
    return !strcmp(job->id, alone) || !strcmp(job->id, among) || !strcmp(job->id, job->name);
}

/* ---- creating */

/* Volcano needs the PodGroup before the pods that name it. */
static diloco_status create_pod_group(dl_rest *rest, const dl_k8s_group *group)
{
    dl_rest_call call;
    dl_rest_call_init(&call, "POST", "the PodGroup of Volcano");
    diloco_status status = dl_rest_path(&call, GANGS, rest->project);
    dl_k8s_put_pod_group(&call.json, rest->spec, group);
    if (!status) status = dl_k8s_post(rest, &call, group->name, false);
    dl_rest_call_deinit(&call);
    return status;
}

/* Create one Job, and set the ids of its replicas once the API server has it. A Job of an earlier
 * launch gives the same ids. */
static diloco_status create_group(dl_rest *rest, const dl_k8s_group *group)
{
    dl_rest_call call;
    if (strcmp(rest->spec->config->launch_gang, "volcano") == 0)
        DL_TRY(create_pod_group(rest, group));
    dl_rest_call_init(&call, "POST", group->name);
    diloco_status status = dl_rest_path(&call, JOBS, rest->project);
    if (!status) status = dl_k8s_put_job(&call.json, rest->spec, group);
    if (!status) status = dl_k8s_post(rest, &call, group->name, false);
    dl_rest_call_deinit(&call);
    for (size_t i = 0; !status && !rest->spec->dry && i < group->n; i++)
        snprintf(group->jobs[i]->id, sizeof group->jobs[i]->id, "%s/%zu", group->name, i);
    return status;
}

/* Are these the ranks 0 to n - 1? */
static bool is_whole(dl_job *const *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (jobs[i]->rank != i) return false;
    return n > 1;
}

/* The name of one Job for all ranks of a generation. */
static void group_name(char out[DL_JOB_NAME_MAX + 1], const dl_launch_spec *spec,
                       uint32_t generation)
{
    snprintf(out, DL_JOB_NAME_MAX + 1, "diloco-%.8s-g%u", spec->run, generation);
}

/* One Job for the ranks 0 to n - 1; otherwise a Job for each, since the indexes of a Job begin with
 * 0. */
static diloco_status create_groups(dl_rest *rest, dl_job *const *jobs, size_t n)
{
    dl_k8s_group group = {.jobs = jobs, .n = n};
    if (is_whole(jobs, n)) {
        group_name(group.name, rest->spec, jobs[0]->generation);
        return create_group(rest, &group);
    }
    for (size_t i = 0; i < n; i++) {
        group = (dl_k8s_group){.jobs = jobs + i, .n = 1};
        memcpy(group.name, jobs[i]->name, sizeof group.name);
        DL_TRY(create_group(rest, &group));
    }
    return DILOCO_OK;
}

/* The Secret comes before the pods that read it. */
static diloco_status launch_jobs(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_rest rest = {.name = NULL};
    dl_job **list = calloc(n, sizeof *list);
    if (!list) return dl_fail(DILOCO_ENOMEM, "out of memory for the replicas");
    for (size_t i = 0; i < n; i++)
        list[i] = &jobs[i];
    diloco_status status = dl_kube_open(&rest, spec);
    if (!status) status = dl_k8s_check_ready(&rest);
    if (!status && *spec->secrets) status = dl_k8s_create_secret(&rest);
    if (!status) status = create_groups(&rest, list, n);
    dl_rest_deinit(&rest);
    free(list);
    return status;
}

/* ---- looking */

static diloco_status get_job(dl_rest *rest, dl_rest_response *response, const char *name)
{
    return dl_k8s_get(rest, response, "/apis/batch/v1/namespaces/", "/jobs/", name);
}

/* Set the id of a replica if the Job `name` has its index. */
static diloco_status find_in(dl_rest *rest, dl_job *job, const char *name, uint32_t index)
{
    uint64_t completions = 0;
    dl_rest_response response;
    DL_TRY(get_job(rest, &response, name));
    const dl_json_value value = dl_rest_at(response.json, "spec.completions");
    if (value.type == DL_JSON_NUMBER) (void)!dl_json_as_u64(&completions, value, DL_JOBS_MAX);
    if (index < completions) snprintf(job->id, sizeof job->id, "%s/%u", name, index);
    dl_buf_deinit(&response.text);
    return DILOCO_OK;
}

/* create_groups has made one Job for all ranks of the generation, or one for each. */
static diloco_status find_jobs(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    char all[DL_JOB_NAME_MAX + 1];
    dl_rest rest = {.name = NULL};
    diloco_status status = dl_kube_open(&rest, spec);
    for (size_t i = 0; !status && i < n; i++) {
        group_name(all, spec, jobs[i].generation);
        status = find_in(&rest, &jobs[i], jobs[i].name, 0);
        if (!status && !*jobs[i].id) status = find_in(&rest, &jobs[i], all, jobs[i].rank);
    }
    dl_rest_deinit(&rest);
    return status;
}

/* The Job controller labels each pod with the name of its Job. */
static diloco_status get_pods(dl_rest *rest, dl_rest_response *response, const char *name)
{
    return dl_k8s_get(rest, response, "/api/v1/namespaces/", "/pods?labelSelector=job-name%3D",
                      name);
}

/* Set the states of all jobs of the list that belong to the Job `name`. The Job is read before its
 * pods. A pod that ends in between counts as running until the next poll. */
static diloco_status poll_group(dl_rest *rest, dl_job *jobs, size_t n, const char *name)
{
    char other[DL_JOB_NAME_MAX + 1], why[256] = "";
    uint32_t index;
    bool suspended = false;
    dl_rest_response job, pods;
    DL_TRY(get_job(rest, &job, name));
    if (dl_json_read_bool(&suspended, dl_json_get(job.json, "spec"), "suspend")) suspended = false;
    const diloco_status status = get_pods(rest, &pods, name);
    for (size_t i = 0; !status && i < n; i++) {
        split_id(other, &index, jobs[i].id);
        if (strcmp(other, name) != 0) continue;
        jobs[i].silent = false;
        if (job.status == 404)
            dl_job_set(&jobs[i], DL_JOB_CANCELLED, -1, "its Job was deleted");
        else
            dl_k8s_set(&jobs[i], index, job.json, pods.json);
        if (!suspended && dl_k8s_pod(pods.json, index).type == DL_JSON_MISSING)
            dl_k8s_explain(&jobs[i], why, rest, name);
    }
    dl_buf_deinit(&job.text);
    if (!status) dl_buf_deinit(&pods.text);
    return status;
}

/* Is this the first replica of its Job in the list? Its Job's name goes to `name`. Quadratic in the
 * length of the list, which DL_JOBS_MAX bounds. */
static bool is_first(const dl_job *jobs, size_t i, char name[DL_JOB_NAME_MAX + 1])
{
    char other[DL_JOB_NAME_MAX + 1];
    uint32_t index;
    split_id(name, &index, jobs[i].id);
    for (size_t k = 0; k < i; k++) {
        split_id(other, &index, jobs[k].id);
        if (strcmp(other, name) == 0) return false;
    }
    return true;
}

/* `jobs` [n] is the whole list; the function handles those that belong to the Job `name`. */
typedef diloco_status (*group_fn)(dl_rest *rest, dl_job *jobs, size_t n, const char *name);

/* Call fn once for each Job that the list has replicas of. Without `all` the first error ends the
 * calls. Returns the first error. */
static diloco_status each_group(const dl_launch_spec *spec, dl_job *jobs, size_t n, group_fn fn,
                                bool all)
{
    char name[DL_JOB_NAME_MAX + 1], why[1024] = "";
    dl_rest rest = {.name = NULL};
    diloco_status first = dl_kube_open(&rest, spec);
    if (first) n = 0, snprintf(why, sizeof why, "%s", diloco_error_text());
    for (size_t i = 0; i < n && (all || !first); i++) {
        if (!is_first(jobs, i, name)) continue;
        const diloco_status status = fn(&rest, jobs, n, name);
        if (!status || first) continue;
        first = status;
        snprintf(why, sizeof why, "%s", diloco_error_text());
    }
    dl_rest_deinit(&rest);
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}

static diloco_status poll_jobs(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    return each_group(spec, jobs, n, poll_group, false);
}

/* ---- stopping */

/* Is this index of the Job in the list? */
static bool is_among(const dl_job *jobs, size_t n, const char *name, uint32_t index)
{
    char other[DL_JOB_NAME_MAX + 1];
    uint32_t k;
    for (size_t i = 0; i < n; i++) {
        split_id(other, &k, jobs[i].id);
        if (k == index && strcmp(other, name) == 0) return true;
    }
    return false;
}

/* The number of indexes of a Job; 0 if it does not exist. */
static uint32_t count_indexes(dl_json_value kube_job)
{
    uint64_t completions = 0;
    const dl_json_value value = dl_rest_at(kube_job, "spec.completions");
    if (value.type == DL_JSON_NUMBER) (void)!dl_json_as_u64(&completions, value, DL_JOBS_MAX);
    return (uint32_t)completions;
}

/* Which indexes of the Job are not over: some of the list, some others? */
static void find_unfinished(bool *ours, bool *others, dl_json_value kube_job, const dl_job *jobs,
                            size_t n, const char *name)
{
    *ours = *others = false;
    for (uint32_t i = 0; i < count_indexes(kube_job); i++) {
        if (dl_k8s_is_over(kube_job, i)) continue;
        if (is_among(jobs, n, name, i))
            *ours = true;
        else
            *others = true;
    }
}

/* The name of the replica of an index: that of the Job, or with its rank if the Job has all ranks
 * of a generation, diloco-<run>-g<generation>. */
static void name_replica(char out[DL_JOB_NAME_MAX + 1], const char *kube_job, uint32_t index)
{
    const char *end = strrchr(kube_job, '-');
    if (!end || strstr(kube_job, "-r"))
        snprintf(out, DL_JOB_NAME_MAX + 1, "%s", kube_job);
    else
        snprintf(out, DL_JOB_NAME_MAX + 1, "%.*s-r%u%.16s", (int)(end - kube_job), kube_job, index,
                 end);
}

/* Keep the output of pods that are about to be deleted: with `whole` of all n_indexes of the Job,
 * else of those in the list. After an error the next pod follows. Returns the first error. */
static diloco_status keep_output(dl_rest *rest, dl_json_value pods, const dl_job *jobs, size_t n,
                                 const char *name, uint32_t n_indexes, bool whole)
{
    char replica[DL_JOB_NAME_MAX + 1], why[1024] = "";
    const dl_time until = dl_time_after(dl_clock_now(), KEEP_TIME);
    diloco_status first = DILOCO_OK;
    for (uint32_t i = 0; i < n_indexes; i++) {
        if (!whole && !is_among(jobs, n, name, i)) continue;
        name_replica(replica, name, i);
        diloco_status status = dl_k8s_output_keep(rest, dl_k8s_pod(pods, i), replica, until);
        const bool late = status == DILOCO_ETIMEDOUT;
        if (late) status = dl_fail(status, "%s and later ones: a minute is over", replica);
        if (status && !first) {
            first = status;
            snprintf(why, sizeof why, "%s", diloco_error_text());
        }
        if (late) break;
    }
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}

/* Delete the pods of these replicas and leave the Job to the others. Pods that have ended are kept:
 * their output would be lost with them. After an error the next pod follows. */
static diloco_status delete_pods(dl_rest *rest, dl_json_value pods, const dl_job *jobs, size_t n,
                                 const char *name)
{
    char other[DL_JOB_NAME_MAX + 1], pod[256], phase[64], path[DL_REST_BASE + 512], why[1024] = "";
    uint32_t index;
    diloco_status first = DILOCO_OK;
    for (size_t i = 0; i < n; i++) {
        split_id(other, &index, jobs[i].id);
        if (strcmp(other, name) != 0) continue;
        const dl_json_value found = dl_k8s_pod(pods, index);
        dl_rest_text(phase, sizeof phase, found, "status.phase");
        if (!strcmp(phase, "Succeeded") || !strcmp(phase, "Failed")) continue; /* it has output */
        dl_rest_text(pod, sizeof pod, found, "metadata.name");
        snprintf(path, sizeof path, PODS "/%s", rest->project, pod);
        const diloco_status status = *pod ? dl_k8s_remove(rest, pod, path) : DILOCO_OK;
        if (!status || first) continue;
        first = status;
        snprintf(why, sizeof why, "%s", diloco_error_text());
    }
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}

/* Delete the whole Job when no other index of it still runs, else the pods of these replicas. By
 * default the deletion of a Job of batch/v1 leaves its pods running, hence propagationPolicy. */
static diloco_status delete_group(dl_rest *rest, dl_json_value pods, const dl_job *jobs, size_t n,
                                  const char *name, bool whole)
{
    char path[DL_REST_BASE + 256];
    if (!whole) return delete_pods(rest, pods, jobs, n, name);
    snprintf(path, sizeof path, JOBS "/%s?propagationPolicy=Background", rest->project, name);
    return dl_k8s_remove(rest, name, path);
}

/* Mark the replicas of a Job as stopped, beside an error about their output. */
static void set_stopped(dl_job *jobs, size_t n, const char *name)
{
    char other[DL_JOB_NAME_MAX + 1];
    uint32_t index;
    for (size_t i = 0; i < n; i++) {
        split_id(other, &index, jobs[i].id);
        if (strcmp(other, name) == 0) dl_job_set(&jobs[i], DL_JOB_CANCELLED, -1, "stopped");
    }
}

/* Stop these replicas of a Job. A Job whose indexes are all over is kept, for its output. A machine
 * is stopped even if its output cannot be kept. That is reported as an error that may pass, because
 * the next cancel finds nothing to stop. */
static diloco_status cancel_group(dl_rest *rest, dl_job *jobs, size_t n, const char *name)
{
    char why[512] = "";
    bool ours, others;
    dl_rest_response job, pods = {.json = {.type = DL_JSON_MISSING}};
    DL_TRY(get_job(rest, &job, name));
    const uint32_t n_indexes = count_indexes(job.json);
    find_unfinished(&ours, &others, job.json, jobs, n, name);
    dl_buf_deinit(&job.text);
    if (!ours) return DILOCO_OK;
    const diloco_status listed = get_pods(rest, &pods, name);
    if (listed && others) return listed; /* no pod is known, so none can be deleted */
    diloco_status kept = listed;
    if (!kept) kept = keep_output(rest, pods.json, jobs, n, name, n_indexes, !others);
    if (kept) snprintf(why, sizeof why, "%s", diloco_error_text());
    const diloco_status status = delete_group(rest, pods.json, jobs, n, name, !others);
    if (!listed) dl_buf_deinit(&pods.text);
    if (status || !kept) return status;
    set_stopped(jobs, n, name);
    return dl_fail(DILOCO_EUNREACHABLE, "%s was stopped, and its output is not kept: %.400s", name,
                   why);
}

static diloco_status cancel_jobs(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    return each_group(spec, jobs, n, cancel_group, true);
}

/* Errors are ignored: at worst an unused Secret remains in the namespace. A DELETE with a selector
 * removes the PodGroups of all generations at once. */
static void finish(const dl_launch_spec *spec)
{
    char path[DL_REST_BASE + 256];
    dl_rest rest = {.name = NULL};
    if (!dl_kube_open(&rest, spec)) {
        dl_k8s_remove_secret(&rest);
        snprintf(path, sizeof path, GANGS "?labelSelector=diloco%%2Frun%%3D%.8s", rest.project,
                 spec->run);
        if (!strcmp(spec->config->launch_gang, "volcano"))
            (void)!dl_k8s_remove(&rest, "the PodGroups of the run", path);
    }
    dl_rest_deinit(&rest);
}

/* ---- logs */

/* The name of the newest pod of a replica. Returns DILOCO_ENOENT if it has none. */
static diloco_status find_pod(char out[256], dl_rest *rest, const dl_job *job)
{
    char name[DL_JOB_NAME_MAX + 1];
    uint32_t index;
    dl_rest_response pods;
    split_id(name, &index, job->id);
    DL_TRY(get_pods(rest, &pods, name));
    dl_rest_text(out, 256, dl_k8s_pod(pods.json, index), "metadata.name");
    dl_buf_deinit(&pods.text);
    return *out ? DILOCO_OK : dl_fail(DILOCO_ENOENT, "%s has no pod", job->name);
}

/* A replica whose pod a cancel has deleted has the output that the cancel kept. The pod may be
 * deleted after it was found. */
static diloco_status job_logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                              dl_job_line_fn fn, void *user)
{
    char pod[256];
    dl_rest rest = {.name = NULL};
    diloco_status status = dl_kube_open(&rest, spec);
    if (!status) status = find_pod(pod, &rest, job);
    if (!status) status = dl_k8s_output_read(&rest, pod, job->name, follow, fn, user);
    if (status == DILOCO_ENOENT) status = dl_k8s_output_kept(spec, job->name, fn, user);
    dl_rest_deinit(&rest);
    return status;
}

/* ---- the kinds of objects */

/* A kind of object that replicas are started as. The functions are those of dl_executor, and
 * `check` refuses options that the kind has no use for; NULL: it has a use for all. */
typedef struct kind {
    const char *name;
    diloco_status (*check)(const dl_launch_spec *spec);
    diloco_status (*launch)(const dl_launch_spec *spec, dl_job *jobs, size_t n);
    diloco_status (*find)(const dl_launch_spec *spec, dl_job *jobs, size_t n);
    diloco_status (*poll)(const dl_launch_spec *spec, dl_job *jobs, size_t n);
    diloco_status (*logs)(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user);
    diloco_status (*cancel)(const dl_launch_spec *spec, dl_job *jobs, size_t n);
} kind;

/* The first one is the default of launch.k8s_kind. The order is that of kind_of. */
static const kind kinds[] = {
    {"Job", NULL, launch_jobs, find_jobs, poll_jobs, job_logs, cancel_jobs},
    {"RayJob", dl_k8s_ray_check, dl_k8s_ray_launch, dl_k8s_ray_find, dl_k8s_ray_poll,
     dl_k8s_ray_logs, dl_k8s_ray_cancel},
};

/* The kind of launch.k8s_kind, or NULL. */
static const kind *find_kind(const dl_launch_spec *spec)
{
    const char *name = spec->config->launch_k8s_kind;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!*name || !strcmp(name, kinds[i].name)) return &kinds[i];
    return NULL;
}

static diloco_status check_kind(const dl_launch_spec *spec)
{
    const kind *k = find_kind(spec);
    if (k) return k->check ? k->check(spec) : DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "launch.k8s_kind = \"%.30s\": it is Job or RayJob",
                   spec->config->launch_k8s_kind);
}

static diloco_status launch(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    DL_TRY(check_kind(spec));
    return find_kind(spec)->launch(spec, jobs, n);
}

static diloco_status find(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    DL_TRY(check_kind(spec));
    return find_kind(spec)->find(spec, jobs, n);
}

/* The kind of a replica that was launched, by its id: launch.k8s_kind may have changed since. Only
 * the id of a Job has an index. */
static const kind *kind_of(const dl_job *job)
{
    return &kinds[strchr(job->id, '/') ? 0 : 1];
}

/* How many jobs at the begin of the list have the kind of the first one? */
static size_t count_alike(const dl_job *jobs, size_t n)
{
    size_t i = 1;
    while (i < n && kind_of(&jobs[i]) == kind_of(jobs))
        i++;
    return i;
}

static diloco_status poll(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    for (size_t i = 0, alike; i < n; i += alike) {
        alike = count_alike(jobs + i, n - i);
        DL_TRY(kind_of(&jobs[i])->poll(spec, jobs + i, alike));
    }
    return DILOCO_OK;
}

static diloco_status cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    char why[1024] = "";
    diloco_status first = DILOCO_OK;
    for (size_t i = 0, alike; i < n; i += alike) {
        alike = count_alike(jobs + i, n - i);
        const diloco_status status = kind_of(&jobs[i])->cancel(spec, jobs + i, alike);
        if (!status || first) continue;
        first = status;
        snprintf(why, sizeof why, "%s", diloco_error_text());
    }
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}

static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    return kind_of(job)->logs(spec, job, follow, fn, user);
}

/* Kueue's queue is a label on the Job, and Volcano's a member of the PodGroup. Without either
 * Kubernetes would ignore launch.queue. launch.endpoint is the address of one cluster, so it leaves
 * no choice of a context. */
static diloco_status check(const dl_launch_spec *spec)
{
    const dl_config *config = spec->config;
    const char *gang = config->launch_gang;
    DL_TRY(
        dl_cloud_need(config->launch_image, "launch.image", "k8s", "registry.example/diloco:0.2"));
    DL_TRY(check_kind(spec));
    if (config->launch_context[0] && config->launch_endpoint[0])
        return dl_fail(DILOCO_EINVAL,
                       "launch.context has no effect with launch.endpoint: leave one "
                       "of them out");
    if (*gang && strcmp(gang, "kueue") && strcmp(gang, "volcano"))
        return dl_fail(DILOCO_EINVAL, "launch.gang = \"%.30s\": it is kueue or volcano", gang);
    if (!strcmp(gang, "kueue"))
        return dl_cloud_need(config->launch_queue, "launch.queue", "launch.gang=kueue", "QUEUE");
    if (config->launch_queue[0] && !*gang)
        return dl_fail(DILOCO_EINVAL, "launch.queue: Kubernetes itself has no queues; set "
                                      "launch.gang to kueue or volcano");
    return DILOCO_OK;
}

/* The API server creates a name once, hence exactly_once. launch.grace is the pod's
 * terminationGracePeriodSeconds. */
const dl_executor dl_executor_k8s = {
    .name = "k8s",
    .needs =
        "a cluster of 1.29 or later: kubectl's context, a pod's service account, or "
        "launch.endpoint of kubectl proxy; launch.image. For RayJobs KubeRay 1.2 or later, and "
        "Ray in the image",
    .tested = "fakes of this project with the semantics of Indexed Jobs and of KubeRay's RayJobs; "
              "objects of Kubernetes itself, and the pods of RayJobs, fit the OpenAPI schemas of "
              "Kubernetes 1.29 to 1.37. Not run against a real cluster",
    .options = "|image|cpus|gpus|gpu_type|memory|disk|machine|project|role|queue|gang|endpoint|"
               "context|k8s_kind|",
    .caps = {.api = "v1 and batch/v1 of Kubernetes 1.29 or later; ray.io/v1; "
                    "scheduling.volcano.sh/v1beta1; Kueue's of the cluster",
             .net = "private-ip",
             .rank_env = "argument, DILOCO_RANK from the completion index",
             .log_api = "log of the pod, or of Ray's dashboard; after a cancel launch.dir",
             .restart = "of a Job's pods that the cluster evicts, preempts or loses",
             .secrets = "a Secret of the run",
             .price = "the part of a node that it requests: launch.machine, launch.gpus, "
                      "launch.gpu_type, launch.cpus, launch.memory, launch.disk",
             .spot = true,
             .gang = true,
             .in_image = true,
             .exactly_once = true},
    .poll_s = 5,
    .check = check,
    .launch = launch,
    .find = find,
    .is_id = is_id,
    .poll = poll,
    .logs = logs,
    .cancel = cancel,
    .finish = finish,
};
