/* handle.h - the structure of diloco_run, shared by run.c (registering, stepping, ending) and
 * join.c. */
#ifndef DL_RUN_HANDLE_H
#define DL_RUN_HANDLE_H

#include "log/traffic.h"
#include "protocol/liveness.h"
#include "run/driver.h"
#include "run/federated_worker.h"
#include "run/user_parts.h"
#include "state/private_state.h"
#include <diloco/run.h>

enum { DL_MAX_PRIVATES = 64, DL_MAX_DEVICES = 16 };

/* A replica's progress. The training of each fragment counts from its base. step: completed steps
 * of this replica over all generations. next_sample: the first sample of the next step in that
 * shard. */
typedef struct dl_progress {
    uint64_t step, shard, next_sample;
} dl_progress;

/* A private piece on a device, for its dl_private's fill. */
typedef struct dl_run_piece {
    dl_mirrors *mirrors;
    size_t index;
} dl_run_piece;

/* The tensors that the caller has registered. */
typedef struct dl_run_model {
    diloco_tensor *tensors; /* owned, with owned names; data is the caller's */
    size_t n_tensors;
    /* [n_tensors], NULL for a tensor without one; from diloco_run_create in host memory */
    const float **gradients;
    bool has_gradients;
    /* [n_tensors], into known_devices; NULL for host memory. */
    const diloco_device **devices, **gradient_devices;
    diloco_device *known_devices[DL_MAX_DEVICES]; /* owned */
    size_t n_devices;
    const diloco_device *device; /* of what is registered next */
    dl_mirrors *mirrors;         /* from diloco_run_create; NULL: no tensor needs one */
    dl_mirrors *gradient_mirrors, *private_mirrors; /* NULL: none is on a device */
    dl_device_moves moves;                /* prepare NULL: the host computes at due points */
    dl_run_piece pieces[DL_MAX_PRIVATES]; /* [n_privates] of those on a device */
    dl_private privates[DL_MAX_PRIVATES]; /* names owned, except the exchange's */
    size_t n_privates;
    size_t n_exchanges; /* the last privates are the exchange's; from diloco_run_join */
    dl_base base;       /* owned */
} dl_run_model;

/* Callbacks of the caller, all optional. lr returns the outer learning rate of an entry; probe
 * measures a loss for check.probe. */
typedef struct dl_run_hooks {
    double (*lr)(void *user, uint64_t entry);
    void *lr_user;
    diloco_probe_fn probe;
    void *probe_user;
    dl_wait_hook wait;
} dl_run_hooks;

/* Threads for tensor work. A pool serves one caller at a time. */
typedef struct dl_run_pools {
    dl_pool *exchange; /* owned */
    dl_pool *trainer;  /* owned if it is another: contributions move beside training */
} dl_run_pools;

/* The workers of a federated run. */
typedef struct dl_run_workers {
    dl_worker_hooks worker_hooks;
    dl_watch watch; /* which other workers are alive; owned, NULL until dl_run_live_workers */
} dl_run_workers;

/* How this replica has joined. */
typedef struct dl_run_joining {
    bool joined, resumed;
    bool own_trainer; /* the program's own trainer trains it */
    char unread[512]; /* names of options that were set and are not read (own_trainer.h) */
    bool split;       /* diloco_run_split was called: exchange in a thread in any case */
    bool beside;      /* contributions are uploaded during training */
    uint64_t early;   /* this replica's own, as in schedule.h */
} dl_run_joining;

/* Folders on this machine. */
typedef struct dl_run_folders {
    dl_config_path local_dir, spool, offload, served;
} dl_run_folders;

/* This replica's training. */
typedef struct dl_run_trained {
    dl_progress at;
    dl_train_stats *work; /* [P] */
    double *loss_sum;     /* [P] over work[f].steps */
    size_t n_fragments;
    diloco_step_report last; /* the step before a stop: undone if gradients are sent */
    uint64_t position;       /* of the last step or stop */
    bool due;                /* a stop is in progress */
    uint64_t generation_steps, generation_tokens; /* of this generation */
    dl_time began, trained_since, training;       /* training: time between stops */
} dl_run_trained;

