/* opening.h - from a configuration to a run that can be joined: settings, data, model, tensors. */
#ifndef DL_TRAIN_OPENING_H
#define DL_TRAIN_OPENING_H

#include "train/setup.h"
#include <diloco/run.h>

/* Settings (those that were not given here are the run's), checked, with data and model. *exists:
 * the run is there. max_rows 0: trainer.batch_size. On error nothing needs to be closed. */
DL_MUST_CHECK diloco_status dl_opening_setup(dl_setup *out, bool *exists, const dl_config *config,
                                             size_t max_rows);

/* A run with the model's tensors registered, which hold what a run that is created here begins
 * from. Close it also after an error. */
DL_MUST_CHECK diloco_status dl_opening_run(diloco_run **out, dl_setup *setup, const char *replica,
                                           bool exists);

/* After the join: another replica may have created the run since this one looked for its settings.
 * DILOCO_EDIFFERS: then the model was not built from the run's values of the settings omitted here.
 */
DL_MUST_CHECK diloco_status dl_opening_check(const dl_config *config);

#endif
