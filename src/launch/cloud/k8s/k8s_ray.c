/* k8s_ray.c - see k8s_ray.h. The objects themselves are written and read in k8s_ray_job.c.
 *
 * A RayJob has one pod, the head of a Ray cluster without workers. KubeRay starts Ray in it, and
 * submits the replica's command to Ray's job server by HTTP. So the image needs Ray, and the pod
 * has no command of ours. Ray runs the command as a child of its job server, on the head.
 *
 * A head that is lost is not replaced (KubeRay 1.6 or later), and its replica is LOST: diloco
 * launch starts the next generation. Until KubeRay says so the replica counts as silent.
 *
 * Output is in a file of the head. Ray's dashboard has it as plain text, and the API server's proxy
 * leads to the dashboard. */
#include "launch/cloud/k8s/k8s_ray.h"

#include "base/clock.h"
#include "launch/cloud/k8s/k8s_calls.h"
#include "launch/cloud/k8s/k8s_output.h"
#include "launch/cloud/k8s/k8s_ray_job.h"
#include "launch/cloud/k8s/k8s_ready.h"
#include "launch/cloud/k8s/kubeconfig.h"

#include <stdlib.h>
#include <string.h>

/* The longest time that a cancel spends on the output of all its replicas. */
#define KEEP_TIME (60 * DL_SECOND)
/* Periods of polls without output after which a log that is followed is read again. */
enum { QUIET_POLLS = 4 };

/* Paths below the API server's address; %s is the namespace, see k8s.c. */
#define RAY_JOBS "/apis/ray.io/v1/namespaces/%s/rayjobs"

/* ---- creating */

static diloco_status create(dl_rest *rest, dl_job *job)
{
    dl_rest_call call;
    dl_rest_call_init(&call, "POST", job->name);
    diloco_status status = dl_rest_path(&call, RAY_JOBS, rest->project);
    if (!status) status = dl_k8s_put_ray_job(&call.json, rest->spec, job);
    if (!status) status = dl_k8s_post(rest, &call, job->name, false);
    if (!status && !rest->spec->dry) snprintf(job->id, sizeof job->id, "%s", job->name);
    dl_rest_call_deinit(&call);
    return status;
}

diloco_status dl_k8s_ray_check(const dl_launch_spec *spec)
{
    if (!spec->config->launch_gang[0]) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "launch.gang = \"%.30s\" with launch.k8s_kind = \"RayJob\": each replica is a "
                   "RayJob, and KubeRay has a gang for each RayJob alone, so replicas would not "
                   "start together. Leave one of the two options out",
                   spec->config->launch_gang);
}

/* The Secret comes before the pods that read it. */
diloco_status dl_k8s_ray_launch(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_rest rest = {.name = NULL};
    diloco_status status = dl_kube_open(&rest, spec);
    if (!status) status = dl_k8s_check_ready(&rest);
    if (!status && *spec->secrets) status = dl_k8s_create_secret(&rest);
    for (size_t i = 0; !status && i < n; i++)
        status = create(&rest, &jobs[i]);
    dl_rest_deinit(&rest);
    return status;
}

/* ---- looking */

static diloco_status get_ray_job(dl_rest *rest, dl_rest_response *response, const char *name)
{
    return dl_k8s_get(rest, response, "/apis/ray.io/v1/namespaces/", "/rayjobs/", name);
}

/* Set `out` to the name of the RayJob's cluster; "" if it has none. The name becomes part of a
 * path, so only characters of names of Kubernetes are accepted. */
static const char *cluster_of(char out[DL_JOB_NAME_MAX + 1], dl_json_value ray_job)
{
    dl_rest_text(out, DL_JOB_NAME_MAX + 1, ray_job, "status.rayClusterName");
    if (!dl_id_is_plain(out, "-.")) out[0] = '\0';
    return out;
}

/* The pod of the head is read too, unless the RayJob is over. KubeRay labels that pod with the name
 * of its cluster. */
static diloco_status set_by_pod(dl_rest *rest, dl_job *job, dl_json_value ray_job)
{
    char cluster[DL_JOB_NAME_MAX + 1], label[DL_JOB_NAME_MAX + 64];
    dl_rest_response pods;
    dl_k8s_ray_set(job, ray_job, (dl_json_value){.type = DL_JSON_MISSING});
    if (dl_job_is_over(job->state) || !*cluster_of(cluster, ray_job)) return DILOCO_OK;
    snprintf(label, sizeof label, "%s%%2Cray.io%%2Fnode-type%%3Dhead", cluster);
    DL_TRY(dl_k8s_get(rest, &pods, "/api/v1/namespaces/", "/pods?labelSelector=ray.io%2Fcluster%3D",
                      label));
    dl_k8s_ray_set(job, ray_job, pods.json);
    dl_buf_deinit(&pods.text);
    return DILOCO_OK;
}