/* Memory for saving and loading. */
typedef struct dl_run_room {
    dl_local_fragment *saved;  /* [P] */
    dl_hash *bases;            /* [P] */
    dl_pace_capture *captures; /* [DL_PACE_MAX_CAPTURES] */
    dl_pace_fragment *paces;   /* [P] */
    void **places;             /* [n_tensors] in a copy of the private state */
    bool missed;               /* the exchange lent no memory in time, the last time */
} dl_run_room;

/* Flags that diloco_run_interrupt sets from any thread or a signal handler. */
typedef struct dl_run_calls {
    atomic_bool interrupted; /* ever */
    atomic_bool stop;        /* for the current blocking call, or the next */
} dl_run_calls;

/* One replica in one run. The trainer's thread uses it, apart from `calls`. The exchange and the
 * background threads use only what the driver was given. The groups are filled in the order open,
 * register, create, join, train. */
struct diloco_run {
    dl_config config;
    dl_user *user; /* owned: the caller's own parts; NULL: it has none */
    char replica[DL_REPLICA_MAX + 1];
    dl_signer *signer; /* owned; NULL: the run has no keys */
    dl_run_model model;
    dl_run_hooks hooks;
    char data_digest[DL_HASH_HEX + 1];
    dl_record record;
    dl_run_workers workers;

    /* From diloco_run_create. */
    bool created;
    dl_moved traffic; /* of all store handles, by the kinds of traffic.h */
    dl_store *store;
    dl_runfile file;
    dl_hash file_digest;

    /* From diloco_run_join. */
    dl_run_joining join;
    dl_generation self;
    dl_local *local; /* NULL: no local state is saved (run.state_dir = "none") */
    dl_run_folders folders;
    dl_peers *peers; /* NULL: run.peers is false */
    dl_run_pools pools;
    dl_exec *exec;
    dl_driver *driver;

    dl_run_trained trained;
    dl_run_room room;
    dl_run_calls calls;
};

/* ---- save_local.c */

/* Saves the local state. */
DL_MUST_CHECK diloco_status dl_run_save_local(diloco_run *run);
/* Returns the bytes that the exchange should be able to lend for saves beside training: those of
 * the largest private piece. */
size_t dl_run_lent_len(const diloco_run *run);
/* Sets what a driver needs for saves at due points. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_run_set_saves(diloco_run *run, dl_driver_args *args);
/* Returns empty facts with the run's own arrays. */
dl_local_facts dl_run_facts_room(diloco_run *run);

/* ---- device_pieces.c */

/* Makes the mirrors of tensors and gradients. Once; after an error it may be called again. */
DL_MUST_CHECK diloco_status dl_run_make_mirrors(diloco_run *run);
/* Gives private piece i, which was registered on the current device, a place in host memory.
 * Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_run_place_private(diloco_run *run, size_t i);
/* Copies restored tensors and private pieces to their devices. */
DL_MUST_CHECK diloco_status dl_run_push_restored(diloco_run *run);
/* Returns the first error of any device. */
DL_MUST_CHECK diloco_status dl_run_check_devices(const diloco_run *run);
void dl_run_release_devices(diloco_run *run);

/* join.c: undoes the join. NULL fields are fine. */
void dl_run_unjoin(diloco_run *run);

/* run.c: skips the samples of skipped positions (P13). */
void dl_run_skip(diloco_run *run);
/* run.c: training resumes after a stop, perhaps at a later position. */
void dl_run_go_on(diloco_run *run);
/* run.c: nothing trained on the fragment is left to send. */
void dl_run_fresh(void *run, uint32_t fragment);
uint64_t dl_run_samples_a_step(const diloco_run *run);
/* run_end.c: writes the record's `end` line; then, at the closing, its `traffic` line. */
void dl_run_end_line(diloco_run *run);
void dl_run_end_record(diloco_run *run);

#endif
