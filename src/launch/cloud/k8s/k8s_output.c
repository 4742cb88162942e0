/* k8s_output.c - see k8s_output.h. */
#include "launch/cloud/k8s/k8s_output.h"

#include "launch/host.h"

#include <stdlib.h>
#include <string.h>

/* Bounds of what is kept of one replica. The server drops earlier lines; this file drops earlier
 * bytes, since limitBytes of the API would drop the last ones. */
enum { KEPT_BYTES = 4 << 20, LINE_BYTES = 1 << 16 };
/* Silence of the API server after which the output of a replica is given up: its machine is paid
 * for until it is stopped. */
#define KEPT_QUIET (10 * DL_SECOND)

/* ---- the end of a text */

void dl_k8s_tail_init(dl_k8s_tail *tail, size_t most)
{
    *tail = (dl_k8s_tail){.most = most};
    dl_buf_init(&tail->text, 2 * most + LINE_BYTES + 1);
}

void dl_k8s_tail_deinit(dl_k8s_tail *tail)
{
    dl_buf_deinit(&tail->text);
}

dl_span dl_k8s_tail_end(dl_k8s_tail *tail)
{
    if (!tail->text.len) return (dl_span){"", 0};
    const unsigned char *at = tail->text.data, *end = at + tail->text.len;
    if (tail->text.len > tail->most) {
        at = end - tail->most;
        if (at[-1] != '\n') { /* within a line, so the next one is the first */
            const unsigned char *newline = memchr(at, '\n', tail->most);
            at = newline ? newline + 1 : end;
        }
    }
    return (dl_span){at, (size_t)(end - at)};
}

/* Bytes are dropped once there are twice as many as are kept, so each is moved at most once on
 * average. */
diloco_status dl_k8s_tail_add(void *user, const char *line, size_t len)
{
    dl_k8s_tail *tail = user;
    if (tail->text.len > 2 * tail->most) {
        const dl_span end = dl_k8s_tail_end(tail);
        memmove(tail->text.data, end.data, end.len);
        tail->text.len = end.len;
    }
    DL_TRY(dl_buf_add(&tail->text, line, len));
    return dl_buf_add(&tail->text, "\n", 1);
}

/* ---- the folder on this machine */

/* Write launch.dir as a path of this machine to out[DL_PATH_MAX + 1]. The default is relative, and
 * does not depend on the working folder, since launch and cancel may run in different ones. */
static diloco_status find_folder(char *out, const dl_launch_spec *spec)
{
    const char *home = getenv("HOME");
    int n;
    if (spec->dir[0] == '/')
        n = snprintf(out, DL_PATH_MAX + 1, "%s", spec->dir);
    else if (!home || home[0] != '/')
        return dl_fail(DILOCO_ENOENT, "HOME is not set: set launch.dir to an absolute path");
    else
        n = snprintf(out, DL_PATH_MAX + 1, "%s/%s", home, spec->dir);
    return n > 0 && n <= DL_PATH_MAX ? DILOCO_OK : dl_fail(DILOCO_EINVAL, "set launch.dir");
}

/* dl_host_logs reads the same layout. */
static diloco_status write_kept(const dl_launch_spec *spec, const char *name, dl_span text)
{
    char folder[DL_PATH_MAX + 1], path[DL_PATH_MAX + DL_JOB_NAME_MAX + 8];
    DL_TRY(find_folder(folder, spec));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    DL_TRY(dl_dir_make(path));
    snprintf(path, sizeof path, "%s/%s/log", folder, name);
    return dl_file_write(path, &text, 1);
}

diloco_status dl_k8s_output_kept(const dl_launch_spec *spec, const char *name, dl_job_line_fn fn,
                                 void *user)
{
    char folder[DL_PATH_MAX + 1], path[DL_PATH_MAX + DL_JOB_NAME_MAX + 8];
    DL_TRY(find_folder(folder, spec));
    snprintf(path, sizeof path, "%s/%s/log", folder, name);
    if (!dl_file_exists(path))
        return dl_fail(DILOCO_ENOENT,
                       "%s has no pod, and this machine has kept no output of it in %.300s", name,
                       folder);
    return dl_host_logs(folder, name, NULL, fn, user);
}

/* ---- the API server */

/* Write the call that reads the output of a pod. The container is named, since a cluster may add
 * others to a pod. */
static diloco_status write_call(dl_rest_call *call, const dl_rest *rest, const char *pod)
{
    return dl_rest_path(call, "/api/v1/namespaces/%s/pods/%s/log?container=replica", rest->project,
                        pod);
}

/* The API server follows a pod's output itself, and closes the connection when the container has
 * ended. */
diloco_status dl_k8s_output_read(dl_rest *rest, const char *pod, const char *what, bool follow,
                                 dl_job_line_fn fn, void *user)
{
    dl_rest_call call;
    dl_rest_call_init(&call, "GET", what);
    diloco_status status = write_call(&call, rest, pod);
    if (!status && follow) status = dl_rest_path(&call, "&follow=true");
    if (!status) status = dl_rest_lines(rest, &call, fn, user);
    dl_rest_call_deinit(&call);
    return status;
}

/* A call that is repeated would add its lines again, hence `once`. The limit of the silence alone
 * would not end a server that sends slowly, or 10,000 long lines. A pod that is gone was deleted by
 * another cancel, which has kept its output. */
diloco_status dl_k8s_output_keep_tail(dl_rest *rest, dl_rest_call *call, const char *name,
                                      dl_time until)
{
    dl_k8s_tail tail;
    call->once = true;
    call->quiet = KEPT_QUIET;
    call->until = until;
    dl_k8s_tail_init(&tail, KEPT_BYTES);
    diloco_status status = dl_rest_lines(rest, call, dl_k8s_tail_add, &tail);
    if (status == DILOCO_ENOENT)
        status = DILOCO_OK;
    else if (!status && tail.text.len)
        status = write_kept(rest->spec, name, dl_k8s_tail_end(&tail));
    dl_k8s_tail_deinit(&tail);
    return status;
}

diloco_status dl_k8s_output_keep(dl_rest *rest, dl_json_value pod, const char *name, dl_time until)
{
    char phase[64], id[256];
    dl_rest_call call;
    dl_rest_text(phase, sizeof phase, pod, "status.phase");
    dl_rest_text(id, sizeof id, pod, "metadata.name");
    if (!*id || !strcmp(phase, "Pending")) return DILOCO_OK;
    dl_rest_call_init(&call, "GET", name);
    diloco_status status = write_call(&call, rest, id);
    if (!status) status = dl_rest_path(&call, "&tailLines=%d", DL_K8S_KEPT_LINES);
    if (!status) status = dl_k8s_output_keep_tail(rest, &call, name, until);
    dl_rest_call_deinit(&call);
    return status;
}
