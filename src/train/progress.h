/* progress.h - the rate of training and the time left, computed from steps as they are taken. One
 * thread uses a meter. */
#ifndef DL_TRAIN_PROGRESS_H
#define DL_TRAIN_PROGRESS_H

#include "base/clock.h"
#include "train/step.h"
#include <diloco/train.h>

typedef struct dl_meter {
    dl_time began;           /* when it joined, so that the first step could begin */
    uint64_t began_position; /* at that time */
    /* The part of the open entry that is done, in positions, now and when the first step began. 0
     * if no part is done, or if it is not known. */
    double ahead, began_ahead;
    double training_s; /* seconds inside inner steps since then */
    double rate;       /* tokens/s, over the last seconds */
    double loss;       /* of the last step that has one */
} dl_meter;

/* Begins the meter at the join. */
void dl_meter_begin(dl_meter *meter, const diloco_run_info *now);
/* Adds a step. A loss that is not finite is not shown. */
void dl_meter_step(dl_meter *meter, const dl_step_facts *step);
double dl_meter_wall(const dl_meter *meter); /* seconds since it began */

/* Returns the progress at `now`, with eta_s -1 if it is not known yet. `phase` is borrowed. */
diloco_progress dl_meter_progress(const dl_meter *meter, const diloco_run_info *now,
                                  const char *phase);

#endif
