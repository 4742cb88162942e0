/* store_patience.h - repeats calls of a store that fails in a way that may recover, with growing
 * pauses, until run.store_timeout is over.
 *
 *     for (;;) {
 *         dl_patience_call(&p, store);
 *         status = the call;
 *         failed = dl_patience_store_failed(&p, store, status);
 *         if (!dl_patience_again(&p, failed, &status, limit_s)) return status;
 *         if (p.first) report it;
 *         dl_patience_pause(&p, stop, user);
 *     }
 *
 * The first failure of a series is always repeated: a process that was stopped in a call finds that
 * the time of the call is over. */
#ifndef DL_RUN_STORE_PATIENCE_H
#define DL_RUN_STORE_PATIENCE_H

#include "store/store.h"

/* since: when the current series of failures began; 0: the store answers. first: the last failure
 * began a series, so it is the one to report. pause: before the next attempt. */
typedef struct dl_patience {
    dl_time since, pause;
    bool first;
    uint64_t failed_before; /* of the tally's n_failed, before the call */
} dl_patience;

/* Call it before each attempt. */
void dl_patience_call(dl_patience *p, const dl_store *store);

/* Returns whether the store has failed in a way that may recover. The caller's own parts (an outer
 * optimizer, a device, a file of invitations) report EIO and EFULL, too. These count as the store's
 * only if a store handle has counted a failed call since dl_patience_call. */
bool dl_patience_store_failed(const dl_patience *p, const dl_store *store, diloco_status status);

/* Returns true if the call is to be repeated after a pause. `failed`: *status is a failure that may
 * recover; another result ends the series. Returns false, too, if the series has lasted longer than
 * limit_s. *status is then DILOCO_EUNREACHABLE instead of DILOCO_EIO or DILOCO_ETIMEDOUT, with the
 * same text, because a later process may succeed. */
DL_MUST_CHECK bool dl_patience_again(dl_patience *p, bool failed, diloco_status *status,
                                     double limit_s);

/* Sleeps for p->pause, and ends within 100 ms once stop(user) returns true. The next pause is twice
 * as long, up to 5 seconds. */
void dl_patience_pause(dl_patience *p, bool (*stop)(const void *user), const void *user);

#endif
