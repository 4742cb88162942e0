/* data_options.h - options of [data]. */
#ifndef DL_BASE_OPTIONS_DATA_OPTIONS_H
#define DL_BASE_OPTIONS_DATA_OPTIONS_H

#include "base/choice.h"

// clang-format off
#define DL_DEALS(X) \
    X(DL_DEAL_LOCAL, "local") \
    X(DL_DEAL_LOG, "log")

#define DL_STREAMS(X) \
    X(DL_STREAM_PERSISTENT, "persistent") \
    X(DL_STREAM_RESTART, "restart")

#define DL_LABELS(X) \
    X(DL_LABELS_IID, "iid") \
    X(DL_LABELS_NONIID, "noniid")

#define DL_DATA_CHOICES(X) \
    X(dl_deal_choice, DL_DEALS) \
    X(dl_stream_choice, DL_STREAMS) \
    X(dl_labels_choice, DL_LABELS)
// clang-format on

DL_DATA_CHOICES(DL_CHOICE)

#endif
