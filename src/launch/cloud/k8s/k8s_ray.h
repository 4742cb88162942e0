/* k8s_ray.h - replicas as RayJobs of KubeRay (ray.io/v1), for launch.k8s_kind = "RayJob".
 *
 * The functions are those of an executor (executor.h). The id of a replica is the name of its
 * RayJob, which is the name of the replica. */
#ifndef DL_LAUNCH_CLOUD_K8S_RAY_H
#define DL_LAUNCH_CLOUD_K8S_RAY_H

#include "launch/executor.h"

/* Returns DILOCO_EREFUSED with a scheduler in launch.gang: KubeRay has a gang for each RayJob, so
 * the replicas of a run would not start together. */
DL_MUST_CHECK diloco_status dl_k8s_ray_check(const dl_launch_spec *spec);
DL_MUST_CHECK diloco_status dl_k8s_ray_launch(const dl_launch_spec *spec, dl_job *jobs, size_t n);
DL_MUST_CHECK diloco_status dl_k8s_ray_find(const dl_launch_spec *spec, dl_job *jobs, size_t n);
DL_MUST_CHECK diloco_status dl_k8s_ray_poll(const dl_launch_spec *spec, dl_job *jobs, size_t n);
/* A replica whose head is gone has the output that a cancel has kept. */
DL_MUST_CHECK diloco_status dl_k8s_ray_logs(const dl_launch_spec *spec, const dl_job *job,
                                            bool follow, dl_job_line_fn fn, void *user);
/* A RayJob that is over is not deleted: its head has output until KubeRay deletes it. */
DL_MUST_CHECK diloco_status dl_k8s_ray_cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n);

#endif
