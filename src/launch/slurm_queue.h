/* slurm_queue.h - runs Slurm's commands, and lists tasks by squeue and sacct. */
#ifndef DL_LAUNCH_SLURM_QUEUE_H
#define DL_LAUNCH_SLURM_QUEUE_H

#include "launch/command.h"
#include "launch/slurm_calls.h"

/* dl_slurm_run runs one of Slurm's commands. `in` is the text of its stdin, or NULL. The caller
 * frees result->out after success. Returns DILOCO_EREFUSED for a refusal, and DILOCO_EUNREACHABLE
 * for every other failure. */
DL_MUST_CHECK diloco_status dl_slurm_run(dl_command_result *result, const char *const *argv,
                                         const char *in);

/* dl_slurm_version writes the first line of `sbatch --version`, or "". */
void dl_slurm_version(char out[DL_FOUND_MAX + 1]);

/* The functions find, look and recall of dl_slurm_commands (slurm_calls.h). Each returns
 * DILOCO_ENOMEM, or the errors of dl_slurm_run. */
DL_MUST_CHECK diloco_status dl_slurm_queue_find(dl_slurm_tasks *out, const dl_launch_spec *spec,
                                                const dl_job *jobs, size_t n);
DL_MUST_CHECK diloco_status dl_slurm_queue_look(dl_slurm_tasks *out, const dl_launch_spec *spec,
                                                const dl_job *jobs, size_t n);
DL_MUST_CHECK diloco_status dl_slurm_queue_recall(dl_slurm_tasks *out, const dl_launch_spec *spec,
                                                  const char *const *ids, size_t n);

#endif
