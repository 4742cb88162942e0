/* program.h - the program that replicas run, kept by its SHA-256. So a program that is rebuilt
 * during a run does not change under replicas that are started later by the same launcher. */
#ifndef DL_LAUNCH_PROGRAM_H
#define DL_LAUNCH_PROGRAM_H

#include "launch/executor.h"

/* Hex digits of a SHA-256. */
enum { DL_PROGRAM_DIGEST = 64 };

/* dl_program_digest computes the SHA-256 of a file, in 64 hex digits and a zero. It runs sha256sum,
 * because the other side checks with that. Returns DILOCO_EIO, or the errors of dl_command_do. */
DL_MUST_CHECK diloco_status dl_program_digest(char out[DL_PROGRAM_DIGEST + 1], const char *path);

/* dl_program_install copies spec->program to <spec->dir>/bin/<SHA-256>/diloco, unless a file with
 * that digest is there. `digest` is that of the program. Returns errors of the file system. */
DL_MUST_CHECK diloco_status dl_program_install(const dl_launch_spec *spec, const char *digest);

#endif
