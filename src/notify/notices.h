/* notices.h - from conditions that hold to notices that are sent: each once while it lasts, and
 * seldom enough for a person. Pure: the caller gives the time. One thread at a time. */
#ifndef DL_NOTIFY_NOTICES_H
#define DL_NOTIFY_NOTICES_H

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Events with the names that a receiver gets. */
#define DL_NOTICE_EVENTS(X)                                                                        \
    X(REPLICA_LOST, "replica-lost")                                                                \
    X(RUN_STALLED, "run-stalled")                                                                  \
    X(DIVERGENCE, "divergence")                                                                    \
    X(STORE_UNREACHABLE, "store-unreachable")                                                      \
    X(RUN_COMPLETE, "run-complete")

typedef enum dl_notice_event {
#define DL_NOTICE_ENUM(name, text) DL_NOTICE_##name,
    DL_NOTICE_EVENTS(DL_NOTICE_ENUM)
#undef DL_NOTICE_ENUM
} dl_notice_event;

const char *dl_notice_event_name(dl_notice_event event);

enum { DL_NOTICES = 64, DL_NOTICE_TEXT = 512, DL_NOTICES_HOURLY = 20 };
#define DL_NOTICE_AGAIN (600 * DL_SECOND) /* the same condition may be sent again after that */

typedef struct dl_notice {
    dl_notice_event event;
    char replica[32]; /* "": of the run */
    char text[DL_NOTICE_TEXT];
    uint64_t withheld; /* notices since the last one that were not sent, to be seldom enough */
} dl_notice;

typedef struct dl_notices {
    struct dl_notice_slot {
        dl_notice_event event;
        char replica[32];
        bool used, holds, reported, withheld; /* the last two: since it holds */
        dl_time sent;                         /* 0: never */
    } slots[DL_NOTICES];
    dl_time recent[DL_NOTICES_HOURLY]; /* when the newest were sent, a ring */
    uint64_t n_sent, withheld;
} dl_notices;

/* Take the conditions that hold now, and give the notices to send, at most n of them. A run that is
 * complete is always reported. Conditions beyond DL_NOTICES at once are left out. */
size_t dl_notices_take(dl_notices *notices, dl_notice *out, const dl_notice *holding, size_t n,
                       dl_time now);

#endif
