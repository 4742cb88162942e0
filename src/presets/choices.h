/* choices.h - option values that come from the tables of other folders: the error for a misspelt
 * one names the nearest and all values. */
#ifndef DL_PRESETS_CHOICES_H
#define DL_PRESETS_CHOICES_H

#include "base/config.h"
#include <diloco/train.h>

typedef const char *(*dl_name_at)(size_t i); /* NULL after the last */

/* DILOCO_EINVAL: "<option>: "<name>" is unknown; did you mean <nearest>; there is: a, b, c". */
DL_MUST_CHECK diloco_status dl_choice_in(dl_name_at name_at, const char *option, const char *name);

/* All options that diloco_choice_at knows. */
DL_MUST_CHECK diloco_status dl_choices_check(const dl_config *config);

#endif
