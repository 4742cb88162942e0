/* driver.h - lives a machine in real time: carries its asks out, waits, and retries. */
#ifndef DL_RUN_DRIVER_H
#define DL_RUN_DRIVER_H

#include "run/events.h"
#include "run/exec.h"

#include <stdatomic.h>

typedef struct dl_driver dl_driver;

typedef struct dl_driver_args {
    const char *url;
    dl_store *store; /* the exchange's handle; borrowed, as all */
    dl_exec *exec;
    dl_record *record;
    const dl_runfile *run;
    dl_life self;
    double store_timeout_s;
    double (*lr)(void *user, uint64_t entry);
    void *lr_user;
    /* Save the local state at the due point of `entry`. */
    diloco_status (*save)(void *user, uint64_t entry, uint64_t position);
    void *save_user;
    const dl_exec_work *work; /* of the training since the base: read at a due point */
    atomic_bool *interrupted; /* taken down when a call returns because of it */
} dl_driver_args;

/* Heartbeats begin. */
DL_MUST_CHECK diloco_status dl_driver_create(dl_driver **out, const dl_driver_args *args);
void dl_driver_destroy(dl_driver *driver); /* NULL is fine */

/* Load the newest snapshot, catch up, and go on until training is due or the run is over.
 * `start` is without digest, n_commits and now, which the driver knows. After an error the
 * driver is of no use but to be destroyed. */
DL_MUST_CHECK diloco_status dl_driver_begin(dl_driver *driver, const dl_machine_start *start);

/* The due point is reached: exchange, until training is due again or the run is over.
 * DILOCO_EINTERRUPTED: call again to go on; any other error is final and returned again. */
DL_MUST_CHECK diloco_status dl_driver_exchange(dl_driver *driver);

/* Train up to this position; UINT64_MAX when the run is over. */
uint64_t dl_driver_train_until(const dl_driver *driver);
uint64_t dl_driver_position(const dl_driver *driver); /* where training goes on from */
bool dl_driver_done(const dl_driver *driver);
bool dl_driver_adopted(const dl_driver *driver); /* the last call put theta into the tensors */

/* What the heartbeat tells. */
void dl_driver_tell_step(dl_driver *driver, uint64_t step, uint64_t position);

/* end/<life>: nobody waits for this life any more. Again: nothing. */
DL_MUST_CHECK diloco_status dl_driver_leave(dl_driver *driver);

typedef struct dl_driver_facts {
    double loss;                         /* of the last commit's members; NAN before */
    uint64_t bytes_sent, bytes_received; /* by the exchange's handle: all that training waits for */
    uint64_t background_sent, background_received; /* snapshots, collection, heartbeats */
} dl_driver_facts;
dl_driver_facts dl_driver_facts_now(const dl_driver *driver);

#endif
