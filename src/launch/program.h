/* program.h - the program that replicas run, kept by its SHA-256. So a program that is rebuilt
 * during a run does not change under replicas that are started later by the same launcher.
 *
 * It is an executable file, or a Python wheel of this project that has one. On a machine
 * <dir>/bin/<SHA-256> then has
 *
 *     diloco                      the executable file
 *
 *     diloco.whl                  the wheel, which has that SHA-256
 *     site                        the wheel as pip has installed it
 *     site/diloco/_lib/diloco     its program
 *
 * Before each use the SHA-256 of the first file is computed again, and the files of `site` are
 * compared with the wheel. */
#ifndef DL_LAUNCH_PROGRAM_H
#define DL_LAUNCH_PROGRAM_H

#include "launch/executor.h"

/* Hex digits of a SHA-256. */
enum { DL_PROGRAM_DIGEST = 64 };

/* dl_program_digest computes the SHA-256 of a file, in 64 hex digits and a zero. It runs sha256sum,
 * because the other side checks with that. Returns DILOCO_EIO, or the errors of dl_command_do. */
DL_MUST_CHECK diloco_status dl_program_digest(char out[DL_PROGRAM_DIGEST + 1], const char *path);

/* Returns true if the path names a wheel. */
bool dl_program_is_wheel(const char *path);

/* Returns the architecture that an ELF file is for, or a wheel by its name, as `uname -m` writes
 * it. Returns NULL for any other file, and for an architecture that diloco is not built for. */
const char *dl_program_machine(const char *path);
/* Returns the end of an error with pip's words `err`: the way out if pip refuses a wheel because it
 * is for another platform, else "". */
const char *dl_program_pip_advice(const char *err);

/* The program of an installed wheel, below <dir>/bin/<SHA-256>. */
#define DL_WHEEL_PROGRAM "site/diloco/_lib/diloco"

/* Commands of a shell in the folder of a wheel. The first one succeeds if each file of `site` is
 * that of the wheel. pip itself writes the metadata, so that is not compared. The second one begins
 * the installation of a wheel without a network; the folder and the wheel follow. */
#define DL_WHEEL_CHECK                                                                             \
    "python3 -I -c 'import sys, zipfile; w = zipfile.ZipFile(\"diloco.whl\"); "                    \
    "sys.exit(any(open(\"site/\" + n, \"rb\").read() != w.read(n) for n in w.namelist() "          \
    "if n[-1] != \"/\" and \".dist-info/\" not in n and \".data/\" not in n))' 2>/dev/null"
#define DL_WHEEL_INSTALL                                                                           \
    "python3 -m pip install --quiet --no-input --disable-pip-version-check --no-compile "          \
    "--no-deps "                                                                                   \
    "--no-index --target "

/* dl_program_install copies spec->program to its folder below spec->dir, unless a file with that
 * digest is there, and installs a wheel there. `digest` is that of the program. Returns errors of
 * the file system, and DILOCO_EIO or DILOCO_EREFUSED with the words of pip. One caller at a time
 * for one folder. */
DL_MUST_CHECK diloco_status dl_program_install(const dl_launch_spec *spec, const char *digest);

#endif
