/* k8s_ray_job.h - the RayJob of a replica, and what its state means. Names and states are those of
 * KubeRay 1.7 (rayjob_types.go, rayjob_controller.go) and of Ray 2.60 (job_supervisor.py).
 *
 *     ""  Initializing  Running  Complete | Failed           status.jobDeploymentStatus, of KubeRay
 *         ""  PENDING  RUNNING  SUCCEEDED | FAILED | STOPPED      status.jobStatus, of Ray */
#ifndef DL_LAUNCH_CLOUD_K8S_RAY_JOB_H
#define DL_LAUNCH_CLOUD_K8S_RAY_JOB_H

#include "launch/cloud/jobs.h"

/* Write the body of a POST: the RayJob of one replica. `j` keeps an error of the writer until
 * dl_json_done. Returns DILOCO_ENOMEM, or DILOCO_EPROTO if the command is longer than 4 MiB or a
 * variable longer than 1 MiB. */
DL_MUST_CHECK diloco_status dl_k8s_put_ray_job(dl_json *j, const dl_launch_spec *spec, dl_job *job);

/* Set the state of a replica from its RayJob and the pods of its head, as the API server sent them.
 * Members may be absent. A state of KubeRay or Ray that is not known here is named, and counts as
 * silence. */
void dl_k8s_ray_set(dl_job *job, dl_json_value ray_job, dl_json_value pods);

/* Returns true if Ray has started the command, so that there is output. */
bool dl_k8s_ray_has_begun(dl_json_value ray_job);

/* Returns the exit code that Ray's message about a failed command names: 1 to 255, or 128 + N after
 * signal N. Returns -1 if the message does not begin with Ray's own sentence about it. Text after
 * that sentence is output of the replica, and is not read. */
int dl_k8s_ray_code(const char *message);

#endif
