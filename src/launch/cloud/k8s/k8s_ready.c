/* k8s_ready.c - see k8s_ready.h. */
#include "launch/cloud/k8s/k8s_ready.h"

#include "base/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The first minor version of Kubernetes 1 that has backoffLimitPerIndex without a feature gate. An
 * older API server drops that member without an error. The failures of all replicas would then
 * count against one limit of the Job. MINOR_LAST is the last one that tests/launch/fits_k8s.py
 * compares. */
enum { MINOR_MIN = 29, MINOR_LAST = 37 };

#define REVIEWS "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#define KUEUE   "/apis/kueue.x-k8s.io"
#define VOLCANO "/apis/scheduling.volcano.sh/v1beta1"
#define RAY     "/apis/ray.io/v1"

/* Values of launch.k8s_kind. */
#define JOB    "Job"
#define RAYJOB "RayJob"

/* ---- version */

/* Is this a version that is not known here: one before 1.29, or another major version? Both numbers
 * are texts, and some distributions add a suffix to the second: "29+". A text without a number is
 * not judged. */
static bool is_unknown(const char *major, const char *minor)
{
    char *end_major, *end_minor;
    const long first = strtol(major, &end_major, 10), second = strtol(minor, &end_minor, 10);
    if (end_major == major || end_minor == minor) return false;
    return first != 1 || second < MINOR_MIN;
}

/* Name a later version once. It is used, since check_served asks for the versions of its API. */
static void name_later(const char *major, const char *minor)
{
    static atomic_bool named;
    if (strtol(minor, NULL, 10) > MINOR_LAST && !atomic_exchange(&named, true))
        dl_log(DILOCO_LOG_WARN,
               "the cluster has Kubernetes %s.%s, later than 1.%d, the last one that was compared: "
               "it is used if it serves the API versions v1 and batch/v1",
               major, minor, MINOR_LAST);
}

