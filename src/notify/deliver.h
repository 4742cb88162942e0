/* deliver.h - the way of a notice to a person. A notice is one JSON object,
 *
 *     {"event":"replica-lost","run":"<id>","name":"night","replica":"r2","text":"r2 is lost: …",
 *      "withheld":0,"time":1780000000.0}
 *
 * A command without arguments gets it on its standard input, or a webhook gets it as the body of a
 * POST. No shell is used, and nothing of the run is part of a command line: names and texts in a
 * notice come from peers, which are untrusted. One thread at a time. */
#ifndef DL_NOTIFY_DELIVER_H
#define DL_NOTIFY_DELIVER_H

#include "base/buf.h"
#include "notify/notices.h"

#include <stdatomic.h>

/* Bytes of a path or URL, with its zero. */
enum { DL_DELIVER_WHERE = 4096 };

/* A receiver of notices. It owns nothing that has to be freed. */
typedef struct dl_deliver {
    bool webhook;
    char where[DL_DELIVER_WHERE]; /* a program or a URL, which may be a secret */
    const char *token;            /* $DILOCO_NOTIFY_TOKEN, for the webhook; NULL: none */
    atomic_bool aborted;          /* ends a POST */
} dl_deliver;

/* dl_deliver_init reads `where`, the value of run.notify: a program, "https://…", "http://…", or
 * "env:NAME" for the value of the variable NAME. A URL may be a secret, so error texts do not
 * contain the value of a variable.
 *
 * Returns DILOCO_EINVAL if the variable is not set, the value is too long, or there is no such
 * program. Returns DILOCO_EREFUSED for a webhook in a program that was built without HTTP. */
DL_MUST_CHECK diloco_status dl_deliver_init(dl_deliver *out, const char *where);

/* dl_deliver_send delivers one notice and waits for the receiver, at most about 20 seconds. `run`
 * is the run's id, `name` the name by which people know it. Returns DILOCO_EIO if the command
 * failed, DILOCO_ETIMEDOUT if it did not end in time, or an error of HTTP. */
DL_MUST_CHECK diloco_status dl_deliver_send(dl_deliver *deliver, const dl_notice *notice,
                                            const char *run, const char *name);

#endif
