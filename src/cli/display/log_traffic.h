/* log_traffic.h - `diloco log --traffic`.
 *
 * Bytes, requests and times are those that replicas have recorded in the store, summed over all
 * replicas. A price table turns them into a cost. */
#ifndef DL_CLI_DISPLAY_LOG_TRAFFIC_H
#define DL_CLI_DISPLAY_LOG_TRAFFIC_H

#include "cli/cli.h"

/* Print the traffic of each commit from entry `from` on, of all replicas together: a line each.
 * DILOCO_ENOENT: the run has no record yet; DILOCO_EINVAL: of the price table. */
DL_MUST_CHECK diloco_status dl_log_traffic(const dl_args *args, const char *store, uint64_t from);

#endif
