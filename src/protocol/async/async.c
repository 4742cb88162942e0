/* async.c - see async.h. Everything is a function of the log, so all readers agree. */
#include "protocol/async/async.h"

#include <math.h>
#include <string.h>

static bool counted_before(const dl_roster *roster, const char *replica, uint64_t base)
{
    size_t at;
    return dl_roster_has(roster, replica, &at) && base < roster->misses[at];
}

bool dl_async_is_too_old(const dl_config *config, uint64_t entry, uint64_t base)
{
    return config->max_staleness > 0 && entry - base > (uint64_t)config->max_staleness;
}

bool dl_async_may_count(const dl_roster *roster, uint64_t entry, const dl_config *config,
                        const char *replica, uint64_t base)
{
    return base <= entry && !dl_async_is_too_old(config, entry, base) &&
           !counted_before(roster, replica, base);
}

/* Returns whether it will never count. A replica's generations are tried from the oldest on. */
static bool is_refused(const dl_candidate_table *refused, const dl_listed *l)
{
    const dl_candidate *k = dl_candidate_find(refused, &l->generation);
    if (!k || k->entry < l->entry) return false;
    return k->entry > l->entry || k->validity == DL_INVALID ||
           (k->validity == DL_VALID && k->facts.stats.samples == 0);
}

static bool is_before(const dl_listed *a, const dl_listed *b)
{
    if (a->entry != b->entry) return a->entry < b->entry;
    return dl_generation_compare(&a->generation, &b->generation) < 0;
}

size_t dl_async_choose(const dl_control *control, const dl_config *config, const dl_listed *listed,
                       size_t n, const dl_candidate_table *refused)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const dl_listed *l = &listed[i];
        if (!dl_async_may_count(&control->roster, control->entry, config, l->generation.replica,
                                l->entry))
            continue;
        if (is_refused(refused, l)) continue;
        if (best == SIZE_MAX || is_before(l, &listed[best])) best = i;
    }
    DL_ASSERT(best == SIZE_MAX || best < n);
    return best;
}

const char *dl_async_void_reason(const dl_control *control, const dl_config *config,
                                 const dl_entry *entry)
{
    if (!entry->commit) return NULL;
    if (entry->n_members != 1) return "it counts more than one contribution";
    const dl_member *m = &entry->members[0];
    if (m->entry > entry->entry)
        return "its contribution began from a state that did not exist yet";
    if (dl_async_is_too_old(config, entry->entry, m->entry)) return "its contribution is too old";
    if (counted_before(&control->roster, m->generation.replica, m->entry))
        return "its contribution was counted before";
    return NULL;
}

void dl_async_next_roster(dl_roster *out, const dl_control *control, const dl_entry *entry)
{
    dl_roster_copy(out, &control->roster);
    for (size_t i = 0; i < entry->n_members; i++) {
        const dl_member *m = &entry->members[i];
        dl_roster_add(out, m->generation.replica, (uint32_t)m->entry + 1);
    }
}

uint64_t dl_async_interval(uint64_t interval, double speed, double fastest)
{
    if (!(speed > 0) || !(fastest > 0) || speed >= fastest) return interval;
    const double steps = floor(speed / fastest * (double)interval);
    return steps < 1 ? 1 : (uint64_t)steps;
}
