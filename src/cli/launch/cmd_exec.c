/* cmd_exec.c - run another program in place of this one, for a batch (launch/batch.h).
 *
 * Executors without an image bring this program to a machine and start it. Of a batch it starts the
 * program of job.command, so every executor starts batches as it starts replicas. */
#include "base/file.h"
#include "cli/cli.h"

#include <errno.h>
#include <unistd.h>

/* The process stays the same, so signals, output and exit code are those of the other program. */
static diloco_status cmd_exec(const dl_args *args)
{
    if (!args->rest || !args->rest[0])
        return dl_fail(DILOCO_EINVAL, "exec needs a program: diloco exec FOLDER -- PROGRAM …");
    if (chdir(args->target)) return dl_fail_errno(errno, "enter the folder", args->target);
    execvp(args->rest[0], args->rest);
    if (errno == ENOENT)
        return dl_fail(DILOCO_EINVAL, "job.command: there is no program %.200s on this machine",
                       args->rest[0]);
    return dl_fail_errno(errno, "run", args->rest[0]);
}

const dl_command dl_command_exec = {
    .name = "exec",
    .target = "FOLDER",
    .details = "Started by launch job on a machine: runs the words after -- in FOLDER.",
    .takes_rest = true,
    .run = cmd_exec,
};
