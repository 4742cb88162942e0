/* opening.h - from a configuration to a run that can be joined: settings, data, model, tensors. */
#ifndef DL_TRAIN_OPENING_H
#define DL_TRAIN_OPENING_H

#include "train/setup.h"
#include <diloco/run.h>

/* Resolves and checks the settings (those not given here are the run's), and opens data and model.
 * *exists: the run exists. *asked: the store has answered whether it does; otherwise an error is
 * the store's. max_rows 0: trainer.batch_size. After an error nothing needs to be closed. */
DL_MUST_CHECK diloco_status dl_opening_setup(dl_setup *out, bool *exists, bool *asked,
                                             const dl_config *config, size_t max_rows);

/* Opens a run with the model's tensors registered. Their values are the first state if this call
 * creates the run. Close it also after an error. */
DL_MUST_CHECK diloco_status dl_opening_run(diloco_run **out, dl_setup *setup, const char *replica,
                                           bool exists);

/* Call it after the join. Another replica may have created the run after this one looked for its
 * settings. Then the model was not built from the run's values of the settings omitted here, and it
 * returns DILOCO_EDIFFERS. */
DL_MUST_CHECK diloco_status dl_opening_check(const dl_config *config);

#endif
