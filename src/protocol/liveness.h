/* liveness.h - which replicas are silent: their heartbeat has not changed for as long as we have
 * watched (P11).
 *
 * Only the observer's own clock counts, and only from when it first saw a content. No other
 * machine's clock is trusted. Only the newest generation of a replica has to write heartbeats. */
#ifndef DL_PROTOCOL_LIVENESS_H
#define DL_PROTOCOL_LIVENESS_H

#include "protocol/request.h"

enum { DL_WATCH_MAX = 4096 };

typedef struct dl_watched {
    dl_generation generation;
    dl_hash content;
    uint64_t beat;   /* dl_seen; the highest so far, so that an old heartbeat is no change */
    dl_time changed; /* when we first saw this content */
    uint64_t seen;   /* number of the last look with a heartbeat; 0: never */
    uint64_t judged; /* number of the look after the last judgement; 0: never judged */
    bool ended;
} dl_watched;

/* It has one row a replica, for the newest generation. */
typedef struct dl_watch {
    dl_watched *at; /* [DL_WATCH_MAX], owned by the watch's owner */
    size_t n;
    uint64_t looks; /* calls of dl_watch_see */
} dl_watch;

/* Records a listing of hb/ and end/. */
void dl_watch_see(dl_watch *watch, const dl_seen *seen, size_t n_seen, dl_time now);

/* Records that the replica has contributed, which counts as a change of its heartbeat. It keeps the
 * replica's row as dl_watch_is_silent does. */
void dl_watch_present(dl_watch *watch, const char *replica, dl_time now);

/* Returns whether the replica has ended, or its heartbeat (or its absence) was the same for
 * `patience`. Begins to watch a replica that was never seen. *whose is set if it is silent.
 * Each call keeps the replica's row until the second look after it. In a full table such rows, and
 * no others, leave a further replica without a row, which is never silent. */
bool dl_watch_is_silent(dl_watch *watch, const char *replica, dl_time now, dl_time patience,
                        dl_generation *whose);

#endif