static diloco_status poll_one(dl_rest *rest, dl_job *job)
{
    dl_rest_response response;
    diloco_status status = DILOCO_OK;
    DL_TRY(get_ray_job(rest, &response, job->name));
    if (response.status == 404)
        dl_job_set(job, DL_JOB_CANCELLED, -1, "its RayJob was deleted"), job->silent = false;
    else
        status = set_by_pod(rest, job, response.json);
    dl_buf_deinit(&response.text);
    return status;
}

diloco_status dl_k8s_ray_poll(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_rest rest = {.name = NULL};
    diloco_status status = dl_kube_open(&rest, spec);
    for (size_t i = 0; !status && i < n; i++)
        status = poll_one(&rest, &jobs[i]);
    dl_rest_deinit(&rest);
    return status;
}

diloco_status dl_k8s_ray_find(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    dl_rest_response response;
    dl_rest rest = {.name = NULL};
    diloco_status status = dl_kube_open(&rest, spec);
    for (size_t i = 0; !status && i < n; i++) {
        if ((status = get_ray_job(&rest, &response, jobs[i].name))) break;
        if (response.status != 404) snprintf(jobs[i].id, sizeof jobs[i].id, "%s", jobs[i].name);
        dl_buf_deinit(&response.text);
    }
    dl_rest_deinit(&rest);
    return status;
}

/* ---- output */

/* Append the path of the dashboard of a RayJob's head. The service is KubeRay's. */
static diloco_status put_dashboard(dl_rest_call *call, const dl_rest *rest, const char *cluster)
{
    return dl_rest_path(call, "/api/v1/namespaces/%s/services/%s-head-svc:dashboard/proxy",
                        rest->project, cluster);
}

/* Set `node` to Ray's id of the node that has the output. Returns DILOCO_ENOENT if the head is
 * gone, or if the command has not been started. */
