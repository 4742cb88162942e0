/* stop.h - carries hooks->stop, which a signal handler sets, into a run that may be waiting for
 * its store. */
#ifndef DL_TRAIN_STOP_H
#define DL_TRAIN_STOP_H

#include "base/status.h"
#include <diloco/run.h>

typedef struct dl_stop dl_stop;

/* Returns true if the flag is set, which another thread or a signal handler does. */
static inline bool dl_stop_asked(const volatile int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

/* Watches *flag until dl_stop_destroy. Once it is set, diloco_run_interrupt is called within 50 ms.
 * The flag and the run are borrowed. If the flag is NULL, so is *out, which is fine below. Returns
 * DILOCO_ENOMEM if no thread can be started. */
DL_MUST_CHECK diloco_status dl_stop_create(dl_stop **out, const volatile int *flag,
                                           diloco_run *run);
void dl_stop_destroy(dl_stop *stop);

#endif
