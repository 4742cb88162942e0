/* slurm_calls.h - the requests to Slurm of the executor slurm. There are two implementations: by
 * Slurm's commands (slurm_commands.c), and by its REST API (cloud/slurm_rest.c).
 *
 * The executor (slurm.c) has the job's script, its folders, and the meaning of Slurm's states. */
#ifndef DL_LAUNCH_SLURM_CALLS_H
#define DL_LAUNCH_SLURM_CALLS_H

#include "launch/executor.h"

/* Fields of a task: "<job>_<rank>", the name of its array, state, wait status, number of restarts,
 * nodes, and the reason of its state. All are texts; the state is a word of squeue(1). */
enum {
    DL_SLURM_ID,
    DL_SLURM_NAME,
    DL_SLURM_STATE,
    DL_SLURM_STATUS,
    DL_SLURM_RESTARTS,
    DL_SLURM_NODES,
    DL_SLURM_REASON,
    DL_SLURM_FIELDS
};

/* A task of an array that Slurm has. Longer fields are cut. */
typedef struct dl_slurm_task {
    char field[DL_SLURM_FIELDS][128];
} dl_slurm_task;

/* A list that grows. Zeroed is empty; dl_slurm_tasks_free frees it. */
typedef struct dl_slurm_tasks {
    dl_slurm_task *at;
    size_t n, cap;
} dl_slurm_tasks;

/* dl_slurm_add returns a zeroed task at the end of the list. It is valid until the next call.
 * Returns NULL if there is no memory. */
dl_slurm_task *dl_slurm_add(dl_slurm_tasks *tasks);
void dl_slurm_tasks_free(dl_slurm_tasks *tasks);

/* The array job of one generation. All texts are borrowed. */
typedef struct dl_slurm_submission {
    const char *name;   /* of the array job */
    const char *array;  /* the ranks, "0,2,5" */
    const char *output; /* path of the log: Slurm replaces %a by the rank, and %% by % */
    const char *script; /* text of a shell */
} dl_slurm_submission;

/* The requests. Each returns DILOCO_EREFUSED if Slurm refuses it, and DILOCO_EUNREACHABLE if Slurm
 * does not answer or fails in a way that may pass. */
typedef struct dl_slurm_calls {
    /* Check settings and programs. Returns DILOCO_EINVAL or DILOCO_EREFUSED with the way out. */
    diloco_status (*check)(const dl_launch_spec *spec);
    /* List the tasks of the array jobs whose names are those of the generations in jobs [n], also
     * tasks that have ended and that Slurm still has. The record of an array whose tasks were all
     * cancelled while they waited has the id "<job>". The caller frees *out, also after an
     * error. */
    diloco_status (*find)(dl_slurm_tasks *out, const dl_launch_spec *spec, const dl_job *jobs,
                          size_t n);
    /* The same for the ids of jobs [n], whatever their names are. Ids that Slurm does not have are
     * left out. If an id is listed twice, the later task counts. */
    diloco_status (*look)(dl_slurm_tasks *out, const dl_launch_spec *spec, const dl_job *jobs,
                          size_t n);
    /* List the tasks of ids [n] by Slurm's accounting database, which keeps them after the queue
     * has forgotten them. Their number of restarts is "-1", unknown. Lists none without a database.
     * NULL: the database is not asked. */
    diloco_status (*recall)(dl_slurm_tasks *out, const dl_launch_spec *spec, const char *const *ids,
                            size_t n);
    /* Submit an array job, at most once, and set `number` to the job's. With spec->dry print the
     * request instead, and leave `number` as it is. */
    diloco_status (*submit)(char number[32], const dl_launch_spec *spec,
                            const dl_slurm_submission *submission);
    /* Stop the tasks of ids [n], n > 0. A task that is over or gone is no error. */
    diloco_status (*cancel)(const dl_launch_spec *spec, const char *const *ids, size_t n);
} dl_slurm_calls;

extern const dl_slurm_calls dl_slurm_commands, dl_slurm_rest;

/* The name of the array job of a generation, diloco-<run>-g<generation>. */
void dl_slurm_job_name(char out[DL_JOB_NAME_MAX + 1], const dl_launch_spec *spec,
                       uint32_t generation);

/* Returns the way out for an error with these words of Slurm, or "". Known are a limit of an
 * association or a QOS, and an account or a partition that does not exist. */
const char *dl_slurm_way_out(const char *words);
/* dl_slurm_set_waiting sets the message of a job that waits for Slurm's `reason`. Of a limit it
 * says whose it is, and what ends the wait. */
void dl_slurm_set_waiting(dl_job *job, dl_job_state state, const char *reason);

/* Resources of a job in Slurm's units: minutes of launch.timeout, megabytes of launch.memory, and
 * seconds of launch.grace. Times are rounded up, and the memory to the nearest. */
int64_t dl_slurm_minutes(const dl_config *config);
int64_t dl_slurm_megabytes(const dl_config *config);
int64_t dl_slurm_notice(const dl_config *config);

/* Variables that a job gets from the launcher's environment; NULL ends the list. */
extern const char *const dl_slurm_variables[];

#endif
