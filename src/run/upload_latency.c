/* upload_latency.c - see upload_latency.h. */
#include "run/upload_latency.h"

#include <math.h>

void dl_trips_layout(dl_trips *t, dl_arena *arena, size_t n)
{
    t->n = n;
    t->under_way = DL_ARENA_ARRAY(arena, dl_trip, n);
}

void dl_trips_train(dl_trips *t, dl_time now)
{
    t->resumed = now;
}

void dl_trips_step(dl_trips *t)
{
    t->steps++;
}

/* Adds the time since training resumed. A second pause adds nothing. */
void dl_trips_pause(dl_trips *t, dl_time now)
{
    if (t->resumed) t->trained += now - t->resumed;
    t->resumed = 0;
}

void dl_trips_taken(dl_trips *t, uint64_t entry, dl_time now)
{
    t->under_way[entry % t->n] = (dl_trip){.entry = entry, .taken = now};
}

/* The slot may have the trip of another entry, if this one was captured by an earlier
 * generation. */
void dl_trips_folded(dl_trips *t, uint64_t entry, dl_time now)
{
    dl_trip *trip = &t->under_way[entry % t->n];
    if (!trip->taken || trip->entry != entry) return;
    t->last[t->n_done++ % DL_TRIPS] = now - trip->taken;
    trip->taken = 0;
}

/* Converts the longest trip from seconds to steps, by the mean duration of a step so far. */
uint64_t dl_trips_overlap(const dl_trips *t)
{
    dl_time longest = 0;
    for (uint64_t i = 0; i < DL_TRIPS && i < t->n_done; i++)
        if (t->last[i] > longest) longest = t->last[i];
    if (!longest || !t->steps || !t->trained) return 0;
    return (uint64_t)ceil((double)longest * (double)t->steps / (double)t->trained);
}
