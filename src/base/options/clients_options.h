/* clients_options.h - options of [clients]: logical clients and their simulated time. */
#ifndef DL_BASE_OPTIONS_CLIENTS_OPTIONS_H
#define DL_BASE_OPTIONS_CLIENTS_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_PAYLOADS(X) \
    X(DL_PAYLOAD_DELTA, "delta") \
    X(DL_PAYLOAD_WEIGHTS, "weights")

#define DL_LOST_STATES(X) \
    X(DL_LOST_STATE_STOP, "stop") \
    X(DL_LOST_STATE_RESET, "reset")

#define DL_SLEEPS(X) \
    X(DL_SLEEP_NORMAL, "normal") \
    X(DL_SLEEP_UNIFORM, "uniform") \
    X(DL_SLEEP_PARETO, "pareto") \
    X(DL_SLEEP_ZIPF, "zipf")

#define DL_CLIENTS_CHOICES(X) \
    X(dl_payload_choice, DL_PAYLOADS) \
    X(dl_lost_state_choice, DL_LOST_STATES) \
    X(dl_sleep_choice, DL_SLEEPS)
// clang-format on

DL_CLIENTS_CHOICES(DL_CHOICE)

#endif
