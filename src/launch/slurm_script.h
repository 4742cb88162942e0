/* slurm_script.h - the script of a Slurm job. One script serves all ranks of a generation:
 *
 *     the rank is $SLURM_ARRAY_TASK_ID
 *     go to the replica's folder, and remove an exit file of an earlier restart
 *     compare the node's architecture with the program's
 *     export the variables, and source the file of secrets
 *     check the program against its SHA-256
 *     run the replica as a child, and pass SIGTERM on to it
 *     wait for it, and write "exit <code> <restart>"
 *
 * The file is renamed into place, so a poll sees no half of it. */
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
