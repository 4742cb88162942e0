/* krum.h - the score that Krum, multi-Krum and Bulyan choose by. */
#ifndef DL_COMBINE_KRUM_H
#define DL_COMBINE_KRUM_H

#include "combine/combine.h"

/* score[i] = sum of the squared distances to the n_left - f - 2 (at least 1) nearest others among
 * the inputs that are not `gone`; n_left is their number. Infinite for those that are. */
void dl_krum_scores(double *score, const dl_combine_view *view, const bool *gone, size_t n_left);

#endif
