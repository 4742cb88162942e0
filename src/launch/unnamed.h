/* unnamed.h - replicas that a launcher has announced in the book, and that have no id there. Their
 * launcher is between the two records, or was interrupted. The backend may have such a replica, so
 * it is searched by its name. */
#ifndef DL_LAUNCH_UNNAMED_H
#define DL_LAUNCH_UNNAMED_H

#include "launch/launch_control.h"

/* dl_unnamed_check_ids returns DILOCO_EPROTO if the backend has given one of the jobs [n] an id
 * that its executor would not accept from the book. The id is cleared. */
DL_MUST_CHECK diloco_status dl_unnamed_check_ids(const dl_control *control, dl_job *jobs, size_t n);

/* dl_unnamed_explain sets the message of each replica that another launcher has announced and not
 * named: why it is PENDING. */
void dl_unnamed_explain(const dl_control *control);

/* dl_unnamed_find asks the executor for all unnamed replicas by their names, and writes the ids
 * that it finds into the book. With `give_up` one that is not found is LOST once its launcher has
 * had the time to start it (dl_rank_is_abandoned). Returns errors of the executor and the store. */
DL_MUST_CHECK diloco_status dl_unnamed_find(const dl_control *control, bool give_up);

/* dl_unnamed_report gives on_notice a line about the unnamed replicas of other launchers, once for
 * each: the wait for their launcher, its limit, and `why`, which ends the sentence. */
void dl_unnamed_report(const dl_control *control, const char *why);

/* dl_unnamed_look is for a launcher that starts replicas. Once for each announcement it finds the
 * replicas of other launchers that it must not start itself yet (dl_rank_is_open), and reports the
 * others. Returns the errors of dl_unnamed_find. */
DL_MUST_CHECK diloco_status dl_unnamed_look(const dl_control *control);

/* dl_unnamed_pause waits until the next look for ids. Returns DILOCO_EINTERRUPTED after a request
 * to stop. */
DL_MUST_CHECK diloco_status dl_unnamed_pause(const dl_control *control);

#endif
