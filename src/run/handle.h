/* handle.h - what a diloco_run is: shared by run.c (registering, stepping, ending) and join.c. */
#ifndef DL_RUN_HANDLE_H
#define DL_RUN_HANDLE_H

#include "run/driver.h"
#include "run/local.h"
#include "run/open.h"
#include <diloco/run.h>

enum { DL_MAX_PRIVATES = 64 };

/* Where a replica stands. `work` runs since the base. */
typedef struct dl_progress {
    uint64_t step, position, next_sample;
    double loss_sum; /* over work.steps */
    dl_exec_work work;
} dl_progress;

struct diloco_run {
    dl_config config;
    char replica[DL_REPLICA_MAX + 1];
    diloco_tensor *tensors;  /* owned, with owned names; data is the caller's */
    const float **gradients; /* [n_tensors], NULL where there is none */
    size_t n_tensors;
    bool has_gradients;
    dl_private privates[DL_MAX_PRIVATES]; /* names owned */
    size_t n_privates;
    char data_digest[DL_HASH_HEX + 1];
    dl_record record;
    double (*lr)(void *user, uint64_t entry);
    void *lr_user;

    /* From diloco_run_create. */
    bool created;
    dl_store *store;
    dl_runfile file;
    dl_hash file_digest;

    /* From diloco_run_join. */
    bool joined, resumed;
    dl_life self;
    dl_local *local; /* NULL: nothing is kept (run.state_dir = "none") */
    dl_config_path local_dir, spool;
    dl_pool *pool;
    dl_exec *exec;
    dl_driver *driver;

    dl_progress at, before;                 /* before: the last step was counted */
    uint64_t entry;                         /* that the interval under way is for */
    bool due;                               /* an exchange is under way */
    bool due_saved;                         /* its local state was saved at the due point */
    uint64_t life_steps, life_tokens;       /* of this life */
    dl_time began, trained_since, training; /* training: time between exchanges */

    atomic_bool interrupted; /* ever */
    atomic_bool stop;        /* for the blocking call under way, or the next */
};

/* join.c: at a due point, or anywhere else; `p` is what is saved. */
DL_MUST_CHECK diloco_status dl_run_save_local(diloco_run *run, const dl_progress *p, uint64_t entry,
                                              bool due);
/* join.c: take back what joining took. NULL fields are fine. */
void dl_run_unjoin(diloco_run *run);

/* run.c: after an exchange: where training goes on; `fresh`: nothing trained is still to be sent.
 */
void dl_run_begin_interval(diloco_run *run, bool fresh);
/* run.c: the record's last line. */
void dl_run_end_line(diloco_run *run);

#endif
