/* outer_options.h - options of the outer step in [server.diloco], and of Plato's [server]. */
#ifndef DL_BASE_OPTIONS_OUTER_OPTIONS_H
#define DL_BASE_OPTIONS_OUTER_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_SERVERS(X) \
    X(DL_SERVER_DILOCO, "diloco") \
    X(DL_SERVER_FEDAVG, "fedavg") \
    X(DL_SERVER_FEDAVGM, "fedavgm") \
    X(DL_SERVER_FEDPROX, "fedprox") \
    X(DL_SERVER_FEDADAM, "fedadam") \
    X(DL_SERVER_FEDYOGI, "fedyogi") \
    X(DL_SERVER_FEDADAGRAD, "fedadagrad")

#define DL_OUTER_LRS(X) \
    X(DL_OUTER_LR_CONSTANT, "constant") \
    X(DL_OUTER_LR_COSINE, "cosine")

#define DL_APPLIES(X) \
    X(DL_APPLY_PARAMETERS, "parameters") \
    X(DL_APPLY_ALL_FLOATING, "all_floating")

#define DL_OUTER_CHOICES(X) \
    X(dl_server_choice, DL_SERVERS) \
    X(dl_outer_lr_choice, DL_OUTER_LRS) \
    X(dl_apply_choice, DL_APPLIES)
// clang-format on

DL_OUTER_CHOICES(DL_CHOICE)

#endif
