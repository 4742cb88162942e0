/* ssh_script.h - the shell scripts by which a program reaches a machine of ssh:// and runs there.
 */
#ifndef DL_LAUNCH_SSH_SCRIPT_H
#define DL_LAUNCH_SSH_SCRIPT_H

#include "launch/executor.h"

/* Is the program there? Store what stdin has. Run it, once its digest is compared again. */
typedef enum dl_ssh_script_kind { DL_SSH_LOOK, DL_SSH_UPLOAD, DL_SSH_USE } dl_ssh_script_kind;

/* Bytes of a script. */
enum { DL_SSH_SCRIPT = 8192 };

/* dl_ssh_script writes the script for the program with this SHA-256, in hex. DL_SSH_LOOK prints
 * `uname -sm` and then "there". Returns DILOCO_EINVAL if launch.dir is too long. */
DL_MUST_CHECK diloco_status dl_ssh_script(char out[DL_SSH_SCRIPT], dl_ssh_script_kind kind,
                                          const dl_launch_spec *spec, const char *digest);

#endif
