/* checks.h - errors of a configuration that can be found from it alone. */
#ifndef DL_PRESETS_CHECKS_H
#define DL_PRESETS_CHECKS_H

#include "base/config.h"
#include "base/sample.h"

/* DILOCO_EINVAL: an unknown name, or settings that contradict each other. DILOCO_EREFUSED: it
 * cannot be faithful, or is not built. Opens nothing. */
DL_MUST_CHECK diloco_status dl_check_config(const dl_config *config);

/* Check against the model's tensors: does it have those fragments, and do they fit their schedule?
 * DILOCO_EINVAL, DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_check_model(const dl_config *config, const dl_sample *sample);

/* Of it, what concerns logical clients. */
DL_MUST_CHECK diloco_status dl_check_clients(const dl_config *config);

/* Warn of settings that are allowed and probably not meant: fn is called with a short code for the
 * record and a sentence, for each. */
typedef void (*dl_warn_fn)(void *user, const char *code, const char *text);
void dl_check_warnings(const dl_config *config, dl_warn_fn fn, void *user);

/* The step at which a run ends: its length in positions. */
uint64_t dl_positions(const dl_config *config);

#endif
