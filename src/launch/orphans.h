/* orphans.h - lost replicas that may still run, and cost.
 *
 * A replica that was lost without an answer may run on, and keep the next generation from its
 * state. The book keeps the last lost generation of each rank as its orphan. */
#ifndef DL_LAUNCH_ORPHANS_H
#define DL_LAUNCH_ORPHANS_H

#include "launch/launch_control.h"

/* dl_orphan_stop asks one orphan to stop. Its machine often cannot be reached, so an error is a
 * notice at most: with `report`, for an orphan that no restart follows. */
void dl_orphan_stop(const dl_control *control, dl_book_rank *rank, bool report);

/* dl_orphans_poll asks the executor about all orphans, and forgets those that are over: their ids
 * are empty afterwards. One that keeps its id runs (orphan_runs), or has no answer. Returns
 * DILOCO_ENOMEM; an executor that fails is no answer. */
DL_MUST_CHECK diloco_status dl_orphans_poll(const dl_control *control);

/* dl_orphans_stop polls the orphans and stops those that run; with `all` also those without an
 * answer. Returns DILOCO_ENOMEM; errors of the executor are reported at most. */
DL_MUST_CHECK diloco_status dl_orphans_stop(const dl_control *control, bool all);

/* dl_orphans_stop_lost asks replicas that were just lost to stop, each once. One that the executor
 * itself has reported as lost is asked only before it is started again, since some backends drop
 * the output of a job that is stopped. */
void dl_orphans_stop_lost(const dl_control *control);

#endif
