/* command.h - other programs run for an executor: ssh, sbatch, kubectl. */
#ifndef DL_LAUNCH_COMMAND_H
#define DL_LAUNCH_COMMAND_H

#include "base/clock.h"
#include "launch/executor.h"

typedef struct dl_command_result {
    int exit_code; /* 128 + N: signal N ended it */
    dl_buf out;    /* stdout, whole */
    char err[512]; /* the end of stderr, for a person */
} dl_command_result;

typedef struct dl_command_run {
    const char *const *argv; /* looked up in PATH; until NULL */
    const void *in;          /* stdin */
    size_t in_len;
    int in_fd;        /* when `in` is NULL: stdin is this file; 0: stdin is empty */
    size_t most;      /* bytes of stdout */
    dl_time patience; /* it is killed after that; 0: 60 s */
} dl_command_run;

/* Run it to its end. The caller frees result->out. DILOCO_EINVAL: there is no such program.
 * DILOCO_ETIMEDOUT, DILOCO_EIO, DILOCO_EPROTO (more output than `most`). An exit code is no error.
 */
DL_MUST_CHECK diloco_status dl_command_do(dl_command_result *result, const dl_command_run *run);

/* Run it, and give each line of stdout to fn as it comes; *exit_code at the end. */
DL_MUST_CHECK diloco_status dl_command_lines(int *exit_code, const char *const *argv,
                                             const void *in, size_t in_len, dl_job_line_fn fn,
                                             void *user);

/* Can a program of this name be executed? */
bool dl_command_exists(const char *name);

#endif
