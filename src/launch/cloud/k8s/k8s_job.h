/* k8s_job.h - the objects that k8s.c creates, and what the state of them means. */
#ifndef DL_LAUNCH_CLOUD_K8S_JOB_H
#define DL_LAUNCH_CLOUD_K8S_JOB_H

#include "launch/cloud/jobs.h"

/* The replicas of one Job: all ranks 0 to n - 1 of a generation (n > 1), whose index is the rank,
 * or one rank (n = 1), whose index is 0. `jobs` is borrowed. */
typedef struct dl_k8s_group {
    char name[DL_JOB_NAME_MAX + 1]; /* of the Job, and of its PodGroup */
    dl_job *const *jobs;            /* [n], in the order of the indexes */
    size_t n;
} dl_k8s_group;

/* A part of an object that a writer adds. `j` keeps an error of the writer until dl_json_done. */
typedef diloco_status (*dl_k8s_put_fn)(dl_json *j, const dl_launch_spec *spec,
                                       const dl_k8s_group *group);

/* The members in which the container of a Job and that of a RayJob differ. */
typedef struct dl_k8s_container {
    dl_k8s_put_fn put_words; /* the container's command, and what belongs to it */
    dl_k8s_put_fn put_env;   /* more variables, at the end of the array; NULL: none */
} dl_k8s_container;

/* Write the member "labels". The label diloco/run is on all objects of a run, so that a person can
 * select them. `queue` is that of Kueue, or NULL. */
void dl_k8s_put_labels(dl_json *j, const dl_launch_spec *spec, const char *queue);
/* Write a variable of a container. Kubernetes expands no "$(NAME)" in the value. */
DL_MUST_CHECK diloco_status dl_k8s_put_variable(dl_json *j, const char *name, const char *value);
/* Write the member "template": a pod with the one container that runs a replica. Returns the errors
 * of dl_k8s_put_job. */
DL_MUST_CHECK diloco_status dl_k8s_put_pod(dl_json *j, const dl_launch_spec *spec,
                                           const dl_k8s_group *group,
                                           const dl_k8s_container *container);

/* The name of a run's Secret: diloco-<run>. */
void dl_k8s_secret_name(char out[DL_JOB_NAME_MAX + 1], const dl_launch_spec *spec);

/* The three functions write the body of a POST: a Job (batch/v1), the run's Secret, and Volcano's
 * PodGroup of a Job. `j` keeps an error of the writer until dl_json_done. dl_k8s_put_job returns
 * DILOCO_ENOMEM, or DILOCO_EPROTO if a word or variable is longer than 1 MiB. */
DL_MUST_CHECK diloco_status dl_k8s_put_job(dl_json *j, const dl_launch_spec *spec,
                                           const dl_k8s_group *group);
void dl_k8s_put_secret(dl_json *j, const dl_launch_spec *spec);
void dl_k8s_put_pod_group(dl_json *j, const dl_launch_spec *spec, const dl_k8s_group *group);

/* Returns true if the index is in a list such as "1,3-5". Text after an invalid part is ignored. */
bool dl_k8s_lists_index(const char *list, uint32_t index);

/* Returns true if the Job has listed this index as completed or failed. */
bool dl_k8s_is_over(dl_json_value kube_job, uint32_t index);

/* Returns the newest pod of the index in a PodList; MISSING if it has none. An index whose pod was
 * replaced may still have the earlier one. */
dl_json_value dl_k8s_pod(dl_json_value pods, uint32_t index);

/* Set the state of a replica whose pod is Pending: STARTING with the reason of its container, such
 * as ImagePullBackOff, or PENDING with the reason why no node was found. */
void dl_k8s_set_waiting(dl_job *job, dl_json_value pod);

/* Set the state of a replica from its Job and the Job's pods, as the API server sent them. Members
 * may be absent. The Job decides whether the replica is over, since pods may be replaced or
 * removed; the pod says how it ended. */
void dl_k8s_set(dl_job *job, uint32_t index, dl_json_value kube_job, dl_json_value pods);

#endif
