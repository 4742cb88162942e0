/* command.h - other programs run for an executor: ssh, sbatch, kubectl.
 *
 * A program gets its arguments as they are, without a shell. It runs in a process group of its own,
 * so that Ctrl-C in the launcher's terminal does not reach it. Its stdin, stdout and stderr are
 * pipes. Any number of threads may run programs at once. Signal handlers and the caller's signal
 * mask stay as they are. */
#ifndef DL_LAUNCH_COMMAND_H
#define DL_LAUNCH_COMMAND_H

#include "base/clock.h"
#include "launch/executor.h"

/* The end of a program. */
typedef struct dl_command_result {
    int exit_code; /* 128 + N: signal N ended it */
    dl_buf out;    /* stdout, whole */
    char err[512]; /* the end of stderr, as part of a sentence (dl_text_clause) */
} dl_command_result;

/* A program and its input. Everything is borrowed. */
typedef struct dl_command_run {
    const char *const *argv; /* looked up in PATH; until NULL */
    const void *in;          /* stdin */
    size_t in_len;
    int in_fd; /* when `in` is NULL: stdin is this file; 0: stdin is empty */
    /* Bytes of stdout at most; 0: 1 MiB. */
    size_t most;
    dl_time patience; /* it is killed after that; 0: 60 s */
} dl_command_run;

/* dl_command_do runs a program to its end. The caller frees result->out after success. An exit code
 * is no error.
 *
 * Returns DILOCO_EINVAL if there is no such program, DILOCO_ETIMEDOUT after `patience`,
 * DILOCO_EPROTO if stdout has more than `most` bytes, or DILOCO_EIO. It is DILOCO_EIO as well if
 * this process ignores SIGCHLD, since the system then drops exit codes. After an error the program
 * and its group were killed. */
DL_MUST_CHECK diloco_status dl_command_do(dl_command_result *result, const dl_command_run *run);

/* dl_command_lines runs a program without a time limit, and gives each line of its stdout to fn as
 * it comes. Returns DILOCO_EIO, with the end of stderr, if its exit code is not 0, and an error of
 * fn, which ends the program. */
DL_MUST_CHECK diloco_status dl_command_lines(int *exit_code, const char *const *argv,
                                             const void *in, size_t in_len, dl_job_line_fn fn,
                                             void *user);

/* Returns true if a program of this name can be executed: a path, or a name that PATH finds. */
bool dl_command_exists(const char *name);

#endif
