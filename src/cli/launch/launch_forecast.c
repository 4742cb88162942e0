/* launch_forecast.c - see launch_forecast.h. The time of an entry includes exchanges and waits for
 * other replicas, so the link then counts as infinitely fast. */
#include "cli/launch/launch_forecast.h"

#include "cli/crew/crew.h"
#include "cli/display/units.h"
#include "cli/plan/plan_pages.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bits per second of a link that takes no time. */
#define ANY_RATE 1e18

/* The topology that training would choose, by its name. */
static dl_exchange exchange_of(const char *name)
{
    for (int e = 0; e < DL_N_EXCHANGES; e++)
        if (strcmp(name, dl_exchange_names[e]) == 0) return (dl_exchange)e;
    return DL_ALLGATHER;
}

/* diloco_train_plan counts parameters and steps. The data is not needed for that, and may be on
 * other machines only. `run` is a copy of the caller's. */
static diloco_status forecast(dl_launch_forecast *out, dl_config *run, const dl_launch_left *left,
                              const dl_prices *prices)
{
    diloco_memory_plan memory;
    dl_plan_choice choice;
    run->train_path[0] = run->test_path[0] = '\0';
    DL_TRY(dl_crew_fill_in(run));
    DL_TRY(diloco_train_plan(&memory, run));
    DL_TRY(dl_plan_of_config(&choice, run, (double)memory.steps, (uint32_t)run->layers,
                             exchange_of(memory.exchange)));
    const double steps = ceil(left->part * (double)memory.steps);
    if (steps < 1) return DILOCO_OK;
    dl_plan_task task = {.parameters = (double)memory.parameters,
                         .step_s = left->step_s > 0 ? left->step_s
                                                    : left->entry_s * left->entries / steps,
                         .steps = steps,
                         .replicas = left->replicas,
                         .link = left->link,
                         .heartbeat_s = run->heartbeat_s,
                         .snapshot_s = run->snapshot_s};
    if (!(task.link.up_bps > 0)) task.link = (dl_plan_link){ANY_RATE, ANY_RATE, 0};
    const dl_forecast f = dl_plan_forecast(&task, &choice, prices);
    const double hours = f.wall_s / 3600;
    out->known = true;
    out->wall_s = f.wall_s;
    if (!prices) return DILOCO_OK;
    out->machine = left->replicas * hours * prices->machine_hour;
    out->store = fmax(0, f.cost - out->machine); /* rounding */
    return DILOCO_OK;
}

diloco_status dl_launch_forecast_of(dl_launch_forecast *out, const dl_config *run,
                                    const dl_launch_left *left, const dl_prices *prices)
{
    *out = (dl_launch_forecast){.known = false};
    if ((!(left->step_s > 0) && !(left->entry_s > 0)) || !left->replicas) return DILOCO_OK;
    dl_config *copy = malloc(sizeof *copy);
    if (!copy) return dl_fail(DILOCO_ENOMEM, "out of memory for a forecast");
    memcpy(copy, run, sizeof *copy);
    const diloco_status status = forecast(out, copy, left, prices);
    free(copy);
    /* A run that the planner cannot describe has no forecast. */
    return status == DILOCO_ENOMEM ? status : DILOCO_OK;
}

/* The time of an entry of the slowest replica that trains; 0: none has reported one. A single
 * heartbeat's steps per second are not used: they are 0 while a replica waits. */
static double slowest(const diloco_run_status *run)
{
    double most = 0;
    for (size_t i = 0; i < run->n_replicas; i++)
        if (!run->replicas[i]->ended) most = fmax(most, run->replicas[i]->entry_s);
    return most;
}

static diloco_status forecast_now(dl_launch_forecast *out, dl_config *config, const char *url,
                                  dl_launch_left *left, const dl_prices *prices)
{
    diloco_run_status run;
    DL_TRY(diloco_run_status_read(&run, url, 0));
    const double total = (double)run.entries_total;
    left->entries = total - (double)run.entries;
    left->part = total > 0 ? left->entries / total : 0;
    left->entry_s = slowest(&run);
    diloco_run_status_free(&run);
    DL_TRY(dl_config_set(config, "run.store", url, "given"));
    DL_TRY(diloco_run_config(config, url));
    DL_TRY(dl_launch_forecast_of(out, config, left, prices));
    out->waits = !out->known && !(left->step_s > 0) && !(left->entry_s > 0);
    return DILOCO_OK;
}

diloco_status dl_launch_forecast_now(dl_launch_forecast *out, const char *url, dl_launch_left *left,
                                     const dl_prices *prices)
{
    *out = (dl_launch_forecast){.known = false};
    dl_config *config = malloc(sizeof *config);
    if (!config) return dl_fail(DILOCO_ENOMEM, "out of memory for a forecast");
    dl_config_init(config);
    const diloco_status status = forecast_now(out, config, url, left, prices);
    free(config);
    return status;
}

/* ---- output */

const char *dl_launch_forecast_text(char out[DL_LAUNCH_FORECAST_TEXT], const dl_launch_forecast *f,
                                    const dl_prices *prices)
{
    dl_unit_text time;
    char machine[DL_PLAN_MISSING], store[DL_PLAN_MISSING];
    const int n =
        snprintf(out, DL_LAUNCH_FORECAST_TEXT, "%s to the end", dl_time_text(time, f->wall_s));
    if (!prices) return out;
    dl_plan_missing_prices(machine, prices, false);
    dl_plan_missing_prices(store, prices, true);
    snprintf(out + n, DL_LAUNCH_FORECAST_TEXT - (size_t)n,
             ", %.2f %s of machine time and %.2f %s of the store (prices of %s%s%s%s%s)",
             f->machine, prices->currency, f->store, prices->currency, prices->date,
             *machine || *store ? ", without " : "", machine, *machine && *store ? ", " : "",
             store);
    return out;
}

void dl_launch_forecast_json(dl_json *j, const dl_launch_forecast *f, const dl_prices *prices)
{
    if (!f->known) {
        dl_json_null(j, "forecast");
        return;
    }
    dl_json_object(j, "forecast");
    dl_json_f64(j, "wall_s", f->wall_s);
    if (prices) {
        dl_json_f64(j, "machine_cost", f->machine);
        dl_json_f64(j, "store_cost", f->store);
    } else {
        dl_json_null(j, "machine_cost");
        dl_json_null(j, "store_cost");
    }
    dl_json_end(j);
}
