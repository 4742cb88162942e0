/* kubeconfig.h - address and credentials of a Kubernetes API server.
 *
 * launch.endpoint comes first, without credentials, as kubectl proxy adds them. The context
 * launch.context of kubectl is next, then the service account of the pod that this process runs in.
 * The current context of kubectl is last. A context has a token, a client certificate or a program
 * that prints a token (exec). kubectl reads its files. */
#ifndef DL_LAUNCH_CLOUD_KUBECONFIG_H
#define DL_LAUNCH_CLOUD_KUBECONFIG_H

#include "launch/cloud/rest.h"

/* dl_kube_open fills base, credentials and project, which is the namespace: launch.project or the
 * context's. With spec->dry no request is made and no file read. Returns DILOCO_EINVAL if no
 * address is known, or if the namespace is no DNS label. The caller deinits `rest`, also after an
 * error. */
DL_MUST_CHECK diloco_status dl_kube_open(dl_rest *rest, const dl_launch_spec *spec);

#endif
