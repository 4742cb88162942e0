/* upload_latency.c - see upload_latency.h. */
#include "run/upload_latency.h"

#include <math.h>

void dl_upload_latency_layout(dl_upload_latency *t, dl_arena *arena, size_t n)
{
    t->n = n;
    t->uploads = DL_ARENA_ARRAY(arena, dl_upload_in_flight, n);
}

void dl_upload_latency_train(dl_upload_latency *t, dl_time now)
{
    t->resumed = now;
}

void dl_upload_latency_step(dl_upload_latency *t)
{
    t->steps++;
}

/* Adds the time since training resumed. A second pause adds nothing. */
void dl_upload_latency_pause(dl_upload_latency *t, dl_time now)
{
    if (t->resumed) t->trained += now - t->resumed;
    t->resumed = 0;
}

void dl_upload_latency_captured(dl_upload_latency *t, uint64_t entry, dl_time now)
{
    t->uploads[entry % t->n] = (dl_upload_in_flight){.entry = entry, .captured_at = now};
}

/* The slot may have the trip of another entry, if this one was captured by an earlier
 * generation. */
void dl_upload_latency_applied(dl_upload_latency *t, uint64_t entry, dl_time now)
{
    dl_upload_in_flight *upload = &t->uploads[entry % t->n];
    if (!upload->captured_at || upload->entry != entry) return;
    t->last[t->n_done++ % DL_UPLOAD_LATENCIES] = now - upload->captured_at;
    upload->captured_at = 0;
}

/* Converts the longest trip from seconds to steps, by the mean duration of a step so far. */
uint64_t dl_upload_latency_overlap(const dl_upload_latency *t)
{
    dl_time longest = 0;
    for (uint64_t i = 0; i < DL_UPLOAD_LATENCIES && i < t->n_done; i++)
        if (t->last[i] > longest) longest = t->last[i];
    if (!longest || !t->steps || !t->trained) return 0;
    return (uint64_t)ceil((double)longest * (double)t->steps / (double)t->trained);
}
