/* driver.h - lives a machine in real time: carries its asks out, waits, and retries; and does for
 * the trainer what its pace says.
 *
 * With tau = 0 all of it happens inside dl_driver_stop, on the caller's thread. Where
 * contributions move beside training (or between dl_driver_take and dl_driver_stop), the exchange
 * has a thread of its own, and the trainer only takes and adopts; it waits when a result is due
 * that is not there. */
#ifndef DL_RUN_DRIVER_H
#define DL_RUN_DRIVER_H

#include "exchange/exec.h"
#include "run/run_events.h"

#include <stdatomic.h>

typedef struct dl_driver dl_driver;

typedef struct dl_driver_args {
    const char *url;
    dl_store *store; /* the exchange's handle; borrowed, as all */
    dl_exec *exec;
    dl_record *record;
    const dl_runfile *run;
    dl_life self, former; /* former: machine.h */
    double store_timeout_s;
    uint64_t early; /* schedule.h: this replica's own */
    bool beside;    /* the exchange has a thread of its own */
    double (*lr)(void *user, uint64_t entry);
    void *lr_user;
    /* Save the local state as it is now: before an entry is taken. */
    diloco_status (*save)(void *user);
    /* Federated (NULL: nothing to do): the open entry waits; train one of the clients that it asks.
     * *worked: it is worth looking again. */
    diloco_status (*work)(void *user, bool *worked);
    /* Nothing trained on the fragment is still to be sent. */
    void (*fresh)(void *user, uint32_t fragment);
    void *user;
    const dl_signer *signer;       /* NULL: nothing is signed */
    dl_peers *peers;               /* NULL: all is read from the store */
    bool follows;                  /* leaves the closing of entries to others */
    bool trace_protocol;           /* logs each move of the machine */
    const dl_train_stats *trained; /* [P] since the base: read when taken */
    atomic_bool *interrupted;      /* taken down when a call returns because of it */
} dl_driver_args;

/* Heartbeats begin. */
DL_MUST_CHECK diloco_status dl_driver_create(dl_driver **out, const dl_driver_args *args);
void dl_driver_destroy(dl_driver *driver); /* NULL is fine */

/* Load the newest snapshot, catch up, and go on until training is due or the run is over. `saved`:
 * NULL, or where the local tensors already are, resting on `bases`[P]. DILOCO_EINTERRUPTED and
 * other errors: the driver is of no use but to be destroyed. */
DL_MUST_CHECK diloco_status dl_driver_begin(dl_driver *driver, const dl_pace_saved *saved,
                                            const dl_hash *bases);

/* One step is complete: position moves on. A loss far above that before an entry is warned about.
 */
void dl_driver_count_step(dl_driver *driver, uint64_t step, double loss);

/* Federated: to this position without a step. */
void dl_driver_pass_to(dl_driver *driver, uint64_t position);

/* t of this replica: steps that were counted, and those that were passed over. */
uint64_t dl_driver_position(const dl_driver *driver);

/* Where the log deals the data: the sample that the step at the present position begins with.
 * False: it does not, or the entry that was trained for is decided. */
bool dl_driver_sample(dl_driver *driver, uint64_t *sample);

/* Train up to this position; the present one where something is to be done; UINT64_MAX when the
 * run is over. */
uint64_t dl_driver_train_until(dl_driver *driver);

/* Do what is due at the present position: take, exchange, adopt. DILOCO_EINTERRUPTED: call again
 * to go on; any other error is final and returned again. */
DL_MUST_CHECK diloco_status dl_driver_stop(dl_driver *driver);

/* Of that, what waits for nobody, up to the first that does: take, and let it be sent. */
DL_MUST_CHECK diloco_status dl_driver_take(dl_driver *driver);

bool dl_driver_done(const dl_driver *driver);

/* Before the local state is saved for a clean stop: see that what was taken is put, as far as the
 * store answers soon. */
void dl_driver_settle(dl_driver *driver);
/* … and nothing is exchanged any more. */
void dl_driver_halt(dl_driver *driver);

/* What to save with the local tensors, and the digests[P] that they rest on. From hold to release
 * the log does not move, so that all that is saved between fits together, the residual too.
 * True: what was taken at this position will be taken again. */
void dl_driver_hold(dl_driver *driver);
bool dl_driver_saved_now(const dl_driver *driver, dl_pace_saved *out, dl_hash *bases,
                         uint32_t *generation);
void dl_driver_release(dl_driver *driver);

/* Theta of all fragments as it is now, by way of `copy`, which sees an unmoving state. */
void dl_driver_read_state(dl_driver *driver, void (*copy)(void *user, const dl_state *state),
                          void *user);

/* end/<life>: nobody waits for this life any more. Again: nothing. By a handle of its own: the
 * exchange may be at work. */
DL_MUST_CHECK diloco_status dl_driver_leave(dl_driver *driver);

typedef struct dl_driver_facts {
    uint32_t generation; /* of this replica now */
    uint64_t entry, position, next_stop;
    double loss;                         /* of the last commit's members; NAN before */
    uint64_t bytes_sent, bytes_received; /* by the exchange's handle: all that training waits for */
    uint64_t background_sent, background_received; /* snapshots, collection, heartbeats */
    uint64_t heartbeats;
    double heartbeat_s_max; /* the longest that one took */
    double waited_s;        /* that training has waited for the exchange, in all */
} dl_driver_facts;
dl_driver_facts dl_driver_facts_now(dl_driver *driver);

#endif
