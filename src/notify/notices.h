/* notices.h - from conditions that hold to notices that are sent.
 *
 * The caller looks at the run from time to time and gives all conditions that hold at that moment.
 * A condition is an event and a replica. It is reported once while it lasts, again only after
 * DL_NOTICE_AGAIN, and all conditions together at most DL_NOTICES_HOURLY times an hour. So a
 * replica that comes and goes does not fill a mailbox.
 *
 * There is no input or output here, and the caller gives the time. One thread at a time. */
#ifndef DL_NOTIFY_NOTICES_H
#define DL_NOTIFY_NOTICES_H

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Events, with the names that a receiver gets. The names are an interface: docs/how-to describes
 * them. */
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

/* The name that a receiver gets, such as "replica-lost". */
const char *dl_notice_event_name(dl_notice_event event);

/* Conditions that are remembered at once, bytes of a text, and notices in an hour. */
enum { DL_NOTICES = 64, DL_NOTICE_TEXT = 512, DL_NOTICES_HOURLY = 20 };
/* The same condition may be sent again after this time. */
#define DL_NOTICE_AGAIN (600 * DL_SECOND)

/* A condition that holds; in the output of dl_notices_take, a notice to send. */
typedef struct dl_notice {
    dl_notice_event event;
    char replica[32]; /* "": of the run */
    char text[DL_NOTICE_TEXT];
    /* Notices since the last one that were not sent because of the limits. Only of a notice to
     * send. */
    uint64_t withheld;
} dl_notice;

/* The memory of the limits. Zeroed is the valid first state. */
typedef struct dl_notices {
    struct dl_notice_slot {
        dl_notice_event event;
        char replica[32];
        /* used: the slot belongs to a condition. holds: it did at the last look. reported and
         * withheld: a notice was sent, or counted as not sent, since it holds. */
        bool used, holds, reported, withheld;
        dl_time sent; /* 0: never */
    } slots[DL_NOTICES];
    /* When the newest notices were sent: a ring, in which n_sent gives the next place. */
    dl_time recent[DL_NOTICES_HOURLY];
    /* n_sent: since the start. withheld: since the last notice that was sent. */
    uint64_t n_sent, withheld;
} dl_notices;

/* dl_notices_take takes the conditions [n] that hold now, and writes the notices to send to `out`,
 * which has room for n. Returns their number. The notice that a run is complete ignores all limits.
 * Conditions beyond DL_NOTICES at once are left out. */
size_t dl_notices_take(dl_notices *notices, dl_notice *out, const dl_notice *holding, size_t n,
                       dl_time now);

#endif