/* Every user may read the version, unless the cluster's own rules forbid it. */
static diloco_status check_version(dl_rest *rest)
{
    char major[16], minor[16];
    dl_rest_call call;
    dl_rest_response response;
    dl_rest_call_init(&call, "GET", "the version of the cluster");
    diloco_status status = dl_rest_path(&call, "/version");
    if (!status) status = dl_rest_do(rest, &call, &response);
    if (!status) {
        dl_rest_text(major, sizeof major, response.json, "major");
        dl_rest_text(minor, sizeof minor, response.json, "minor");
        if (!dl_rest_is_good(&response) && response.status != 403)
            status = dl_rest_refused(rest, &call, &response);
        else if (dl_rest_is_good(&response) && is_unknown(major, minor))
            status = dl_fail(DILOCO_EREFUSED,
                             "the cluster has Kubernetes %s.%s, which %s: k8s needs 1.%d or a "
                             "later version 1",
                             major, minor,
                             strcmp(major, "1") ? "is not known here"
                                                : "would ignore a member of the Job",
                             MINOR_MIN);
        else
            name_later(major, minor);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* Look for what the cluster should have at `path`, and set `version` to the version that the answer
 * prefers, if any. Something that the user may not look at (403) counts as found. */
static diloco_status find(bool *found, char version[32], dl_rest *rest, const char *path,
                          const char *what)
{
    dl_rest_call call;
    dl_rest_response response;
    dl_rest_call_init(&call, "GET", what);
    diloco_status status = dl_rest_path(&call, "%s", path);
    if (!status) status = dl_rest_do(rest, &call, &response);
    if (!status) {
        *found = response.status != 404;
        dl_rest_text(version, 32, response.json, "preferredVersion.version");
        if (*found && !dl_rest_is_good(&response) && response.status != 403)
            status = dl_rest_refused(rest, &call, &response);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* Returns DILOCO_EREFUSED if the cluster does not serve a version of the API that a launch speaks.
 * Every user may read what an API server has, unless the cluster's own rules forbid it. */
static diloco_status check_served(dl_rest *rest)
{
    static const struct {
        const char *path, *name;
    } apis[] = {{"/api/v1", "v1"}, {"/apis/batch/v1", "batch/v1"}};
    char version[32];
    bool found;
    for (size_t i = 0; i < sizeof apis / sizeof *apis; i++) {
        DL_TRY(find(&found, version, rest, apis[i].path, apis[i].name));
        if (!found)
            return dl_fail(DILOCO_EREFUSED,
                           "the cluster does not serve the API %s, and k8s knows no other version "
                           "of it: kubectl api-versions lists those of the cluster",
                           apis[i].name);
    }
    return DILOCO_OK;
}

/* ---- permissions */

/* The Role of docs/launch.md. `with`: the kind of object, the scheduler or the option that needs
 * the permission; NULL: always. */
static const struct {
    const char *group, *resource, *part, *verb, *with;
} permissions[] = {
    {"batch", "jobs", "", "create", JOB},
    {"batch", "jobs", "", "get", JOB},
    {"batch", "jobs", "", "delete", JOB},
    {"ray.io", "rayjobs", "", "create", RAYJOB},
    {"ray.io", "rayjobs", "", "get", RAYJOB},
    {"ray.io", "rayjobs", "", "delete", RAYJOB},
    {"", "services", "proxy", "get", RAYJOB},
    {"", "pods", "", "list", NULL},
    {"", "pods", "", "delete", JOB},
    {"", "pods", "log", "get", JOB},
    {"", "secrets", "", "create", "secrets"},
    {"", "secrets", "", "update", "secrets"},
    {"", "secrets", "", "delete", "secrets"},
    {"scheduling.volcano.sh", "podgroups", "", "create", "volcano"},
    {"scheduling.volcano.sh", "podgroups", "", "deletecollection", "volcano"},
};

/* launch.k8s_kind, whose default is Job. */
static const char *kind(const dl_launch_spec *spec)
{
    return spec->config->launch_k8s_kind[0] ? spec->config->launch_k8s_kind : JOB;
}

static bool is_needed(const dl_launch_spec *spec, const char *with)
{
    if (!with || !strcmp(with, kind(spec)) || !strcmp(with, spec->config->launch_gang)) return true;
    return strcmp(with, "secrets") == 0 && *spec->secrets;
}

/* Ask the API server whether this user has permission i. Every user may ask that, unless the
 * cluster's own rules forbid it. */
static diloco_status check_permission(dl_rest *rest, size_t i)
{
    dl_rest_call call;
    dl_rest_response response;
    bool allowed = true;
    dl_rest_call_init(&call, "POST", "the permissions of the launcher");
    dl_json *j = &call.json;
    dl_json_object(j, NULL);
    dl_json_str(j, "apiVersion", "authorization.k8s.io/v1");
    dl_json_str(j, "kind", "SelfSubjectAccessReview");
    dl_json_object(j, "spec");
    dl_json_object(j, "resourceAttributes");
    dl_json_str(j, "namespace", rest->project);
    dl_json_str(j, "group", permissions[i].group);
    dl_json_str(j, "resource", permissions[i].resource);
    if (*permissions[i].part) dl_json_str(j, "subresource", permissions[i].part);
    dl_json_str(j, "verb", permissions[i].verb);
    dl_json_end(j);
    dl_json_end(j);
    dl_json_end(j);
    diloco_status status = dl_rest_path(&call, REVIEWS);
    if (!status) status = dl_rest_do(rest, &call, &response);
    if (!status) {
        const dl_json_value result = dl_json_get(response.json, "status");
        if (dl_rest_is_good(&response) && dl_json_read_bool(&allowed, result, "allowed"))
            status = dl_fail(DILOCO_EPROTO, "Kubernetes did not say whether a call is allowed");
        else if (response.status == 401)
            status = dl_rest_refused(rest, &call, &response);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    if (status || allowed) return status;
    return dl_fail(DILOCO_EREFUSED,
                   "you may not %s %s%s%s in the namespace %.63s of the cluster, so a launch could "
                   "not be followed to its end: ask for the Role in docs/launch.md",
                   permissions[i].verb, permissions[i].resource, *permissions[i].part ? "/" : "",
                   permissions[i].part, rest->project);
}

/* ---- the scheduler of launch.gang */

/* Without its API nothing starts the pods. Every user may read what an API server has, unless the
 * cluster's own rules forbid it. */
static diloco_status check_api(char version[32], dl_rest *rest, const char *path, const char *name)
{
    bool found;
    DL_TRY(find(&found, version, rest, path, name));
    if (found) return DILOCO_OK;
    return dl_fail(DILOCO_ENOENT,
                   "launch.gang = \"%s\": the cluster has no %s, and nothing else would start the "
                   "Job; install it, or leave the option out",
                   rest->spec->config->launch_gang, name);
}

/* Names go into a path as they are, so only characters of names of Kubernetes are accepted. */
static bool is_plain(const char *name)
{
    return *name && !name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-")];
}

static diloco_status check_queue(dl_rest *rest)
{
    char version[32], path[384];
    bool found;
    const char *queue = rest->spec->config->launch_queue;
    if (!is_plain(queue))
        return dl_fail(DILOCO_EINVAL,
                       "launch.queue = \"%.63s\": the name of a queue of Kueue has lower-case "
                       "letters, digits, '-' and '.'",
                       queue);
    DL_TRY(check_api(version, rest, KUEUE, "Kueue"));
    if (!is_plain(version)) return DILOCO_OK;
    snprintf(path, sizeof path, KUEUE "/%s/namespaces/%.63s/localqueues/%.128s", version,
             rest->project, queue);
    DL_TRY(find(&found, version, rest, path, queue));
    if (found) return DILOCO_OK;
    return dl_fail(DILOCO_ENOENT,
                   "launch.queue = \"%.63s\": the namespace %.63s has no such LocalQueue of Kueue; "
                   "list them with  kubectl get localqueues --namespace %.63s",
                   queue, rest->project, rest->project);
}

/* ---- the objects of KubeRay */

/* Does a list of resources have RayJobs? A cluster may have another version of KubeRay's objects,
 * or only some of them. */
static bool has_ray_jobs(dl_json_value resources)
{
    char name[64];
    for (dl_json_iter it = dl_json_each(resources); dl_json_next(&it);)
        if (!strcmp(dl_rest_text(name, sizeof name, it.value, "name"), "rayjobs")) return true;
    return false;
}

/* Without KubeRay a RayJob could not be created. Every user may read the list, unless the cluster's
 * own rules forbid it. */
static diloco_status check_ray(dl_rest *rest)
{
    dl_rest_call call;
    dl_rest_response response;
    bool found = true;
    dl_rest_call_init(&call, "GET", "the objects of KubeRay");
    diloco_status status = dl_rest_path(&call, RAY);
    if (!status) status = dl_rest_do(rest, &call, &response);
    if (!status) {
        if (dl_rest_is_good(&response))
            found = has_ray_jobs(dl_json_get(response.json, "resources"));
        else if (response.status == 404)
            found = false;
        else if (response.status != 403)
            status = dl_rest_refused(rest, &call, &response);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    if (status || found) return status;
    return dl_fail(DILOCO_ENOENT,
                   "launch.k8s_kind = \"" RAYJOB "\": the cluster has no RayJobs of ray.io/v1; "
                   "install KubeRay's operator, 1.2 or later, or leave the option out");
}

diloco_status dl_k8s_check_ready(dl_rest *rest)
{
    char version[32];
    const char *gang = rest->spec->config->launch_gang;
    if (rest->spec->dry) return DILOCO_OK;
    if (strcmp(kind(rest->spec), JOB) == 0) {
        DL_TRY(check_version(rest));
        DL_TRY(check_served(rest));
    } else {
        DL_TRY(check_ray(rest));
    }
    for (size_t i = 0; i < sizeof permissions / sizeof *permissions; i++)
        if (is_needed(rest->spec, permissions[i].with)) DL_TRY(check_permission(rest, i));
    if (strcmp(gang, "kueue") == 0) return check_queue(rest);
    return strcmp(gang, "volcano") == 0 ? check_api(version, rest, VOLCANO, "Volcano") : DILOCO_OK;
}
