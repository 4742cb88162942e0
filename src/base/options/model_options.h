/* model_options.h - options of [parameters.model]. */
#ifndef DL_BASE_OPTIONS_MODEL_OPTIONS_H
#define DL_BASE_OPTIONS_MODEL_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_ROPE_SCALINGS(X) \
    X(DL_ROPE_NONE, "none") \
    X(DL_ROPE_LINEAR, "linear") \
    X(DL_ROPE_LLAMA3, "llama3")

#define DL_MODEL_CHOICES(X) \
    X(dl_rope_scaling, DL_ROPE_SCALINGS)
// clang-format on

DL_MODEL_CHOICES(DL_CHOICE)

#endif
