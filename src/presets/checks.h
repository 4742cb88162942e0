/* checks.h - errors of a configuration that can be found from it alone.
 *
 * A check is a function of the configuration: and a new one is one row of a table in checks.c,
 * contract.c or swarm_checks.c. tests/matrix has every refusal and warning, and docs/refusals.md
 * is made from it. */
#ifndef DL_PRESETS_CHECKS_H
#define DL_PRESETS_CHECKS_H

#include "base/config.h"
#include "base/sample.h"

/* Check the configuration. Returns DILOCO_EINVAL for an unknown name or settings that contradict
 * each other, and DILOCO_EREFUSED if it cannot be faithful or is not built. The error names the
 * option, its value and the way out. Opens nothing. */
DL_MUST_CHECK diloco_status dl_check_config(const dl_config *config);

/* Check that the model has the fragments that the configuration asks for, and that these fit the
 * schedule. Returns DILOCO_EINVAL or DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_check_model(const dl_config *config, const dl_sample *sample);

/* The part of dl_check_config that concerns logical clients. */
DL_MUST_CHECK diloco_status dl_check_clients(const dl_config *config);

/* Warn of settings that are allowed and probably not meant: fn is called with a short code for the
 * record and a sentence, for each. */
typedef void (*dl_warn_fn)(void *user, const char *code, const char *text);
void dl_check_warnings(const dl_config *config, dl_warn_fn fn, void *user);

/* The step at which a run ends: its length in positions, over all rounds and phases. */
uint64_t dl_positions(const dl_config *config);

#endif
