/* pipelined_upload.h - pipelined uploads, with a thread and a store handle of their own. Meanwhile
 * the exchange continues to read the log, and to close and adopt entries.
 *
 *     dl_exec makes it (CONTRIBUTE, pipelined) --dl_sending_begin--> in flight --> ended --reap-->
 *                                                                       |
 *                                                          no answer from the store: try again
 *
 * There is one upload at a time. The exchange makes all calls while the thread runs and after its
 * end; any thread may call dl_sending_traffic. */
#ifndef DL_EXCHANGE_PIPELINED_UPLOAD_H
#define DL_EXCHANGE_PIPELINED_UPLOAD_H

#include "exchange/exec.h"

#include <stdatomic.h>

typedef struct dl_sending dl_sending;

typedef struct dl_sending_args {
    const dl_store_address *address; /* of the store; borrowed, as all pointers here */
    dl_moved *tally;                 /* counts its handle's traffic; NULL: not counted */
    dl_exec *exec;
    double store_timeout_s; /* seconds to retry a store that does not answer */
    atomic_bool *ended;     /* set when an upload has ended, to wake a thread that waits */
} dl_sending_args;

/* Creates the thread. Returns DILOCO_ENOMEM, or an error of opening a store. */
DL_MUST_CHECK diloco_status dl_sending_create(dl_sending **out, const dl_sending_args *args);
/* Waits for the upload in flight, without another try. NULL is fine. */
void dl_sending_destroy(dl_sending *sending);

/* Begins to upload the entry's contribution, which is made. No upload may be in flight. */
void dl_sending_begin(dl_sending *sending, uint64_t entry);
/* Returns 1 + the entry whose upload is in flight or has ended and is not reaped, or 0. */
uint64_t dl_sending_now(dl_sending *sending);
/* Waits at most that long. Returns true if the upload is still in flight. */
bool dl_sending_wait(dl_sending *sending, dl_time longest);
/* Returns, once, whether the upload has ended. Sets *entry if the store has it, else *status to the
 * error, whose text is set. */
bool dl_sending_reap(dl_sending *sending, uint64_t *entry, diloco_status *status);

/* Return the traffic and the speed as of the upload that ended last. */
dl_store_counters dl_sending_traffic(dl_sending *sending);
double dl_sending_up_bps(dl_sending *sending);

#endif
