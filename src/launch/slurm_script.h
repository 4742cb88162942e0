/* slurm_script.h - the script of a Slurm job: it checks the program, runs one replica, whose rank
 * is the task's index in the array, and writes its exit code. */
#ifndef DL_LAUNCH_SLURM_SCRIPT_H
#define DL_LAUNCH_SLURM_SCRIPT_H

#include "base/buf.h"
#include "launch/executor.h"

/* dl_slurm_script appends the script of one generation, for all ranks. digest: of the program, as
 * sha256sum writes it. Secrets are not in the script, which every user of the cluster may read, but
 * in a file that it sources. Returns DILOCO_ENOMEM or DILOCO_EPROTO if `out` is too small. */
DL_MUST_CHECK diloco_status dl_slurm_script(dl_buf *out, const dl_launch_spec *spec,
                                            uint32_t generation, const char *digest);

#endif
