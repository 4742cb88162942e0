/* launch_numbers.h - whether the replicas that are launched are those that the run waits for.
 *
 * The first entries of a run wait for run.replicas, and after run.start_timeout for
 * run.min_replicas (docs/protocol.md P9). Later entries wait for the members of the log. */
#ifndef DL_CLI_LAUNCH_LAUNCH_NUMBERS_H
#define DL_CLI_LAUNCH_LAUNCH_NUMBERS_H

#include "base/config.h"
#include <diloco/inspect.h>

enum { DL_LAUNCH_NUMBERS_TEXT = 512 };

/* dl_launch_numbers_fit lets a new run wait for the replicas that `--replicas min..max` starts: it
 * sets run.replicas, unless the user did, and for a range run.min_replicas. */
DL_MUST_CHECK diloco_status dl_launch_numbers_fit(dl_config *config, uint32_t min, uint32_t max);

/* dl_launch_numbers_new compares the numbers with the settings of a run that does not exist yet.
 * Returns DILOCO_EREFUSED if the run would wait for replicas that are not started, or begin without
 * some that are. Writes a warning, or "", if the settings let the run begin with fewer replicas,
 * or any machine join it. */
DL_MUST_CHECK diloco_status dl_launch_numbers_new(char warning[DL_LAUNCH_NUMBERS_TEXT],
                                                  const dl_config *config, uint32_t min,
                                                  uint32_t max);

/* dl_launch_numbers_existing writes a warning, or "", about a run whose first entry waits for more
 * replicas than the ranks below `max` and the names that have joined it. */
void dl_launch_numbers_existing(char warning[DL_LAUNCH_NUMBERS_TEXT], const diloco_run_status *run,
                                uint32_t max);

#endif
