/* launch_forecast.h - time and cost of a launched run from now to its end, as `diloco plan`
 * computes them (plan/forecast.h): hours of machines, requests and traffic of the store. */
#ifndef DL_CLI_LAUNCH_LAUNCH_FORECAST_H
#define DL_CLI_LAUNCH_LAUNCH_FORECAST_H

#include "cli/launch/launched.h"
#include "plan/forecast.h"

/* The part of a run that is left, and the machines that train it. */
typedef struct dl_launch_left {
    double part;    /* of the run's entries: 0 to 1 */
    double entries; /* of the log that are left */
    double step_s;  /* of one optimizer step; 0: not known */
    double
        entry_s; /* of one entry, with its exchange and waits: used if step_s is 0; 0: not known */
    uint32_t replicas; /* machines, each of which costs */
    dl_plan_link link; /* of each; a rate of 0: exchanges take no time beyond step_s */
} dl_launch_left;

/* Costs are in the currency of the price table; 0 without one. */
typedef struct dl_launch_forecast {
    bool known;            /* false: the numbers are 0 */
    bool waits;            /* not known because no replica has reported the time of an entry */
    double wall_s;         /* to the end of the run */
    double machine, store; /* cost of the machines; of requests and traffic of the store */
} dl_launch_forecast;

/* dl_launch_forecast_of computes the forecast of a run with these settings. `prices` may be NULL.
 * *out is not known if step_s and entry_s are 0, or if `diloco plan` does not know the codec.
 * Returns DILOCO_ENOMEM only. */
DL_MUST_CHECK diloco_status dl_launch_forecast_of(dl_launch_forecast *out, const dl_config *run,
                                                  const dl_launch_left *left,
                                                  const dl_prices *prices);

/* dl_launch_forecast_now does that for the run in the store at `url`. It sets left->part and
 * left->entries by the log, and left->entry_s by the slowest replica in the heartbeats.
 * Returns DILOCO_ENOMEM, and errors of the store. */
DL_MUST_CHECK diloco_status dl_launch_forecast_now(dl_launch_forecast *out, const char *url,
                                                   dl_launch_left *left, const dl_prices *prices);

/* dl_launch_forecast_text writes "3.2 h to the end, 31.20 EUR of machine time and 2.10 EUR of the
 * store (prices of 2026-01-31)", without costs if `prices` is NULL. Prices that the table lacks are
 * named. Returns out. */
enum { DL_LAUNCH_FORECAST_TEXT = 384 };
const char *dl_launch_forecast_text(char out[DL_LAUNCH_FORECAST_TEXT], const dl_launch_forecast *f,
                                    const dl_prices *prices);

/* dl_launch_forecast_json adds the member "forecast": wall_s, machine_cost, store_cost; null if it
 * is not known. Costs are null without prices. */
void dl_launch_forecast_json(dl_json *j, const dl_launch_forecast *f, const dl_prices *prices);

#endif
