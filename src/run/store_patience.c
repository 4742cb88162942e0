/* store_patience.c - see store_patience.h. */
#include "run/store_patience.h"

static const dl_time SLICE = 100 * DL_MILLISECOND; /* longest delay before a stop takes effect */
static const dl_time PAUSE_FIRST = 50 * DL_MILLISECOND;
static const dl_time PAUSE_LONGEST = 5 * DL_SECOND;

/* Returns the number of failed calls of all store handles that share the tally. */
static uint64_t failed_calls(const dl_store *store)
{
    const dl_moved *tally = dl_store_tally(store);
    return tally ? atomic_load(&tally->n_failed) : 0;
}

void dl_patience_call(dl_patience *p, const dl_store *store)
{
    p->failed_before = failed_calls(store);
}

bool dl_patience_store_failed(const dl_patience *p, const dl_store *store, diloco_status status)
{
    return status == DILOCO_EUNREACHABLE ||
           (dl_store_may_recover(store, status) && failed_calls(store) != p->failed_before);
}

bool dl_patience_again(dl_patience *p, bool failed, diloco_status *status, double limit_s)
{
    p->first = false;
    if (!failed) {
        p->since = 0;
        return false;
    }
    const dl_time now = dl_clock_now();
    if (!p->since) {
        p->since = now;
        p->pause = PAUSE_FIRST;
        p->first = true;
    }
    if (dl_seconds(now - p->since) <= limit_s) return true;
    *status = dl_store_lasting(*status);
    return false;
}

void dl_patience_pause(dl_patience *p, bool (*stop)(const void *user), const void *user)
{
    for (dl_time left = p->pause; left > 0 && !stop(user); left -= SLICE)
        dl_clock_sleep(left < SLICE ? left : SLICE);
    p->pause = p->pause * 2 < PAUSE_LONGEST ? p->pause * 2 : PAUSE_LONGEST;
}
