/* liveness.h - who is silent: whose heartbeat has not changed for so long as we have watched (P11).
 *
 * Only the observer's own clock counts, and only from when it first saw a content: no clock of
 * another machine is believed. Of a replica's lives the newest is the one that has to beat. */
#ifndef DL_PROTOCOL_LIVENESS_H
#define DL_PROTOCOL_LIVENESS_H

#include "protocol/machine.h"

enum { DL_WATCH_MAX = 4096 };

typedef struct dl_watched {
    dl_life life;
    dl_hash content;
    dl_time changed; /* when we first saw this content */
    bool ended;
} dl_watched;

typedef struct dl_watch {
    dl_watched *at; /* [DL_WATCH_MAX], the owner's */
    size_t n;
} dl_watch;

/* Take note of a listing of hb/ and end/. */
void dl_watch_see(dl_watch *watch, const dl_seen *seen, size_t n_seen, dl_time now);

/* Has the replica ended, or its heartbeat (or the absence of one) been the same for `patience`?
 * Begins to watch a replica that was never seen. *whose is set when silent. More replicas than
 * fit are never called silent. */
bool dl_watch_is_silent(dl_watch *watch, const char *replica, dl_time now, dl_time patience,
                        dl_life *whose);

#endif
