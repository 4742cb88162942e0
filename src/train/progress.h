/* progress.h - rates and the time left, from steps as they are taken. */
#ifndef DL_TRAIN_PROGRESS_H
#define DL_TRAIN_PROGRESS_H

#include "base/clock.h"
#include "train/step.h"
#include <diloco/train.h>

typedef struct dl_meter {
    dl_time began;           /* joined, and so the first step may begin */
    uint64_t began_position; /* there */
    /* Of the open entry, in positions, where it is worked at in parts: what is done of it, and was
     * when the first step began. 0: nothing is, or nobody says. */
    double ahead, began_ahead;
    double training_s; /* inside inner steps since then */
    double rate;       /* tokens/s, over the last seconds */
    double loss;       /* of the last step that has one */
} dl_meter;

void dl_meter_begin(dl_meter *meter, const diloco_run_info *now);
void dl_meter_step(dl_meter *meter, const dl_step_facts *step);
double dl_meter_wall(const dl_meter *meter); /* seconds since it began */

/* What there is to tell, at `now`. */
diloco_progress dl_meter_progress(const dl_meter *meter, const diloco_run_info *now,
                                  const char *phase);

#endif
