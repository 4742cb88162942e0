/* liveness.c - see liveness.h.
 *
 * Names come from the store, where an attacker can create any number of them. So a full table gives
 * up rows of replicas that the caller does not judge, the one that was seen longest ago first. */
#include "protocol/liveness.h"

#include <stdio.h>
#include <string.h>

static dl_watched *row_of(const dl_watch *watch, const char *replica)
{
    for (size_t i = 0; i < watch->n; i++)
        if (!strcmp(watch->at[i].generation.replica, replica)) return &watch->at[i];
    return NULL;
}

/* Returns true if the replica was judged since the last look or between the last two. Only members
 * of a roster are judged. */
static bool is_judged(const dl_watch *watch, const dl_watched *w)
{
    return w->judged && w->judged >= watch->looks;
}

static bool is_older(const dl_watched *a, const dl_watched *b)
{
    return a->judged != b->judged ? a->judged < b->judged : a->seen < b->seen;
}

/* Returns the row that a full table can spare, or NULL. Rows of the last look are spared only if
 * `recent` is true. */
static dl_watched *spare_row(dl_watch *watch, bool recent)
{
    dl_watched *oldest = NULL;
    for (size_t i = 0; i < watch->n; i++) {
        dl_watched *w = &watch->at[i];
        if (is_judged(watch, w) || (!recent && w->seen == watch->looks)) continue;
        if (!oldest || is_older(w, oldest)) oldest = w;
    }
    return oldest;
}

static dl_watched *free_row(dl_watch *watch, bool recent)
{
    DL_ASSERT(watch->n <= DL_WATCH_MAX);
    return watch->n < DL_WATCH_MAX ? &watch->at[watch->n++] : spare_row(watch, recent);
}

/* A newer generation takes the row of its replica, and an older one has none. */
static dl_watched *row_of_seen(dl_watch *watch, const dl_seen *seen, dl_time now)
{
    dl_watched *w = row_of(watch, seen->generation.replica);
    if (w && w->generation.number > seen->generation.number) return NULL;
    const bool known = w && w->generation.number == seen->generation.number;
    const uint64_t judged = w ? w->judged : 0;
    if (!w) w = free_row(watch, false);
    if (w && !known)
        *w = (dl_watched){.generation = seen->generation,
                          .content = seen->content,
                          .beat = seen->beat,
                          .changed = now,
                          .judged = judged};
    return w;
}

static bool has_changed(const dl_watched *w, const dl_seen *seen)
{
    return seen->beat ? seen->beat > w->beat : !dl_hash_equal(w->content, seen->content);
}

void dl_watch_see(dl_watch *watch, const dl_seen *seen, size_t n_seen, dl_time now)
{
    watch->looks++;
    for (size_t i = 0; i < n_seen; i++) {
        dl_watched *w = row_of_seen(watch, &seen[i], now);
        if (!w) continue;
        w->seen = watch->looks;
        w->ended |= seen[i].ended;
        if (!has_changed(w, &seen[i])) continue;
        w->content = seen[i].content;
        w->beat = seen[i].beat;
        w->changed = now;
    }
}

void dl_watch_present(dl_watch *watch, const char *replica, dl_time now)
{
    dl_watched *w = row_of(watch, replica);
    if (!w) return;
    w->changed = now;
    w->judged = watch->looks + 1;
}

/* Watches the absence of a heartbeat. A replica that was seen without getting a row is first
 * watched like an absent one, and its next heartbeat counts as a change. */
static dl_watched *watch_absence(dl_watch *watch, const char *replica, dl_time now)
{
    dl_watched *w = free_row(watch, true);
    if (!w) return NULL;
    *w = (dl_watched){.changed = now};
    snprintf(w->generation.replica, sizeof w->generation.replica, "%s", replica);
    return w;
}

bool dl_watch_is_silent(dl_watch *watch, const char *replica, dl_time now, dl_time patience,
                        dl_generation *whose)
{
    dl_watched *w = row_of(watch, replica);
    if (!w) w = watch_absence(watch, replica, now);
    if (!w) return false;
    w->judged = watch->looks + 1;
    if (!w->ended && now < dl_time_after(w->changed, patience)) return false;
    *whose = w->generation;
    return true;
}
