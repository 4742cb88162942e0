/* checks.h - errors of a configuration that can be found from it alone.
 *
 * A check is a function of the configuration. A new one is one row of a table in checks.c,
 * refusals.c, contract.c or swarm_checks.c. A condition between two options needs no function: it
 * is in their rows (row_checks.c). tests/matrix has every refusal and warning, and docs/refusals.md
 * is made from it.
 *
 * A refusal ends the program before anything is opened or created. A warning goes into the record,
 * and the run continues. */
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

/* dl_positions returns the step at which a run ends: its length in positions (optimizer steps of
 * one replica), over all rounds and phases. */
uint64_t dl_positions(const dl_config *config);

#endif
