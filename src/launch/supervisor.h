/* supervisor.h - keep the replicas of a run as many as are wanted, until the run is complete.
 *
 *   1. A rank that was never started is started; one that is LOST is started again with the next
 *      generation, up to launch.restarts times.
 *   2. It is announced in the book first, so that of two launchers one starts it, and a launcher
 *      that was killed in between finds what it was about to do.
 *   3. A run is complete when its store says so. Exit codes alone do not complete it, and replicas
 *      whose exit code is unknown or wrong do not fail a run that is complete.
 *
 * A replica that FAILED is not started again: the next one would fail, too. The exceptions are exit
 * code 4, the store did not answer, and a failure while an earlier generation of it still ran: that
 * one is stopped first. */
#ifndef DL_LAUNCH_SUPERVISOR_H
#define DL_LAUNCH_SUPERVISOR_H

#include "launch/book.h"

typedef struct dl_control {
    const dl_launch_spec *spec;
    const dl_executor *executor;
    dl_book *book;
    double most_machine_s;    /* no replica is started once this much machine time was used; 0: no
                               * limit */
    const volatile int *stop; /* not 0: return, and leave the replicas running */

    void *user;
    /* Is the run complete? After an error it is asked again later. */
    diloco_status (*is_done)(void *user, bool *done);
    void (*on_notice)(void *user, const char *line); /* for a person */
} dl_control;

/* Has a wanted replica ended in a way that only a new "begin" restarts? */
bool dl_control_is_stuck(const dl_control *control);

/* Start what is missing once; do not wait for anything. */
DL_MUST_CHECK diloco_status dl_control_start(const dl_control *control);

/* Is the limit of machine time reached? */
bool dl_control_is_spent(const dl_control *control);

/* Start, follow and restart until the run is complete and every replica is over.
 * DILOCO_EINTERRUPTED: `stop`, the replicas run on; or the launch was cancelled. DILOCO_EIO: every
 * replica is over and the run is not complete. */
DL_MUST_CHECK diloco_status dl_control_follow(const dl_control *control);

/* Poll what is not over, and write into the book what has changed. */
DL_MUST_CHECK diloco_status dl_control_poll(const dl_control *control);

/* Wait for all to be over, at most timeout_s seconds (0: as long as it takes). DILOCO_ETIMEDOUT. */
DL_MUST_CHECK diloco_status dl_control_collect(const dl_control *control, double timeout_s);

/* Stop the ranks above the number of replicas that are wanted. */
DL_MUST_CHECK diloco_status dl_control_stop_surplus(const dl_control *control);

/* Write into the book that the launch is cancelled, and stop all that are not over. */
DL_MUST_CHECK diloco_status dl_control_cancel(const dl_control *control);

#endif
