/* k8s_events.c - see k8s_events.h. The Job controller writes a warning (FailedCreate) when the API
 * server refuses a pod, for example beyond a ResourceQuota, and tries again. The Job's own status
 * does not say so. */
#include "launch/cloud/k8s/k8s_events.h"

#include <string.h>

/* Set `out` to the newest warning, "<reason>: <message>". Times are of one form (RFC 3339, in UTC),
 * so their order is that of the texts. */
static void find_newest(char out[256], dl_json_value events)
{
    char at[64], newest[64] = "", reason[64], message[256];
    snprintf(out, 256, "no pod yet");
    for (dl_json_iter it = dl_json_each(dl_json_get(events, "items")); dl_json_next(&it);) {
        if (!*dl_rest_text(at, sizeof at, it.value, "lastTimestamp"))
            dl_rest_text(at, sizeof at, it.value, "metadata.creationTimestamp");
        if (strcmp(at, newest) < 0) continue;
        memcpy(newest, at, sizeof at);
        dl_rest_text(reason, sizeof reason, it.value, "reason");
        dl_rest_message(message, sizeof message, it.value, "message");
        snprintf(out, 256, "%s%s%.180s", reason, *reason && *message ? ": " : "", message);
    }
}

/* Set `out` to the reason. Nothing is tried again: a poll must not wait for words. */
static void find_reason(char out[256], dl_rest *rest, const char *name)
{
    dl_rest_call call;
    dl_rest_response response;
    dl_rest_call_init(&call, "GET", name);
    call.once = true;
    snprintf(out, 256, "no pod yet: kubectl describe job %.63s -n %.63s  has the reason", name,
             rest->project);
    if (!dl_rest_path(&call,
                      "/api/v1/namespaces/%s/events?fieldSelector=involvedObject.kind%%3DJob%%2C"
                      "involvedObject.name%%3D%s%%2Ctype%%3DWarning&limit=50",
                      rest->project, name) &&
        !dl_rest_do(rest, &call, &response)) {
        if (dl_rest_is_good(&response)) find_newest(out, response.json);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
}

void dl_k8s_explain(dl_job *job, char why[256], dl_rest *rest, const char *name)
{
    if (job->state != DL_JOB_PENDING || *job->message) return;
    if (!*why) find_reason(why, rest, name);
    dl_job_set(job, DL_JOB_PENDING, -1, "%s", why);
}
