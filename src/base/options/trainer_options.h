/* trainer_options.h - options of [trainer], [parameters.optimizer] and [parameters.learning_rate].
 */
#ifndef DL_BASE_OPTIONS_TRAINER_OPTIONS_H
#define DL_BASE_OPTIONS_TRAINER_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_INITS(X) \
    X(DL_INIT_MODEL, "model") \
    X(DL_INIT_CONTINUATION, "continuation")

#define DL_DECAYED(X) \
    X(DL_DECAYED_MATRICES, "matrices") \
    X(DL_DECAYED_ALL, "all")

#define DL_TRAINER_CHOICES(X) \
    X(dl_init_choice, DL_INITS) \
    X(dl_decayed_choice, DL_DECAYED)
// clang-format on

DL_TRAINER_CHOICES(DL_CHOICE)

#endif
