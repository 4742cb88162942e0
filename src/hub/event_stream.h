/* event_stream.h - streams of changes, so waiting readers need not poll.
 *
 * A stream subscribes to prefixes of paths ("run/c/", "run/log/") and reports each object
 * that comes, changes or goes under them, in server-sent events (HTML standard, 9.2):
 *
 *     event: open                 the subscription is active: look now; later changes
 *     data: <run>                 are reported
 *
 *     data: c/0000000012/r0.0000  this key changed
 *
 *     event: lost                 the reader was too slow; some keys were left out: look now
 *     data:
 *
 *     : still here                after BEAT without an event
 *
 * There is no history: a reader that reconnects gets "open" and looks. Any thread. */
#ifndef DL_HUB_EVENT_STREAM_H
#define DL_HUB_EVENT_STREAM_H

#include "base/clock.h"
#include "base/status.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Prefixes of one stream, and bytes of its queue. Past that size the reader gets "lost". */
enum { DL_STREAM_PREFIXES = 16, DL_STREAM_QUEUE = 64 << 10 };
#define DL_STREAM_BEAT (10 * DL_SECOND)

/* A stream belongs to the connection that opened it; that connection's thread closes it. */
typedef struct dl_stream dl_stream;

/* All streams of a hub. It has to outlive them. */
typedef struct dl_events {
    pthread_mutex_t lock; /* guards all below, and the queues */
    dl_stream *streams;
    bool closed; /* no stream waits any more */
} dl_events;

void dl_events_init(dl_events *events);
void dl_events_deinit(dl_events *events); /* no stream is left */
/* End every stream, now and from now on. */
void dl_events_close(dl_events *events);

/* The open streams of dl_stream_open. */
size_t dl_events_count(dl_events *events);

/* Report a change of "run/key". */
void dl_events_report(dl_events *events, const char *path);

/* `base` ("run/") is left out of the reported keys; prefixes follow it, none: all.
 * `fd` is the reader's connection: when it ends, so does the stream. DILOCO_ENOMEM;
 * DILOCO_EIO: no descriptor left. */
DL_MUST_CHECK diloco_status dl_stream_open(dl_stream **out, dl_events *events, const char *base,
                                           const char *const *prefixes, size_t n, int fd);
/* Opens a stream for dl_stream_await, of one key, which dl_events_count leaves out. The errors are
 * the same. */
DL_MUST_CHECK diloco_status dl_stream_open_awaited(dl_stream **out, dl_events *events,
                                                   const char *base, const char *key, int fd);
void dl_stream_close(dl_stream *stream); /* NULL is fine */

/* Wait for text and copy it out: its length, 1 to cap; 0: the stream has ended. */
size_t dl_stream_read(dl_stream *stream, char *out, size_t cap);
/* For a stream of dl_stream_open_awaited: drops what is in its queue, and returns once there may
 * have been another change. Returns false at `until`, and when the stream has ended. */
bool dl_stream_await(dl_stream *stream, dl_time until);

#endif
