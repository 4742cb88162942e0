/* presets.h - the preset table, for the code that checks a configuration. Programs use
 * include/diloco/config.h. A preset is a name for the option values of one paper; a configuration
 * names at most one. The table is constant, so any thread may read it. */
#ifndef DL_PRESETS_PRESETS_H
#define DL_PRESETS_PRESETS_H

#include "base/config.h"
#include <diloco/train.h>

/* Returns DILOCO_EINVAL if no preset has this name; the error names the nearest. */
DL_MUST_CHECK diloco_status dl_preset_check(const char *name);

/* The value of an unset option in the configuration's preset: the preset's value, or the
 * default. */
const char *dl_preset_gives(const dl_config *config, const char *option);

/* Returns true if the configuration names this preset. Options may have been changed since. */
bool dl_preset_is(const dl_config *config, const char *name);

#endif
