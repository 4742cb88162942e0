/* deliver.h - a notice on its way to a person: one JSON object,
 *
 *     {"event":"replica-lost","run":"<id>","name":"night","replica":"r2","text":"r2 is lost: …",
 *      "withheld":0,"time":1780000000.0}
 *
 * to the standard input of a command, which gets no arguments, or as the body of a POST. No shell
 * is used, and nothing of the run is part of a command line. One thread at a time. */
#ifndef DL_NOTIFY_DELIVER_H
#define DL_NOTIFY_DELIVER_H

#include "base/buf.h"
#include "notify/notices.h"

#include <stdatomic.h>

enum { DL_DELIVER_WHERE = 4096 };

typedef struct dl_deliver {
    bool webhook;
    char where[DL_DELIVER_WHERE]; /* a program or a URL, which may be a secret */
    const char *token;            /* $DILOCO_NOTIFY_TOKEN, for the webhook; NULL: none */
    atomic_bool aborted;          /* ends a POST */
} dl_deliver;

/* `where` is run.notify: a program, "https://…", "http://…", or "env:NAME" for what the variable
 * NAME says. DILOCO_EINVAL: the variable is not set, or there is no such program; the text does not
 * contain a URL. DILOCO_EREFUSED: a webhook, in a program built without HTTP. */
DL_MUST_CHECK diloco_status dl_deliver_init(dl_deliver *out, const char *where);

/* Send one. DILOCO_EIO: the command failed; errors of HTTP. */
DL_MUST_CHECK diloco_status dl_deliver_send(dl_deliver *deliver, const dl_notice *notice,
                                            const char *run, const char *name);

#endif
