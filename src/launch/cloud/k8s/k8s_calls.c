/* k8s_calls.c - see k8s_calls.h. */
#include "launch/cloud/k8s/k8s_calls.h"

#include "launch/cloud/k8s/k8s_job.h"

#include <string.h>

#define SECRET "/api/v1/namespaces/%s/secrets"

/* The error of a refused creation. A namespace that the cluster does not have is in the answer's
 * details. */
static diloco_status refuse_creation(const dl_rest *rest, const dl_rest_call *call,
                                     const dl_rest_response *response)
{
    char kind[64];
    dl_rest_text(kind, sizeof kind, response->json, "details.kind");
    if (response->status == 404 && !strcmp(kind, "namespaces"))
        return dl_fail(DILOCO_ENOENT,
                       "the cluster has no namespace %.63s: make it with  kubectl create namespace "
                       "%.63s, or set launch.project to another one",
                       rest->project, rest->project);
    return dl_rest_refused(rest, call, response);
}

/* The PUT has no resourceVersion, so it replaces any version of the object. */
diloco_status dl_k8s_post(dl_rest *rest, dl_rest_call *call, const char *name, bool renew)
{
    dl_rest_response response;
    if (rest->spec->dry) return dl_rest_print(rest, call);
    DL_TRY(dl_rest_do(rest, call, &response));
    diloco_status status = DILOCO_OK;
    if (!dl_rest_is_good(&response) && response.status != 409)
        status = refuse_creation(rest, call, &response);
    const bool taken = response.status == 409;
    dl_buf_deinit(&response.text);
    if (status || !taken || !renew) return status;
    call->method = "PUT";
    DL_TRY(dl_rest_path(call, "/%s", name));
    DL_TRY(dl_rest_must(rest, call, &response));
    dl_buf_deinit(&response.text);
    return DILOCO_OK;
}

/* Values may have changed since the earlier launch, so the Secret is replaced. */
diloco_status dl_k8s_create_secret(dl_rest *rest)
{
    char name[DL_JOB_NAME_MAX + 1];
    dl_rest_call call;
    dl_k8s_secret_name(name, rest->spec);
    dl_rest_call_init(&call, "POST", "the run's Secret");
    diloco_status status = dl_rest_path(&call, SECRET, rest->project);
    dl_k8s_put_secret(&call.json, rest->spec);
    if (!status) status = dl_k8s_post(rest, &call, name, true);
    dl_rest_call_deinit(&call);
    return status;
}

diloco_status dl_k8s_get(dl_rest *rest, dl_rest_response *response, const char *before,
                         const char *after, const char *name)
{
    dl_rest_call call;
    dl_rest_call_init(&call, "GET", name);
    diloco_status status = dl_rest_path(&call, "%s%s%s%s", before, rest->project, after, name);
    if (!status) status = dl_rest_do(rest, &call, response);
    if (!status && !dl_rest_is_good(response) && response->status != 404) {
        status = dl_rest_refused(rest, &call, response);
        dl_buf_deinit(&response->text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

diloco_status dl_k8s_remove(dl_rest *rest, const char *what, const char *path)
{
    dl_rest_call call;
    dl_rest_response response;
    dl_rest_call_init(&call, "DELETE", what);
    diloco_status status = dl_rest_path(&call, "%s", path);
    if (!status) status = dl_rest_do(rest, &call, &response);
    if (!status) {
        if (!dl_rest_is_good(&response) && response.status != 404)
            status = dl_rest_refused(rest, &call, &response);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

void dl_k8s_remove_secret(dl_rest *rest)
{
    char name[DL_JOB_NAME_MAX + 1], path[DL_REST_BASE + 256];
    dl_k8s_secret_name(name, rest->spec);
    snprintf(path, sizeof path, SECRET "/%s", rest->project, name);
    (void)!dl_k8s_remove(rest, "the run's Secret", path);
}
