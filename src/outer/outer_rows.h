/* outer_rows.h - one row an outer optimizer: its own file defines it, outer.c lists it. */
#ifndef DL_OUTER_OUTER_ROWS_H
#define DL_OUTER_OUTER_ROWS_H

#include "outer/outer.h"

extern const dl_outer dl_outer_sgd, dl_outer_momentum, dl_outer_nesterov, dl_outer_adamw,
    dl_outer_adam, dl_outer_fedadam, dl_outer_fedyogi, dl_outer_fedadagrad,
    dl_outer_delayed_nesterov, dl_outer_schedule_free;

#endif
