/* driver.h - drives a machine in real time: it carries out its requests, waits, and retries. For
 * the trainer it carries out the stops of the pace.
 *
 * With tau = 0 all of it happens inside dl_driver_stop, on the caller's thread. Where contributions
 * are uploaded during training (or between dl_driver_capture and dl_driver_stop), the exchange has
 * a thread of its own. The trainer then only captures and adopts, and waits if a result is due that
 * has not arrived. */
#ifndef DL_RUN_DRIVER_H
#define DL_RUN_DRIVER_H

#include "exchange/exec.h"
#include "run/run_events.h"

#include <diloco/run.h>

#include <stdatomic.h>

typedef struct dl_driver dl_driver;
enum { DL_NO_FRAGMENT = -1 };

/* How the local state is saved. `save` does it before an entry is captured.
 *
 * The others do it beside training; all NULL: training waits for saves. `pull` gets the trainer's
 * values from their devices. `fill` writes the pieces that the caller puts together to a slot. It
 * is called without the lock, before `copy`, which copies the rest, except the tensors of a
 * fragment that is captured next (DL_NO_FRAGMENT: none). `rest` copies those that the capture has
 * not copied. `copy` and `rest` are called between dl_driver_hold and dl_driver_release. `write`
 * writes the slot, on another thread. has_room: whether there is memory for a slot. `begin`
 * precedes the other calls for a slot: false if its memory is in use otherwise. `end` follows them,
 * on any thread. */
typedef struct dl_driver_saves {
    diloco_status (*save)(void *user);
    bool (*has_room)(void *user, int slot);
    bool (*begin)(void *user, int slot);
    void (*end)(void *user, int slot);
    diloco_status (*pull)(void *user);
    diloco_status (*fill)(void *user, int slot);
    diloco_status (*copy)(void *user, int slot, int fragment);
    void (*rest)(void *user, int slot);
    diloco_status (*write)(void *user, int slot);
} dl_driver_saves;

/* fn: of a long wait of training for other replicas (diloco_run_on_wait); NULL: no call. */
typedef struct dl_wait_hook {
    diloco_wait_fn fn;
    void *user;
    double after_s;
} dl_wait_hook;

typedef struct dl_driver_args {
    dl_store *store; /* the exchange's handle; borrowed, as all pointers here */
    dl_exec *exec;
    dl_record *record;
    const dl_runfile *run;
    dl_generation self;
    dl_former_generations formers; /* machine.h */
    double store_timeout_s;
    uint64_t save_every; /* run.save_every */
    uint64_t early;      /* schedule.h: this replica's own */
    bool beside;         /* the exchange has a thread of its own */
    double (*lr)(void *user, uint64_t entry);
    void *lr_user;
    dl_driver_saves saves;
    dl_wait_hook on_wait;
    /* Federated; NULL: does nothing. The open entry waits: train one of its sampled clients.
     * *worked: it is worth looking again. */
    diloco_status (*work)(void *user, bool *worked);
    /* Nothing trained on the fragment is left to send. */
    void (*fresh)(void *user, uint32_t fragment);
    void *user;
    const dl_signer *signer;       /* NULL: the run has no keys */
    dl_peers *peers;               /* NULL: everything is read from the store */
    bool follows;                  /* leaves the closing of entries to other replicas */
    bool trace_protocol;           /* logs each move of the machine */
    const dl_train_stats *trained; /* [P] since the base: read by a capture */
    atomic_bool *interrupted;      /* reset when a call returns because of it */
} dl_driver_args;

/* Creates a driver. Heartbeats begin. */
DL_MUST_CHECK diloco_status dl_driver_create(dl_driver **out, const dl_driver_args *args);
void dl_driver_destroy(dl_driver *driver); /* NULL is fine */

/* Loads the newest snapshot, reads the log, and continues until training is due or the run is over.
 * `saved`: NULL, or the saved pace of local tensors that rest on the states bases[P]. After
 * DILOCO_EINTERRUPTED or another error the driver can only be destroyed. */
