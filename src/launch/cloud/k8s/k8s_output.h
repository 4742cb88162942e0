/* k8s_output.h - output of pods: read from the API server, and kept when a cancel deletes a pod.
 *
 * Kubernetes deletes the output of a pod with the pod. So a cancel first copies the end of it to
 * <launch.dir>/<name>/log on this machine. A relative launch.dir is below the home folder. */
#ifndef DL_LAUNCH_CLOUD_K8S_OUTPUT_H
#define DL_LAUNCH_CLOUD_K8S_OUTPUT_H

#include "launch/cloud/rest.h"

enum { DL_K8S_KEPT_LINES = 10000 };

/* dl_k8s_output_read gives each line of the output of the pod `pod` to fn; with `follow` all lines
 * until its container has ended. `what` is the replica's name for error texts. Returns
 * DILOCO_ENOENT if there is no such pod, and the errors of dl_rest_lines. */
DL_MUST_CHECK diloco_status dl_k8s_output_read(dl_rest *rest, const char *pod, const char *what,
                                               bool follow, dl_job_line_fn fn, void *user);

/* dl_k8s_output_keep copies the output of `pod`, an object of a PodList, for the replica `name`.
 * It keeps at most the last DL_K8S_KEPT_LINES lines and the last 4 MiB. A pod that is gone, or
 * whose container has not started, is no error, and leaves no file. It waits at most 10 s for each
 * piece, and tries once. Returns DILOCO_ETIMEDOUT if the output has not arrived whole at `until`,
 * or an error of the API server or of the file system. A file of an earlier call is then unchanged.
 */
DL_MUST_CHECK diloco_status dl_k8s_output_keep(dl_rest *rest, dl_json_value pod, const char *name,
                                               dl_time until);

/* dl_k8s_output_keep_tail does the same with the answer to `call`, which the caller writes. It has
 * to ask for at most the last DL_K8S_KEPT_LINES lines. A 404 is no error, and leaves no file. */
DL_MUST_CHECK diloco_status dl_k8s_output_keep_tail(dl_rest *rest, dl_rest_call *call,
                                                    const char *name, dl_time until);

/* dl_k8s_output_kept gives each line of the kept output of the replica `name` to fn. Returns
 * DILOCO_ENOENT if none is kept on this machine. */
DL_MUST_CHECK diloco_status dl_k8s_output_kept(const dl_launch_spec *spec, const char *name,
                                               dl_job_line_fn fn, void *user);

/* The end of a text that comes in lines. dl_k8s_tail_init makes an empty one of at most `most`
 * bytes, and dl_k8s_tail_deinit frees it. */
typedef struct dl_k8s_tail {
    dl_buf text;
    size_t most;
} dl_k8s_tail;
void dl_k8s_tail_init(dl_k8s_tail *tail, size_t most);
void dl_k8s_tail_deinit(dl_k8s_tail *tail);
/* dl_k8s_tail_add appends a line and a newline. It is a dl_job_line_fn whose `user` is the tail.
 * Memory is at most 2 * most + 64 KiB + 1 bytes. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_k8s_tail_add(void *user, const char *line, size_t len);
/* Returns the last whole lines, together at most `most` bytes. They are borrowed until the next
 * call. */
dl_span dl_k8s_tail_end(dl_k8s_tail *tail);

#endif
