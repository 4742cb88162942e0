/* pipelined_upload.h - what was put ahead, on its way: a thread and a store handle that do nothing
 * else, so that the exchange goes on reading the log, and closes and adopts entries, while bytes
 * leave.
 *
 *     exec makes it (CONTRIBUTE, put_ahead) --dl_sending_begin--> under way --> there --reap-->
 *                                                                    |
 *                                                     the store does not answer: tried again
 *
 * One at a time. All calls but the thread's own are the exchange's, or come behind its end;
 * dl_sending_traffic any thread's. */
#ifndef DL_EXCHANGE_PIPELINED_UPLOAD_H
#define DL_EXCHANGE_PIPELINED_UPLOAD_H

#include "exchange/exec.h"

#include <stdatomic.h>

typedef struct dl_sending dl_sending;

typedef struct dl_sending_args {
    const char *url; /* of the store; borrowed, as all here */
    dl_moved *tally; /* of what its handle moves; NULL: none */
    dl_exec *exec;
    double store_timeout_s; /* so long a store that does not answer is asked again */
    atomic_bool *ended;     /* set when something has ended: who waits shall look */
} dl_sending_args;

/* DILOCO_ENOMEM, what opening a store gives. */
DL_MUST_CHECK diloco_status dl_sending_create(dl_sending **out, const dl_sending_args *args);
/* What is under way is waited for, but not tried again. NULL is fine. */
void dl_sending_destroy(dl_sending *sending);

/* The entry's contribution is made, and nothing is under way. */
void dl_sending_begin(dl_sending *sending, uint64_t entry);
/* 1 + the entry whose contribution is under way, or has ended and is not reaped; 0: none. */
uint64_t dl_sending_now(dl_sending *sending);
/* So long at most; true: it is still under way. */
bool dl_sending_wait(dl_sending *sending, dl_time longest);
/* Has something ended since it was begun? Once: *entry is there, or *status says why not (its text
 * is set). */
bool dl_sending_reap(dl_sending *sending, uint64_t *entry, diloco_status *status);

/* As of what ended last. */
dl_store_counters dl_sending_traffic(dl_sending *sending);
double dl_sending_up_bps(dl_sending *sending);

#endif
