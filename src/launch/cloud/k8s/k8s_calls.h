/* k8s_calls.h - calls to the API server that Jobs and RayJobs have in common. */
#ifndef DL_LAUNCH_CLOUD_K8S_CALLS_H
#define DL_LAUNCH_CLOUD_K8S_CALLS_H

#include "launch/cloud/rest.h"

/* dl_k8s_post creates the object that `call` has the path and body of, or prints the call with
 * spec->dry. A name that is taken (409) is that of an earlier launch, and no error. With `renew`
 * that object is replaced by a PUT. Returns DILOCO_ENOENT, with the way out, if the namespace does
 * not exist, or the error of a refusal. */
DL_MUST_CHECK diloco_status dl_k8s_post(dl_rest *rest, dl_rest_call *call, const char *name,
                                        bool renew);

/* dl_k8s_create_secret creates the run's Secret, or replaces it: values may have changed since an
 * earlier launch. Returns the errors of dl_k8s_post. */
DL_MUST_CHECK diloco_status dl_k8s_create_secret(dl_rest *rest);
/* dl_k8s_remove_secret deletes it. Errors are ignored: at worst an unused Secret remains. */
void dl_k8s_remove_secret(dl_rest *rest);

/* dl_k8s_get reads the object whose path is `before`, the namespace, `after` and `name`. They are
 * not escaped. A 404 is no error: the caller reads the status. The caller frees response->text
 * after success. */
DL_MUST_CHECK diloco_status dl_k8s_get(dl_rest *rest, dl_rest_response *response,
                                       const char *before, const char *after, const char *name);

/* dl_k8s_remove deletes the object of `path`, which is not escaped. `what` describes it for error
 * texts. An object that is gone is no error. */
DL_MUST_CHECK diloco_status dl_k8s_remove(dl_rest *rest, const char *what, const char *path);

#endif
