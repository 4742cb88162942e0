/* emulated_events.c - events of the emulated driver: a stream waits for what another has done.
 *
 * A record is work of its stream, and a wait is work of the other one. A wait is for the last
 * record that was called before it, as the driver's, so an event may be recorded again. */
#include "emulated_parts.h"

#include <stdlib.h>

typedef struct event {
    uint64_t id, records;
    struct event *next;
} event;

static event *events;
static uint64_t next_id = 1;

static event *event_of(const void *handle)
{
    event *e = events;
    while (e && e != handle)
        e = e->next;
    return e;
}

uint64_t emulated_events(void)
{
    uint64_t n = 0;
    for (const event *e = events; e; e = e->next)
        n++;
    return n;
}

void emulated_forget_events(void)
{
    while (events) {
        event *next = events->next;
        free(events);
        events = next;
    }
}

int cuEventCreate(void **out, unsigned flags)
{
    int code = emulated_enter(true);
    if (!code && flags != DL_CUDA_EVENT_DISABLE_TIMING) code = DL_CUDA_INVALID_VALUE;
    event *e = code ? NULL : malloc(sizeof *e);
    if (!code && !e) abort();
    if (e) {
        *e = (event){.id = next_id++, .next = events};
        events = e;
    }
    *out = e;
    return emulated_leave(code);
}

int cuEventDestroy_v2(void *handle)
{
    int code = emulated_enter(true);
    event *e = event_of(handle);
    for (event **at = &events; e && *at; at = &(*at)->next)
        if (*at == e) {
            *at = e->next;
            free(e);
            return emulated_leave(code);
        }
    return emulated_leave(code ? code : DL_CUDA_INVALID_VALUE);
}

int cuEventRecord(void *handle, void *stream)
{
    event *e = event_of(handle);
    if (!e) return DL_CUDA_INVALID_VALUE;
    e->records++;
    emulated_request r = {
        .op = EMULATED_RECORD, .to = e->id, .n = e->records, .stream = (uintptr_t)stream};
    const int code = emulated_ask(&r, NULL);
    if (code) e->records--;
    return code;
}

/* An event that no stream has recorded is no wait. */
int cuStreamWaitEvent(void *stream, void *handle, unsigned flags)
{
    const event *e = event_of(handle);
    if (!e || flags) return DL_CUDA_INVALID_VALUE;
    emulated_request r = {
        .op = EMULATED_AWAIT, .to = e->id, .n = e->records, .stream = (uintptr_t)stream};
    return emulated_ask(&r, NULL);
}
