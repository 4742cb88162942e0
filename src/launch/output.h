/* output.h - the output of a replica, from its backend or from the run's store.
 *
 * Where the backend has no log (dl_executor.logs is NULL), each replica is started by `diloco ship`
 * and uploads its output to the store (shipper.h). A reader gets the parts in their order. */
#ifndef DL_LAUNCH_OUTPUT_H
#define DL_LAUNCH_OUTPUT_H

#include "launch/executor.h"
#include "store/store.h"

/* Returns true if replicas of this executor ship their output to the store. */
static inline bool dl_output_is_shipped(const dl_executor *executor)
{
    return !executor->logs;
}

/* dl_output_read gives each line of the output of a launched job to fn: the lines so far, or with
 * `follow` all lines until the replica has ended. Parts in the store may be forged: one that is no
 * part is left out, with a warning in the log. Returns errors of the executor, of the store, and of
 * fn. While it follows, a store or a backend that does not answer is waited for. */
DL_MUST_CHECK diloco_status dl_output_read(const dl_executor *executor, const dl_launch_spec *spec,
                                           dl_store *store, const dl_job *job, bool follow,
                                           dl_job_line_fn fn, void *user);

#endif
