/* notify.h - run.notify: a thread that follows a run as its page does. It sends a notice when a
 * replica is lost, the run stalls or diverges, its store is unreachable, or it is complete. */
#ifndef DL_NOTIFY_NOTIFY_H
#define DL_NOTIFY_NOTIFY_H

#include "base/status.h"

typedef struct dl_notify dl_notify;

/* Can run.notify be used? The errors are those of dl_deliver_init. "": it can. */
DL_MUST_CHECK diloco_status dl_notify_check(const char *where);

/* Follow the run in this store, which was not complete before. `where` is run.notify; "": *out is
 * NULL. Errors: dl_notify_check, DILOCO_ENOMEM. A notice that cannot be sent is a warning of the
 * log, and nothing else. */
DL_MUST_CHECK diloco_status dl_notify_start(dl_notify **out, const char *where, const char *store);

/* Look once more, send what is new, and end; NULL is fine. It takes at most the time of one look
 * and of the notices that are due. */
void dl_notify_stop(dl_notify *notify);

#endif
