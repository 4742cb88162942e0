/* driver_parts.h - the structure of a driver, which only its own source files use.
 *
 *     driver.c           the trainer's half: counts steps, captures, adopts, jumps, waits
 *     driver_save.c      its captures, and the saves that belong to them
 *     driver_exchange.c  the exchange's half: carries out the machine's requests, one by one
 *     driver_record.c    the record's lines for the machine's notes
 *
 * One thread may be both halves. If there are two (`thread.beside`), `thread.lock` guards the
 * marked fields. */
#ifndef DL_RUN_DRIVER_PARTS_H
#define DL_RUN_DRIVER_PARTS_H

#include "exchange/pipelined_upload.h"
#include "run/background.h"
#include "run/divergence.h"
#include "run/driver.h"
#include "run/due_points.h"
#include "run/saver.h"
#include "run/store_patience.h"
#include "run/upload_latency.h"

#include <pthread.h>

/* The exchange's thread, and the lock between the two halves. */
typedef struct dl_driver_thread {
    bool beside; /* the exchange has, or had, a thread of its own */
    bool started;
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t moved_on; /* a guarded field has changed */
    atomic_bool quit;        /* the thread ends after the current request */
    atomic_bool was_taken;   /* a capture is to be uploaded, or the next one may be */
} dl_driver_thread;

/* The end of the exchange, which the trainer reads. The text is a copy, because error texts belong
 * to a thread. */
typedef struct dl_driver_outcome {
    bool ended;           /* the log has reached its end, or the exchange has failed */
    diloco_status failed; /* the error */
    char failure[1024];
} dl_driver_outcome;

/* Used by the trainer's half alone. over: the run has ended for this replica. waited_s: seconds
 * that training has waited for the exchange. wait_began: of the wait in progress, or 0. reported_s:
 * the longest wait that was reported (diloco_run_on_wait). */
typedef struct dl_driver_trainer {
    bool over;
    bool warned_slow; /* of a disk that is slower than the due points: once */
    bool warned_full; /* of a lack of memory for a copy: once */
    dl_divergence divergence;
    double waited_s, reported_s;
    dl_time wait_began;
} dl_driver_trainer;

/* Used by the exchange's half alone. loaded: the first REJOIN has succeeded, so errors go to the
 * machine from then on. waited, entry_began: for the times in the record's next commit line. */
typedef struct dl_driver_exchange {
    dl_request open;      /* the current request, or TRAIN, DONE, FAIL */
    const dl_hash *bases; /* for the first REJOIN */
    bool loaded;
    bool puts;       /* the last CONTRIBUTE uploaded a contribution before it returned */
    bool moved;      /* something changed since the last WAIT: look soon */
    uint64_t unsent; /* dl_reply's, for the next answer */
    dl_time waited, entry_began;
    dl_patience patience; /* with a store that fails */
} dl_driver_exchange;

/* Values for the record's next lines; written by the exchange. */
typedef struct dl_driver_lines {
    dl_event_context context;
    dl_store_counters reported; /* of `traffic`, as the last commit's line reported it */
    dl_peers_counts peers_before;
    double deadline_s;       /* as derived with the last contribution */
    uint64_t n_moves;        /* of the machine, for its trace */
    bool warned_apart;       /* of members whose movements disagree: once */
    bool warned_passed_over; /* of objects in c/ that no replica reads: once */
} dl_driver_lines;

struct dl_driver {
    dl_driver_args a;
    /* a.self with the generation in which this process began: the name of its record */
    dl_generation began;
    dl_machine *machine;
    dl_background *background;
    dl_sending *sending; /* NULL: uploads are not pipelined */
    dl_saver *saver;     /* NULL: training waits for saves */
    dl_arena arena;      /* the arrays of the pace and of the trips */

    dl_driver_thread thread;
    dl_pace pace;              /* guarded; so are the machine, the state's `now` and its control */
    dl_driver_outcome outcome; /* guarded */
    dl_store_counters traffic; /* guarded */
    double loss;               /* guarded */
    dl_divergence newest;      /* guarded: the last commit, for a comparison of losses */
    dl_stops stops;            /* guarded */
    dl_upload_latency latency; /* guarded */

    dl_driver_trainer trainer;
    dl_driver_exchange exchange;
    dl_driver_lines lines;
};

/* The lock is not used if there is one thread. */
static inline void dl_driver_lock(dl_driver *d)
{
    if (d->thread.beside) pthread_mutex_lock(&d->thread.lock);
}
static inline void dl_driver_unlock(dl_driver *d)
{
    if (d->thread.beside) pthread_mutex_unlock(&d->thread.lock);
}

static inline dl_control *dl_driver_control(const dl_driver *d)
{
    return &dl_exec_state(d->a.exec)->control;
}

/* ---- driver_record.c: `driver` is the dl_driver ---- */

dl_store_counters dl_exchange_traffic(const dl_driver *d);
dl_store_speed dl_exchange_speed(const dl_driver *d);
void dl_driver_report_wait(dl_driver *d, uint64_t entry); /* driver.c: the wait in progress */
void dl_driver_on_note(void *driver, const dl_note *n);
void dl_driver_on_move(void *driver, const dl_transition *move);

/* ---- driver_save.c ---- */

/* Captures at the due point of an entry, and saves the private state if that is due. */
DL_MUST_CHECK diloco_status dl_driver_save_and_capture(dl_driver *d, uint64_t entry);
DL_MUST_CHECK diloco_status dl_driver_make_saver(dl_driver *d);

/* ---- driver_exchange.c ---- */

DL_MUST_CHECK diloco_status dl_exchange_create(dl_driver *d);
/* Loads the newest snapshot and reads the log up to its end; `bases`: of the saved local state, or
 * NULL. */
DL_MUST_CHECK diloco_status dl_exchange_begin(dl_driver *d, const dl_hash *bases);
/* Starts the exchange's own thread, if it has one. */
DL_MUST_CHECK diloco_status dl_exchange_start(dl_driver *d);
void dl_exchange_stop(dl_driver *d); /* ends the thread; a second call does nothing */
/* Runs the exchange on the caller's thread until `stop` may be done, or, if NULL, until the end of
 * the run. */
DL_MUST_CHECK diloco_status dl_exchange_until(dl_driver *d, const dl_stop *stop);
/* Returns whether the stop may be done, or can never be. Call it with the lock held. */
bool dl_exchange_is_there(const dl_driver *d, const dl_stop *stop);

#endif
