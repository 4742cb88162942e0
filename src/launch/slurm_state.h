/* slurm_state.h - the state of a replica from the state of its task. */
#ifndef DL_LAUNCH_SLURM_STATE_H
#define DL_LAUNCH_SLURM_STATE_H

#include "launch/slurm_calls.h"

/* dl_slurm_read_state sets *out to the state for a word of Slurm, such as NODE_FAIL. Returns false
 * if this version does not know it. */
bool dl_slurm_read_state(dl_job_state *out, const char *word);

/* Set state, exit code and message of a job from its task. An unknown state is named and makes the
 * job silent. The exit code in the script's file is preferred to Slurm's, as it distinguishes the
 * replica's end from the script's. */
void dl_slurm_set_state(const dl_launch_spec *spec, dl_job *job, const dl_slurm_task *task);

/* Set the state of a job that ended by its own exit code: 0 to 255, from 129 on a signal. */
void dl_slurm_set_ended(dl_job *job, int code);

#endif
