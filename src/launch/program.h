/* program.h - the program that replicas run, kept by its SHA-256. */
#ifndef DL_LAUNCH_PROGRAM_H
#define DL_LAUNCH_PROGRAM_H

#include "launch/executor.h"

enum { DL_PROGRAM_DIGEST = 64 };

/* SHA-256 of a file, in hex, as sha256sum of this machine computes it. */
DL_MUST_CHECK diloco_status dl_program_digest(char out[DL_PROGRAM_DIGEST + 1], const char *path);

/* Copy spec->program to <spec->dir>/bin/<SHA-256>/diloco, unless it is there. */
DL_MUST_CHECK diloco_status dl_program_install(const dl_launch_spec *spec, const char *digest);

#endif
