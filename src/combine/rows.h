/* rows.h - one row a combiner: its own file defines it, combine.c lists it. */
#ifndef DL_COMBINE_ROWS_H
#define DL_COMBINE_ROWS_H

#include "combine/combine.h"

extern const dl_combiner dl_combiner_mean;

#endif
