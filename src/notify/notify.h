/* notify.h - run.notify: a thread that follows a run as its page does. It sends a notice when a
 * replica is lost, the run stalls or diverges, its store is unreachable, or it is complete. It only
 * reads the run, and no failure of it ends a training. */
#ifndef DL_NOTIFY_NOTIFY_H
#define DL_NOTIFY_NOTIFY_H

#include "base/status.h"

typedef struct dl_notify dl_notify;

/* dl_notify_check returns the error that dl_notify_start would have for this run.notify, before a
 * run is created for it: those of dl_deliver_init. "" is valid. */
DL_MUST_CHECK diloco_status dl_notify_check(const char *where);

/* dl_notify_start follows the run in the store at the URL `store`. The run was not complete
 * before. `where` is run.notify; with "" *out is NULL. Returns the errors of dl_notify_check,
 * and DILOCO_ENOMEM. A notice that cannot be sent is a warning in the program's log, and
 * nothing else. */
DL_MUST_CHECK diloco_status dl_notify_start(dl_notify **out, const char *where, const char *store);

/* dl_notify_stop looks once more, sends notices that are new, ends the thread and frees all. NULL
 * is fine. It takes at most the time of one look and of the notices that are due. */
void dl_notify_stop(dl_notify *notify);

#endif
