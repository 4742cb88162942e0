/* k8s_ready.h - checks of a cluster before anything is created in it. */
#ifndef DL_LAUNCH_CLOUD_K8S_READY_H
#define DL_LAUNCH_CLOUD_K8S_READY_H

#include "launch/cloud/rest.h"

/* dl_k8s_check_ready checks that the launcher has every permission that a launch needs in the
 * namespace, from the first Job to the last poll and the end. Otherwise a Job could be created that
 * the launcher cannot follow or delete. It also checks that the cluster has the scheduler of
 * launch.gang, and for Kueue that the namespace has the LocalQueue launch.queue, since nothing else
 * starts the pods. The first check of a Job is that of the version, since an API server before 1.29
 * drops members of it. That of a RayJob is that the cluster has RayJobs of ray.io/v1. A check that
 * the cluster does not allow (403) is left out; the request itself is refused then. Nothing is sent
 * with spec->dry. Returns DILOCO_EREFUSED for an older version or a missing permission. Returns
 * DILOCO_EINVAL for a name that no queue can have, DILOCO_ENOENT without RayJobs, the scheduler or
 * the queue, or the error of a request. */
DL_MUST_CHECK diloco_status dl_k8s_check_ready(dl_rest *rest);

#endif
