/* replica_loop.h - one process that trains, from its opening to its end. A table of operations has
 * the parts that differ between a replica (replica.c), a process of logical clients (fed) and a
 * node without a log (gossip).
 *
 *     settings, data, model --> open --> record --> join --> { advance, applied }* --> end -->
 * close until over; `stop` if asked to
 *
 * One thread uses a replica; the thread of stop.h only interrupts its run. */
#ifndef DL_TRAIN_REPLICA_LOOP_H
#define DL_TRAIN_REPLICA_LOOP_H

#include "train/evaluate.h"
#include "train/progress.h"
#include "train/recorder.h"
#include "train/stop.h"
#include <diloco/train.h>

/* Operations that are optional may be NULL. */
typedef struct dl_replica_ops {
    /* Opens what the kind of run needs. With a log it sets `run`. */
    diloco_status (*open)(void *user);
    /* Joins the run, sets `now`, and begins the meter. */
    diloco_status (*join)(void *user);
    /* Optional. Writes the members of the record's "trainer" event that are the kind's own; else
     * they are those of a replica with one stream of samples. */
    void (*describe)(const void *user, dl_json *j);
    bool (*over)(const void *user);
    /* Takes steps, exchanges, or waits, and updates `now`. *applied, false before: an entry was
     * applied, and the tensors are its model. Returns DILOCO_EINTERRUPTED if it was asked to stop.
     */
    diloco_status (*advance)(void *user, bool *applied);
    /* Follows an advance that applied an entry. */
    diloco_status (*applied)(void *user);
    /* Saves what a later generation needs. Returns DILOCO_EINTERRUPTED, or why it is not saved. */
    diloco_status (*stop)(void *user);
    /* Optional. Follows the last advance. */
    diloco_status (*end)(void *user);
    /* Optional. Releases what `open` and `join` took, also after they failed. The run and the
     * record are closed before it, `step` and `setup` after it. */
    void (*close)(void *user);
} dl_replica_ops;

typedef struct dl_replica {
    const char *name;                /* borrowed */
    const diloco_train_hooks *hooks; /* borrowed; or NULL */
    dl_setup setup;
    bool exists; /* the run, when this process looked for its settings */
    dl_step step;
    diloco_run *run; /* NULL: there is no log */
    dl_recorder recorder;
    dl_stop *stop;
    dl_meter meter;
    diloco_run_info now;
    /* `open` may save these with the private state. */
    uint64_t inner_steps;
    uint64_t rewarming; /* steps of a joiner's warm-up that remain */
    const dl_replica_ops *ops;
    void *user;
} dl_replica;

/* Runs a replica to its end, and closes it. Its name, hooks, ops and user are set, and the rest is
 * zero. Returns the first error; DILOCO_EINTERRUPTED if it was asked to stop. */
DL_MUST_CHECK diloco_status dl_replica_live(dl_replica *r, const dl_config *config);

/* Reports `now` to the hooks. */
void dl_replica_progress(const dl_replica *r, const char *phase);
bool dl_replica_asked_to_stop(const dl_replica *r);

/* Takes the step at now.position on the samples from now.sample of a shard. *lr is its learning
 * rate. The caller counts and records the step. */
DL_MUST_CHECK diloco_status dl_replica_step(dl_step_facts *facts, double *lr, dl_replica *r,
                                            size_t shard);

/* Returns whether the model after entry now.entry - 1 is to be evaluated, by any replica. */
bool dl_replica_evaluation_due(const dl_replica *r);
/* Returns the number of that evaluation; replicas evaluate in turn. */
uint64_t dl_replica_evaluation_turn(const dl_replica *r);

/* Writes an event "eval". next: the loss on the samples that are trained on next; or NULL. */
DL_MUST_CHECK diloco_status dl_replica_record_eval(dl_replica *r, const dl_score *held_out,
                                                   const dl_score *next);
/* Writes the settings of this machine as the event "trainer", and the warnings about them. */
DL_MUST_CHECK diloco_status dl_replica_record_trainer(dl_replica *r);
/* Writes a warning. A record that cannot be written does not stop training. */
void dl_replica_warn(dl_replica *r, const char *code, const char *text);

#endif
