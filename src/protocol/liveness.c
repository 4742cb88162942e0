/* liveness.c - see liveness.h. */
#include "protocol/liveness.h"

#include <stdio.h>
#include <string.h>

static dl_watched *newest_of(const dl_watch *watch, const char *replica)
{
    dl_watched *newest = NULL;
    for (size_t i = 0; i < watch->n; i++) {
        dl_watched *w = &watch->at[i];
        if (strcmp(w->generation.replica, replica) != 0) continue;
        if (!newest || w->generation.number > newest->generation.number) newest = w;
    }
    return newest;
}

/* Returns the row of a generation, a new one if need be, or NULL if there is no space. */
static dl_watched *row_of(dl_watch *watch, const dl_generation *generation, dl_hash content,
                          dl_time now)
{
    for (size_t i = 0; i < watch->n; i++)
        if (dl_generation_equal(&watch->at[i].generation, generation)) return &watch->at[i];
    DL_ASSERT(watch->n <= DL_WATCH_MAX);
    if (watch->n == DL_WATCH_MAX) return NULL;
    dl_watched *w = &watch->at[watch->n++];
    *w = (dl_watched){.generation = *generation, .content = content, .changed = now};
    return w;
}

void dl_watch_see(dl_watch *watch, const dl_seen *seen, size_t n_seen, dl_time now)
{
    for (size_t i = 0; i < n_seen; i++) {
        dl_watched *w = row_of(watch, &seen[i].generation, seen[i].content, now);
        if (!w) continue;
        w->ended |= seen[i].ended;
        if (dl_hash_equal(w->content, seen[i].content)) continue;
        w->content = seen[i].content;
        w->changed = now;
    }
}

/* Watches the absence of a heartbeat. */
static dl_watched *watch_absence(dl_watch *watch, const char *replica, dl_time now)
{
    dl_generation none = {.number = 0};
    snprintf(none.replica, sizeof none.replica, "%s", replica);
    return row_of(watch, &none, (dl_hash){{0}}, now);
}

bool dl_watch_is_silent(dl_watch *watch, const char *replica, dl_time now, dl_time patience,
                        dl_generation *whose)
{
    const dl_watched *w = newest_of(watch, replica);
    if (!w) w = watch_absence(watch, replica, now);
    if (!w || !(w->ended || now >= dl_time_after(w->changed, patience))) return false;
    *whose = w->generation;
    return true;
}