DL_MUST_CHECK diloco_status dl_driver_begin(dl_driver *driver, const dl_pace_saved *saved,
                                            const dl_hash *bases);

/* Counts a completed step and advances the position. Warns of a loss far above the one before an
 * entry. */
void dl_driver_count_step(dl_driver *driver, uint64_t step, double loss);

/* Federated: advances to this position without a step. */
void dl_driver_pass_to(dl_driver *driver, uint64_t position);

/* Returns the replica's position t: its counted steps, and the skipped ones. */
uint64_t dl_driver_position(const dl_driver *driver);

/* Where the log assigns the data: sets *sample to the first sample of the step at this position.
 * Returns false if the log does not assign data, or if the entry of this training is decided. */
bool dl_driver_sample(dl_driver *driver, uint64_t *sample);

/* Returns the position up to which to train: the present one if something is due, UINT64_MAX when
 * the run is over. */
uint64_t dl_driver_train_until(dl_driver *driver);

/* Does what is due at the present position: capture, exchange, adopt. After DILOCO_EINTERRUPTED,
 * call it again to continue. Any other error is final and is returned again. */
DL_MUST_CHECK diloco_status dl_driver_stop(dl_driver *driver);

/* Does the part of dl_driver_stop that does not wait: captures, and starts the upload. */
DL_MUST_CHECK diloco_status dl_driver_capture(dl_driver *driver);

bool dl_driver_done(const dl_driver *driver);

/* Call it before the local state is saved for a clean stop: it uploads what was captured, if the
 * store answers soon. An interrupt ends the wait. */
void dl_driver_settle(dl_driver *driver);
/* Ends the exchange. */
void dl_driver_halt(dl_driver *driver);

/* Waits until no save beside training is in progress that contributions to the entry need. Returns
 * the status of a failed one. Any thread. */
DL_MUST_CHECK diloco_status dl_driver_await_saved(dl_driver *driver, uint64_t entry);
/* Begins a save of the newest state by the caller itself. It waits for a save beside training,
 * whatever its result. A copy that waits is written only if the caller's save fails. Returns
 * DILOCO_EINTERRUPTED if an interrupt ends the wait, and then no save has begun. */
DL_MUST_CHECK diloco_status dl_driver_begin_save(dl_driver *driver);
void dl_driver_end_save(dl_driver *driver, bool saved);
/* Returns a slot for saves beside training that nothing uses until the caller's save ends, or
 * DL_NO_SLOT. */
enum { DL_NO_SLOT = -1 };
int dl_driver_spare_slot(dl_driver *driver);

/* Between hold and release the log does not move, so everything saved in between is consistent, the
 * residual too. dl_driver_saved_now returns the state to save with the local tensors, and the
 * digests[P] that they rest on. It returns true if the capture at this position will be repeated.
 */
void dl_driver_hold(dl_driver *driver);
bool dl_driver_saved_now(const dl_driver *driver, dl_pace_saved *out, dl_hash *bases,
                         uint32_t *generation, dl_former_generations *formers);
void dl_driver_release(dl_driver *driver);

/* Calls `copy` with the current state, which does not change meanwhile. */
void dl_driver_read_state(dl_driver *driver, void (*copy)(void *user, const dl_state *state),
                          void *user);

/* Creates end/<replica>.<g>, after which no replica waits for this generation. A second call does
 * nothing. It uses a handle of its own, since the exchange may be busy. */
DL_MUST_CHECK diloco_status dl_driver_leave(dl_driver *driver);

typedef struct dl_driver_facts {
    uint32_t generation; /* of this replica's current process */
    uint64_t entry, position, next_stop;
    double loss; /* of the last commit's members; NAN before */
    /* by the exchange's handle: everything that training waits for */
    uint64_t bytes_sent, bytes_received;
    uint64_t background_sent, background_received; /* snapshots, collection, heartbeats */
    uint64_t heartbeats;
    double heartbeat_s_max; /* the longest that one took */
    double waited_s;        /* total time that training has waited for the exchange */
} dl_driver_facts;
dl_driver_facts dl_driver_facts_now(dl_driver *driver);

#endif
