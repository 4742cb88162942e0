/* k8s_events.h - the reason why a Job has no pod yet, from the events of Kubernetes. */
#ifndef DL_LAUNCH_CLOUD_K8S_EVENTS_H
#define DL_LAUNCH_CLOUD_K8S_EVENTS_H

#include "launch/cloud/jobs.h"

/* dl_k8s_explain sets the message of a job that is PENDING and has none. It has no pod, and its Job
 * is not suspended. Its Job is `name`. `why`
 * is the reason, which is asked for if it is "": the newest warning about the Job, such as a quota
 * that its pods exceed. A failure is no error: `why` then says where the reason is. */
void dl_k8s_explain(dl_job *job, char why[256], dl_rest *rest, const char *name);

#endif
