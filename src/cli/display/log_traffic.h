/* log_traffic.h - `diloco log --traffic`.
 *
 * Bytes, requests and times are those that replicas have recorded in the store, summed over all
 * replicas. A price table turns them into a cost. */
#ifndef DL_CLI_DISPLAY_LOG_TRAFFIC_H
#define DL_CLI_DISPLAY_LOG_TRAFFIC_H

#include "cli/cli.h"
#include "cli/plan/plan_pages.h"
#include "view/billed.h"

/* Returns the price of this traffic, in the currency of `prices`. */
double dl_traffic_cost(const dl_billed *traffic, const dl_prices *prices);

/* dl_log_traffic prints a line for each commit from entry `from` on: the traffic of all replicas
 * together. With `from` 0 all bytes of the run by kind follow. Returns DILOCO_ENOENT if the run has
 * no record yet, and DILOCO_EINVAL for a mistake in the price table. */
DL_MUST_CHECK diloco_status dl_log_traffic(const dl_args *args, const char *store, uint64_t from);

#endif
