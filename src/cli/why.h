/* why.h - the wait of a run, and its reason: `diloco status --why`.
 *
 * "Why" is answered from heartbeats and the log alone, as they were when the status was read.
 * Nothing is written, and no replica is asked. */
#ifndef DL_CLI_WHY_H
#define DL_CLI_WHY_H

#include "base/config.h"
#include <diloco/inspect.h>

/* Lines on stdout: the open entry, the missing replicas and their activity, the rule that
 * closes it, and each replica's deadline with its derivation. `config`: the run's. */
void dl_print_why(const diloco_run_status *run, const dl_config *config);

#endif
