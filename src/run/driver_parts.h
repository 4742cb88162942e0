/* driver_parts.h - the inside of a driver, which its two halves share and nobody else sees.
 *
 *     driver.c     the trainer's half: counts steps, takes, adopts, jumps, waits
 *     driver_exchange.c  the exchange's half: carries out the machine's requests, one by one
 *     driver_record.c  the record's lines of what the machine notes
 *
 * One thread may be both. Where there are two (`thread.beside`), `thread.lock` guards what is
 * marked. */
#ifndef DL_RUN_DRIVER_PARTS_H
#define DL_RUN_DRIVER_PARTS_H

#include "exchange/pipelined_upload.h"
#include "run/background.h"
#include "run/divergence.h"
#include "run/driver.h"
#include "run/due_points.h"
#include "run/upload_latency.h"

#include <pthread.h>

/* The exchange's thread, and the lock between the two halves. */
typedef struct dl_driver_thread {
    bool beside; /* the exchange has, or had, a thread of its own */
    bool started;
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t moved_on; /* something of what is guarded has changed */
    atomic_bool quit;        /* the thread ends after the request in hand */
    atomic_bool was_taken;   /* a contribution waits to be put, or the next may be */
} dl_driver_thread;

typedef struct dl_driver_outcome {
    bool ended;           /* the log has come to its end, or the exchange has failed */
    diloco_status failed; /* with */
    char failure[1024];
} dl_driver_outcome;

/* Of the trainer's half alone. */
typedef struct dl_driver_trainer {
    bool over;
    dl_setback setback;
    double waited_s;
} dl_driver_trainer;

/* Of the exchange's half alone. */
typedef struct dl_driver_exchange {
    dl_request open;      /* the request that is being carried out, or TRAIN, DONE, FAIL */
    const dl_hash *bases; /* for the first REJOIN */
    bool loaded;
    bool puts;       /* the last CONTRIBUTE has put one, before it was answered */
    bool moved;      /* something happened since the last WAIT: look soon */
    uint64_t unsent; /* dl_reply's, for the next answer */
    dl_time waited, entry_began;
    dl_time unreachable_since, pause;
    uint64_t failed_before; /* of the tally's n_failed, before the request */
} dl_driver_exchange;

/* Of the record's next lines; the exchange writes them. */
typedef struct dl_driver_lines {
    dl_event_context context;
    dl_store_counters told; /* of `traffic`, by the last commit's line */
    dl_peers_counts peers_before;
    double deadline_s;       /* as the last contribution's derived itself */
    uint64_t n_moves;        /* of the machine, for its trace */
    bool warned_apart;       /* of members that point apart: once */
    bool warned_passed_over; /* of objects in c/ that no replica reads: once */
} dl_driver_lines;

struct dl_driver {
    dl_driver_args a;
    dl_life began; /* a.self, and its generation when this process began: its record's name */
    dl_machine *machine;
    dl_background *background;
    dl_sending *sending; /* NULL: nothing is put ahead, or it is waited for */
    dl_arena arena;      /* the pace's arrays, and the trips' */

    dl_driver_thread thread;
    dl_pace pace;              /* guarded; so are the machine, the state's `now` and its control */
    dl_driver_outcome outcome; /* guarded */
    dl_store_counters traffic; /* guarded */
    double loss;               /* guarded */
    dl_setback newest;         /* guarded: what the last commit says for */
    dl_stops stops;            /* guarded */
    dl_trips trips;            /* guarded */

    dl_driver_trainer trainer;
    dl_driver_exchange exchange;
    dl_driver_lines lines;
};

/* Nothing to guard where there is one thread. */
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
void dl_driver_on_note(void *driver, const dl_note *n);
void dl_driver_on_move(void *driver, const dl_transition *move);

/* ---- driver_exchange.c ---- */

DL_MUST_CHECK diloco_status dl_exchange_create(dl_driver *d);
/* Load the newest snapshot and read the log up to its end; `bases`: of what was saved, or NULL. */
DL_MUST_CHECK diloco_status dl_exchange_begin(dl_driver *d, const dl_hash *bases);
/* With a thread of its own: from here on it goes on by itself. */
DL_MUST_CHECK diloco_status dl_exchange_start(dl_driver *d);
void dl_exchange_stop(dl_driver *d); /* the thread ends; a second time: nothing */
/* On the caller's thread, until `stop` may be done; NULL: until the run's end. */
DL_MUST_CHECK diloco_status dl_exchange_until(dl_driver *d, const dl_stop *stop);
/* Is what is waited for there, or can it not come any more? Under the lock. */
bool dl_exchange_is_there(const dl_driver *d, const dl_stop *stop);

#endif
