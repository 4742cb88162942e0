/* rank.h - the decision whether the next generation of a rank is started, and when. It follows from
 * the book alone. The functions change nothing. */
#ifndef DL_LAUNCH_RANK_H
#define DL_LAUNCH_RANK_H

#include "launch/launch_control.h"

/* How long this launcher has to know another launcher's announcement without a handle before it
 * takes it over. It is longer than a launch call usually takes. */
#define DL_ADOPT_AFTER (60 * DL_SECOND)

/* Returns true if the rank was announced, and not named by the backend. Its launcher was
 * interrupted, or is at work. */
bool dl_rank_is_unnamed(const dl_book_rank *rank);
/* Returns true if the launcher of an unnamed rank has had the time to name it. Call it while this
 * launcher is at no launch. */
bool dl_rank_is_abandoned(const dl_control *control, const dl_book_rank *rank);
/* Returns true if the launch of an unnamed rank is to be repeated. */
bool dl_rank_is_open(const dl_control *control, const dl_book_rank *rank);
/* Returns true if there is an unnamed rank. With `closed` only those count that are not open. */
bool dl_control_has_unnamed(const dl_control *control, bool closed);

/* Returns true if the rank failed while a lost generation of it ran on. The failure may be the
 * doing of that one, which holds the state folder, for example. */
bool dl_rank_failed_beside_orphan(const dl_book_rank *rank);
/* Returns true if the backend did not start the newest generation: it failed and has no id. */
bool dl_rank_was_refused(const dl_book_rank *rank);
/* Returns true if fewer replicas than the most are wanted at least (--replicas A..B), and that
 * number runs. */
bool dl_control_has_enough(const dl_control *control);
/* Returns true if the end of the newest generation permits another one without a new "begin". The
 * generation has to be over. */
bool dl_rank_may_restart(const dl_control *control, const dl_book_rank *rank);
/* Returns true if the next generation is to be started, now or after a pause. */
bool dl_rank_is_missing(const dl_control *control, const dl_book_rank *rank);
/* Returns the seconds until the next generation of a replica that has failed may be started, by the
 * recorded time of its end; 0: there is no pause. */
double dl_rank_pause(const dl_control *control, const dl_book_rank *rank);
/* Returns true if the next generation is to be started now. */
bool dl_rank_is_wanted(const dl_control *control, const dl_book_rank *rank);

#endif
