/* log_traffic.h - `diloco log --traffic`.
 *
 * Bytes, requests and times are those that replicas have recorded in the store, summed over all
 * replicas. A price table turns them into a cost. */
#ifndef DL_CLI_DISPLAY_LOG_TRAFFIC_H
#define DL_CLI_DISPLAY_LOG_TRAFFIC_H

#include "cli/cli.h"
#include "cli/plan/plan_pages.h"

/* Traffic as a provider bills it. Machine time is not in it. */
typedef struct dl_traffic {
    double written, read; /* bytes */
    double writes, reads; /* requests */
} dl_traffic;

/* Returns the price of this traffic, in the currency of `prices`. */
double dl_traffic_cost(const dl_traffic *traffic, const dl_prices *prices);

/* dl_traffic_of_run adds up the commits of all replicas' records in the store at `store`. It reads
 * every record of the run. Returns DILOCO_ENOENT if the run has no record yet, and errors of the
 * store. */
DL_MUST_CHECK diloco_status dl_traffic_of_run(dl_traffic *out, const char *store);

/* dl_log_traffic prints a line for each commit from entry `from` on: the traffic of all replicas
 * together. With `from` 0 all bytes of the run by kind follow. Returns DILOCO_ENOENT if the run has
 * no record yet, and DILOCO_EINVAL for a mistake in the price table. */
DL_MUST_CHECK diloco_status dl_log_traffic(const dl_args *args, const char *store, uint64_t from);

#endif
