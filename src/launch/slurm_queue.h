/* slurm_queue.h - Slurm's commands, and the tasks that squeue lists. */
#ifndef DL_LAUNCH_SLURM_QUEUE_H
#define DL_LAUNCH_SLURM_QUEUE_H

#include "launch/command.h"
#include "launch/executor.h"

/* dl_slurm_run runs one of Slurm's commands; `in` is its stdin, or NULL. The caller frees
 * result->out after success. Returns DILOCO_EREFUSED for a refusal, and DILOCO_EUNREACHABLE for
 * every other failure. */
DL_MUST_CHECK diloco_status dl_slurm_run(dl_command_result *result, const char *const *argv,
                                         const dl_buf *in);

/* The name of the array job of a generation, diloco-<run>-g<generation>. */
void dl_slurm_job_name(char out[DL_JOB_NAME_MAX + 1], const dl_launch_spec *spec,
                       uint32_t generation);

/* dl_slurm_queue asks squeue for the tasks of all generations in jobs [n], also for those that have
 * ended and that Slurm still has. The caller frees result->out after success, and reads it by
 * dl_slurm_next. Returns DILOCO_ENOMEM, or the errors of dl_slurm_run. */
DL_MUST_CHECK diloco_status dl_slurm_queue(dl_command_result *result, const dl_launch_spec *spec,
                                           const dl_job *jobs, size_t n);

/* The same for the tasks of these ids, whatever their names are. Ids that Slurm does not have are
 * left out. */
DL_MUST_CHECK diloco_status dl_slurm_queue_of_ids(dl_command_result *result, const dl_job *jobs,
                                                  size_t n);

/* Fields of a task: "<job>_<rank>", the name of its array, state, wait status, number of restarts,
 * nodes, and the reason of its state. The last one may itself hold a bar. */
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

/* One line of the queue, cut into its fields. */
typedef struct dl_slurm_task {
    char field[DL_SLURM_FIELDS][128];
} dl_slurm_task;

/* dl_slurm_next reads the task at *at and moves *at to the next one. Longer fields are cut. Returns
 * false at `end`. */
bool dl_slurm_next(dl_slurm_task *out, const char **at, const char *end);

#endif
