/* outer_rows.h - the list of outer optimizers. A new one is a file that defines dl_outer_<name>,
 * and its line here; tests and benchmarks walk the list (dl_outer_at). */
#ifndef DL_OUTER_OUTER_ROWS_H
#define DL_OUTER_OUTER_ROWS_H

#include "outer/outer.h"

// clang-format off
#define DL_OUTERS(X) \
    X(nesterov) \
    X(momentum) \
    X(sgd) \
    X(adam) \
    X(fedadam) \
    X(fedyogi) \
    X(fedadagrad) \
    X(delayed_nesterov) \
    X(schedule_free) \
    X(adamw) \
    X(muon)
// clang-format on

#define DL_DECLARE(name) extern const dl_outer dl_outer_##name;
DL_OUTERS(DL_DECLARE)
#undef DL_DECLARE

#endif
