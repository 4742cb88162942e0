/* slurm_folder.h - the files of a replica's folder, <launch.dir>/<name>, as the launcher of slurm
 * uses them. The launcher makes the folder before it submits the job, so a machine without it does
 * not share launch.dir, and each function then finds no file. */
#ifndef DL_LAUNCH_SLURM_FOLDER_H
#define DL_LAUNCH_SLURM_FOLDER_H

#include "launch/executor.h"

bool dl_slurm_has_folder(const dl_launch_spec *spec, const dl_job *job);
/* Returns true if Slurm has begun to run the task: it opens the file of the output then. */
bool dl_slurm_has_begun(const dl_launch_spec *spec, const dl_job *job);
/* Returns the exit code that the job's script wrote in the restart of this number (-1: in any); -1
 * if it wrote none. The file of an earlier restart must not count: it is about another process. */
int dl_slurm_exit_of(const dl_launch_spec *spec, const dl_job *job, int restart);

/* dl_slurm_record_stop records in the folders of jobs [n] that those of ids [found] were asked to
 * stop. Both are in the same order, and each id is that of a job itself. A machine without a folder
 * cannot record it: the state then is that of Slurm alone. */
void dl_slurm_record_stop(const dl_launch_spec *spec, const dl_job *jobs, size_t n,
                          const char *const *ids, size_t found);
bool dl_slurm_was_stopped(const dl_launch_spec *spec, const dl_job *job);

#endif
