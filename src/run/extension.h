/* extension.h - a run that continues another one's schedule and position in the data
 * (trainer.init_as = "extension"): its trainer.first_step is where the other run stopped. */
#ifndef DL_RUN_EXTENSION_H
#define DL_RUN_EXTENSION_H

#include "base/config.h"

/* Returns DILOCO_EREFUSED if the kind of run has no step that all its replicas share, and
 * DILOCO_EINVAL if its steps or samples cannot be counted. */
DL_MUST_CHECK diloco_status dl_run_check_extension(const dl_config *config);

/* Before a run is created as an extension: compares its data with that of the run which
 * trainer.init_from names, and sets trainer.first_step, which has to be 0 or right. `data_digest`
 * is this machine's, or "" if it is not known yet. Changes nothing in a run that is no extension.
 * A second call checks that the other run has not moved since the first one. Returns
 * DILOCO_EREFUSED if trainer.init_from is no run, has no entry or still trains. Returns
 * DILOCO_EDIFFERS if a step would have other samples, and DILOCO_EINVAL if another
 * trainer.first_step was given, or the steps or samples cannot be counted. Otherwise returns the
 * errors of reading a run. */
DL_MUST_CHECK diloco_status dl_run_extend(dl_config *config, const char *data_digest);

/* Takes trainer.first_step of a run that exists. A process that names the run to extend does not
 * have to name its step, and does not read that run. */
void dl_run_take_first_step(dl_config *config, const dl_config *run);

#endif