static diloco_status find_node(char node[DL_JOB_NAME_MAX + 1], dl_rest *rest, const char *cluster,
                               const char *name)
{
    dl_rest_call call;
    dl_rest_response response;
    if (!*cluster) return dl_fail(DILOCO_ENOENT, "%s has no head of Ray yet", name);
    dl_rest_call_init(&call, "GET", name);
    call.once = true;
    diloco_status status = put_dashboard(&call, rest, cluster);
    if (!status) status = dl_rest_path(&call, "/api/jobs/%s", name);
    if (!status) status = dl_rest_do(rest, &call, &response);
    if (!status) {
        dl_rest_text(node, DL_JOB_NAME_MAX + 1, response.json, "driver_node_id");
        if (!dl_rest_is_good(&response))
            status = dl_rest_refused(rest, &call, &response);
        else if (!dl_id_is_plain(node, ""))
            status = dl_fail(DILOCO_ENOENT, "Ray has not started %s yet", name);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* Write the call for the replica's output. `media` is "file" for what there is now, or "stream" for
 * all that follows, too. n_lines of -1 is all lines. By default Ray would end a file after 30 s. */
static diloco_status put_output(dl_rest_call *call, dl_rest *rest, const char *cluster,
                                const char *node, const char *name, const char *media, int n_lines)
{
    DL_TRY(put_dashboard(call, rest, cluster));
    return dl_rest_path(call,
                        "/api/v0/logs/%s?node_id=%s&filename=job-driver-%s.log&lines=%d"
                        "&timeout=86400",
                        media, node, name, n_lines);
}

/* Reading the output of one replica, over several connections. */
typedef struct reading {
    dl_job_line_fn fn;
    void *user;
    size_t given, repeated; /* lines given so far, and those that this connection repeats */
} reading;

static diloco_status give(void *user, const char *line, size_t len)
{
    reading *r = user;
    if (r->repeated) {
        r->repeated--;
        return DILOCO_OK;
    }
    r->given++;
    return r->fn(r->user, line, len);
}

/* Ray sends a stream from its first line, and never ends it. So it ends here by silence. */
static diloco_status read_once(reading *r, dl_rest *rest, const char *cluster, const dl_job *job,
                               dl_time quiet)
{
    char node[DL_JOB_NAME_MAX + 1];
    dl_rest_call call;
    DL_TRY(find_node(node, rest, cluster, job->name));
    r->repeated = r->given;
    dl_rest_call_init(&call, "GET", job->name);
    call.once = true;
    call.quiet = quiet;
    call.quiet_ends = quiet > 0;
    diloco_status status =
        put_output(&call, rest, cluster, node, job->name, quiet ? "stream" : "file", -1);
    if (!status) status = dl_rest_lines(rest, &call, give, r);
    dl_rest_call_deinit(&call);
    return status;
}

/* A RayJob before a reading of its output. */
typedef struct seen {
    char cluster[DL_JOB_NAME_MAX + 1];
    bool begun, over;
} seen;

/* Returns DILOCO_ENOENT if the RayJob does not exist. */
static diloco_status look(seen *out, dl_rest *rest, const dl_job *job)
{
    dl_job now = *job;
    dl_rest_response response;
    DL_TRY(get_ray_job(rest, &response, job->name));
    const bool gone = response.status == 404;
    if (!gone) dl_k8s_ray_set(&now, response.json, (dl_json_value){.type = DL_JSON_MISSING});
    out->over = dl_job_is_over(now.state);
    out->begun = out->over || dl_k8s_ray_has_begun(response.json);
    cluster_of(out->cluster, response.json);
    dl_buf_deinit(&response.text);
    return gone ? dl_fail(DILOCO_ENOENT, "%s has no RayJob", job->name) : DILOCO_OK;
}

/* With `follow` the output is read until the replica has ended and all of it was given. Once the
 * output was read, a head that does not answer is waited for, as a launch does. */
static diloco_status read_output(reading *r, dl_rest *rest, const dl_job *job, bool follow)
{
    const double set_s = rest->spec->config->launch_poll_s;
    const dl_time quiet = QUIET_POLLS * dl_time_from_seconds(set_s > 0 ? set_s : 5);
    for (seen at = {.over = false};;) {
        const dl_time begin = dl_clock_now();
        DL_TRY(look(&at, rest, job));
        if (!at.begun && !follow)
            return dl_fail(DILOCO_EREFUSED, "Ray has not started %s yet", job->name);
        diloco_status status = DILOCO_OK;
        if (at.begun) status = read_once(r, rest, at.cluster, job, follow && !at.over ? quiet : 0);
        const bool silent = status == DILOCO_EUNREACHABLE && r->given && !at.over;
        if (!follow || at.over || (status && !silent)) return status;
        if (dl_clock_now() - begin < quiet) dl_clock_sleep(quiet);
    }
}

diloco_status dl_k8s_ray_logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                              dl_job_line_fn fn, void *user)
{
    dl_rest rest = {.name = NULL};
    reading r = {.fn = fn, .user = user};
    diloco_status status = dl_kube_open(&rest, spec);
    if (!status) status = read_output(&r, &rest, job, follow);
    if (status == DILOCO_ENOENT && !r.given) status = dl_k8s_output_kept(spec, job->name, fn, user);
    dl_rest_deinit(&rest);
    return status;
}

/* ---- stopping */

/* Keep the output of a replica whose RayJob is about to be deleted. A head that is gone, or a
 * command that was not started, has none. */
static diloco_status keep_output(dl_rest *rest, dl_json_value ray_job, const dl_job *job,
                                 dl_time until)
{
    char cluster[DL_JOB_NAME_MAX + 1], node[DL_JOB_NAME_MAX + 1];
    dl_rest_call call;
    if (!dl_k8s_ray_has_begun(ray_job)) return DILOCO_OK;
    if (dl_clock_now() >= until) return dl_fail(DILOCO_ETIMEDOUT, "a minute is over");
    diloco_status status = find_node(node, rest, cluster_of(cluster, ray_job), job->name);
    if (status) return status == DILOCO_ENOENT ? DILOCO_OK : status;
    dl_rest_call_init(&call, "GET", job->name);
    status = put_output(&call, rest, cluster, node, job->name, "file", DL_K8S_KEPT_LINES);
    if (!status) status = dl_k8s_output_keep_tail(rest, &call, job->name, until);
    dl_rest_call_deinit(&call);
    return status;
}

/* KubeRay stops the command and deletes the head with the RayJob. A machine is stopped even if its
 * output cannot be kept, see cancel_group in k8s.c. */
static diloco_status cancel_one(dl_rest *rest, dl_job *job, dl_time until)
{
    char path[DL_REST_BASE + 256], why[512] = "";
    dl_job now = *job;
    dl_rest_response response;
    DL_TRY(get_ray_job(rest, &response, job->name));
    diloco_status kept = DILOCO_OK;
    bool gone = response.status == 404;
    if (!gone) {
        dl_k8s_ray_set(&now, response.json, (dl_json_value){.type = DL_JSON_MISSING});
        gone = dl_job_is_over(now.state);
    }
    if (!gone) kept = keep_output(rest, response.json, job, until);
    if (kept) snprintf(why, sizeof why, "%s", diloco_error_text());
    dl_buf_deinit(&response.text);
    if (gone) return DILOCO_OK;
    snprintf(path, sizeof path, RAY_JOBS "/%s?propagationPolicy=Background", rest->project,
             job->name);
    DL_TRY(dl_k8s_remove(rest, job->name, path));
    if (!kept) return DILOCO_OK;
    dl_job_set(job, DL_JOB_CANCELLED, -1, "stopped");
    return dl_fail(DILOCO_EUNREACHABLE, "%s was stopped, and its output is not kept: %.400s",
                   job->name, why);
}

diloco_status dl_k8s_ray_cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    char why[1024] = "";
    dl_rest rest = {.name = NULL};
    const dl_time until = dl_time_after(dl_clock_now(), KEEP_TIME);
    diloco_status first = dl_kube_open(&rest, spec);
    if (first) n = 0, snprintf(why, sizeof why, "%s", diloco_error_text());
    for (size_t i = 0; i < n; i++) {
        const diloco_status status = cancel_one(&rest, &jobs[i], until);
        if (!status || first) continue;
        first = status;
        snprintf(why, sizeof why, "%s", diloco_error_text());
    }
    dl_rest_deinit(&rest);
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}
