/* why.h - what a run waits for, and why for so long: `diloco status --why`. */
#ifndef DL_CLI_WHY_H
#define DL_CLI_WHY_H

#include "base/config.h"
#include <diloco/inspect.h>

/* Lines on stdout: the open entry, who is missing and what each of them does, the rule that closes
 * it, and each replica's deadline with what it was derived from. `config`: the run's. */
void dl_print_why(const diloco_run_status *run, const dl_config *config);

#endif
