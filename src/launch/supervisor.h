/* supervisor.h - keep the replicas of a run as many as are wanted, until the run is complete.
 *
 * 1. A rank that was never started is started. One that is LOST is started again with the next
 *    generation, up to launch.restarts times.
 * 2. It is announced in the book first. So of two launchers one starts it, and a launcher that
 *    was killed in between finds what it was about to do.
 * 3. A run is complete when its store says so. Exit codes alone do not complete it. Replicas
 *    whose exit code is unknown or wrong do not fail a run that is complete.
 * 4. Where the backend itself starts a container again without end (caps.must_be_stopped), the
 *    run's count of processes is the limit: a replica that does not begin within launch.lost_after,
 *    or begins more than launch.restarts times again, is LOST.
 *
 * A launcher ends with DILOCO_EREFUSED when another one has begun the run with another executor,
 * which is possible once every replica is over.
 *
 * A replica that FAILED is not started again, since the next one would fail, too. There are three
 * exceptions. One is exit code 4, the store did not answer or was full: the next one is started
 * after a pause, which doubles. The second is a failure while an earlier generation of it still
 * ran: that one is stopped first. The third is a replica that the backend refused to start: while
 * others run, it is asked for again after a pause. A refusal at the first start ends the launch,
 * unless as many run as are wanted at least (--replicas A..B). */
#ifndef DL_LAUNCH_SUPERVISOR_H
#define DL_LAUNCH_SUPERVISOR_H

#include "launch/launch_control.h"

/* Returns true if a wanted replica has ended in a way that only a new "begin" restarts. */
bool dl_control_is_stuck(const dl_control *control);

/* dl_control_start reads the book and starts the missing replicas once. It waits for none of them.
 * But it waits, at most about a minute, for replicas that another launcher has announced and not
 * recorded as started, and takes them over then. on_notice gets a line about each replica that is
 * not started because of its pause.
 * Returns DILOCO_EINTERRUPTED if the launch was cancelled, and DILOCO_EREFUSED if a replica is
 * missing and the budget is used up. Other errors are those of the store and of the executor. */
DL_MUST_CHECK diloco_status dl_control_start(const dl_control *control);

/* dl_control_follow starts, follows and restarts until the run is complete and every replica is
 * over. Errors that may pass are reported once and waited out.
 *
 * Returns DILOCO_EINTERRUPTED after `stop`, when the replicas run on, or if the launch was
 * cancelled. Returns DILOCO_EIO if every replica is over and the run is not complete, and
 * DILOCO_EREFUSED if the budget is the reason. */
DL_MUST_CHECK diloco_status dl_control_follow(const dl_control *control);

/* dl_control_poll asks the executor about the jobs that are not over, and writes changes into the
 * book. */
DL_MUST_CHECK diloco_status dl_control_poll(const dl_control *control);

/* dl_control_collect waits until all replicas are over, at most timeout_s seconds (0: as long as it
 * takes). It starts none. After a cancel it stops replicas that were announced and have no id
 * (executor.h, `find`). Secrets are removed unless a launch may still start a replica again.
 * Returns DILOCO_ETIMEDOUT, or DILOCO_EINTERRUPTED after `stop`. */
DL_MUST_CHECK diloco_status dl_control_collect(const dl_control *control, double timeout_s);

/* dl_control_stop_surplus asks the ranks from book->max on to stop. */
DL_MUST_CHECK diloco_status dl_control_stop_surplus(const dl_control *control);

/* dl_control_cancel writes into the book that the launch is cancelled, and then asks all replicas
 * to stop. In this order another launcher does not start them again meanwhile. A replica whose
 * launcher ended before it recorded the id is searched by its name. If it is not found within about
 * a minute, it is LOST; on_notice gets a line about this wait. Lost replicas that may still run are
 * asked as well; on_notice gets a line about each one that does not answer. */
DL_MUST_CHECK diloco_status dl_control_cancel(const dl_control *control);

#endif
