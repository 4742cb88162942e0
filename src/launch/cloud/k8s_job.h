/* k8s_job.h - the objects that k8s.c creates, and what the state of them means. */
#ifndef DL_LAUNCH_CLOUD_K8S_JOB_H
#define DL_LAUNCH_CLOUD_K8S_JOB_H

#include "launch/cloud/jobs.h"

/* A Job: all ranks 0 to n - 1 of a generation (n > 1), whose index is the rank, or one rank. */
typedef struct dl_k8s_group {
    char name[DL_JOB_NAME_MAX + 1];
    dl_job *const *jobs;
    size_t n;
} dl_k8s_group;

/* The name of a run's Secret: diloco-<run>. */
void dl_k8s_secret_name(char out[DL_JOB_NAME_MAX + 1], const dl_launch_spec *spec);

/* Bodies of POST. */
DL_MUST_CHECK diloco_status dl_k8s_put_job(dl_json *j, const dl_launch_spec *spec,
                                           const dl_k8s_group *group);
void dl_k8s_put_secret(dl_json *j, const dl_launch_spec *spec);
void dl_k8s_put_pod_group(dl_json *j, const dl_launch_spec *spec, const dl_k8s_group *group);

/* Is the index in a list such as "1,3-5"? */
bool dl_k8s_lists_index(const char *list, uint32_t index);

/* Has the Job listed this index as completed or failed? */
bool dl_k8s_is_over(dl_json_value kube_job, uint32_t index);

/* The newest pod of the index in a PodList; MISSING: it has no pod. */
dl_json_value dl_k8s_pod(dl_json_value pods, uint32_t index);

/* Set the state of a replica from its Job and the Job's pods. */
void dl_k8s_set(dl_job *job, uint32_t index, dl_json_value kube_job, dl_json_value pods);

#endif
