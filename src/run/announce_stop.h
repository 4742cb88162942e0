/* announce_stop.h - announces the stop of a process before the end of its run. */
#ifndef DL_RUN_ANNOUNCE_STOP_H
#define DL_RUN_ANNOUNCE_STOP_H

#include <diloco/run.h>

/* Creates end/<generation> for a clean stop, so that entries wait for this replica until their
 * deadline only (P11). Call it after the state is saved, and before diloco_run_close. A later
 * generation of the replica rejoins as after any stop. It does nothing if no replica of another
 * machine is in the roster: the replicas of a machine stop together, and the run then resumes with
 * equal bits (P16). A failure is a warning, since it only makes the others wait for run.patience.
 */
void dl_run_announce_stop(diloco_run *run);

#endif
