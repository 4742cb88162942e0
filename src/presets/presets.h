/* presets.h - the preset table, for what checks a configuration. Programs use
 * include/diloco/config.h. */
#ifndef DL_PRESETS_PRESETS_H
#define DL_PRESETS_PRESETS_H

#include "base/config.h"
#include <diloco/train.h>

/* Returns DILOCO_EINVAL if no preset has this name; the error names the nearest. */
DL_MUST_CHECK diloco_status dl_preset_check(const char *name);

/* The value of an unset option in the configuration's preset: the preset's value, or the
 * default. */
const char *dl_preset_gives(const dl_config *config, const char *option);

/* Is the configuration one of this preset? */
bool dl_preset_is(const dl_config *config, const char *name);

#endif
