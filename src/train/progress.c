/* progress.c - the rate is an average of the steps' rates, weighted exponentially with a time
 * constant of WINDOW_S. The time left assumes the mean speed since the join, exchanges included. */
#include "train/progress.h"

#include <math.h>

#define WINDOW_S 5.0 /* seconds */

void dl_meter_begin(dl_meter *meter, const diloco_run_info *now)
{
    *meter = (dl_meter){
        .began = dl_clock_now(), .began_position = now->position, .rate = 0, .loss = NAN};
}

void dl_meter_step(dl_meter *meter, const dl_step_facts *step)
{
    double rate = (double)step->tokens / fmax(step->seconds, 1e-9);
    double fresh = 1 - exp(-step->seconds / WINDOW_S);
    meter->rate = meter->training_s > 0 ? meter->rate + fresh * (rate - meter->rate) : rate;
    meter->training_s += step->seconds;
    if (isfinite(step->loss)) meter->loss = step->loss;
}

double dl_meter_wall(const dl_meter *meter)
{
    return dl_seconds(dl_clock_now() - meter->began);
}

diloco_progress dl_meter_progress(const dl_meter *meter, const diloco_run_info *now,
                                  const char *phase)
{
    const double at = (double)now->position + meter->ahead, all = (double)now->positions;
    const double passed = at - (double)meter->began_position - meter->began_ahead;
    return (diloco_progress){
        .step = now->step,
        .position = (uint64_t)at,
        .positions = now->positions,
        .entry = now->entry,
        .entries = now->entries,
        .loss = meter->loss,
        .tokens_per_s = meter->rate,
        .eta_s = passed > 0 ? dl_meter_wall(meter) / passed * fmax(all - at, 0) : -1,
        .phase = phase,
    };
}
