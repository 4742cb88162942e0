/* sse.h - server-sent events (HTML standard, 9.2), read as they arrive: lines of "event: <name>"
 * and "data: <text>", an empty line ends an event. Fields other than these are passed over, as
 * are events without data; a line longer than DL_SSE_LINE loses its event. Allocates nothing. */
#ifndef DL_STORE_HTTP_SSE_H
#define DL_STORE_HTTP_SSE_H

#include <stdbool.h>
#include <stddef.h>

enum { DL_SSE_LINE = 1024, DL_SSE_NAME = 32 };

typedef void (*dl_sse_fn)(void *context, const char *event, const char *data);

typedef struct dl_sse { /* zeroed at first, and for a new stream */
    char line[DL_SSE_LINE];
    size_t len;
    bool too_long, has_data, lost;
    char event[DL_SSE_NAME]; /* "": a message */
    char data[DL_SSE_LINE];  /* the last line of it */
} dl_sse;

void dl_sse_add(dl_sse *sse, const void *bytes, size_t n, dl_sse_fn on_event, void *context);

#endif
