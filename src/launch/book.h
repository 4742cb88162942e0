/* book.h - the record of what was launched for a run, kept in the run's store.
 *
 * The book is a row of objects launch/<10 digits>.json that are created once and never changed, as
 * the log is. Everything else follows from reading them in order, on any machine that reads the
 * store. If two launchers append at once, the store decides: one gets the number, the other reads
 * that record first. No record holds a secret.
 *
 *     {"format":1,"what":"begin","at":…,"by":"…","executor":"slurm","dir":"…","min":2,"max":4,
 *      "options":{"launch.restarts":"3"},"secrets":["NAME"]}    from here on these settings
 *     {…,"what":"start","generation":0,"ranks":[0,1],"why":""}  a launcher is about to start them
 *     {…,"what":"handle","generation":0,"ids":[[0,"17_0"]]}     the backend has named them
 *     {…,"what":"state","rank":1,"generation":0,"state":"LOST","code":-1,"message":"…"}
 *     {…,"what":"scale","min":2,"max":6}                        another number of replicas
 *     {…,"what":"cancel"}                                       nothing is started from here on
 *
 * A launcher that is killed between "start" and "handle" leaves a replica that may run or not. The
 * next launcher, or a cancel, finds it by its name (supervisor.h). One thread at a time. */
#ifndef DL_LAUNCH_BOOK_H
#define DL_LAUNCH_BOOK_H

#include "launch/executor.h"
#include "store/store.h"

/* One rank according to the book: its newest generation. The members from start_seen on are
 * this launcher's own observations, except `orphan`. Decisions use these, by this machine's
 * monotonic clock: the clocks of two launchers may differ. Only the pause before a restart also
 * uses ended_at. */
typedef struct dl_book_rank {
    dl_job job;   /* the newest generation */
    bool started; /* a launcher has announced it */
    /* The generation is over, and a later "begin" lets the rank start once more. */
    bool again;
    bool ran;      /* the backend has started some generation of it */
    uint32_t lost; /* times that it was lost since the last "begin" */
    /* When the newest generation was announced, by the clock of the launcher that did it, seconds
     * since 1970. For machine time alone. */
    double started_at;
    /* When its end was recorded, by the clock of the launcher that did it; 0: it is not over. */
    double ended_at;
    char by[33]; /* launcher that announced it, as dl_book.by */
    /* When this launcher read that announcement, and the record of the end. */
    dl_time start_seen, end_seen;
    /* When this launcher first got no answer about it; 0: the last poll had one. */
    dl_time silent_since;
    /* When this launcher first saw that it waits for a machine; 0: it does not wait. waits_long:
     * the wait was reported. */
    dl_time waits_since;
    bool waits_long;
    /* The wait for the launcher that announced it was reported. */
    bool unnamed_said;
    /* The last generation that was lost, which may still run. An empty id: none, or it has
     * ended. */
    dl_job orphan;
    /* This launcher has asked the orphan to stop. */
    bool orphan_asked;
    /* The orphan ran at the last look. */
    bool orphan_runs;
    /* The orphan ran at some look since the newest generation was started. */
    bool orphan_ran;
    /* Processes that the run has counted of this rank (P6), and how many of them were before the
     * newest generation. -1: not known. */
    int64_t processes, processes_before;
} dl_book_rank;

/* The book as far as it was read. dl_book_read applies the records. Between two reads the
 * supervisor notes in ranks[] what its polls have found. */
typedef struct dl_book {
    dl_store *store; /* owned */
    char run[33];    /* its id, 32 hex digits */
    /* This launcher: 128 random bits in hex. It distinguishes its own announcements from
     * others'. */
    char by[33];
    uint64_t next; /* number of the next record */
    /* begun: there is a "begin". cancelled: a "cancel" came after the last one. */
    bool begun, cancelled;
    dl_config_path executor, dir; /* of the last "begin" */
    char found[DL_FOUND_MAX + 1]; /* of the last "begin": the backend's program; "": not known */
    /* Replicas wanted, by the last "begin" or "scale": ranks below max are started. */
    uint32_t min, max;
    dl_config *options;  /* owned: options of [launch] of the last "begin" */
    dl_book_rank *ranks; /* owned, [DL_JOBS_MAX] */
    /* Seconds from start to end, summed over all generations that are over. */
    double machine_s;
    /* Decides which ids of the store are kept, and drops the others: the executor of dl_book_bind,
     * or that of the last "begin" before it. NULL: no such executor is known, so no id is kept. */
    const dl_executor *judge;
    bool bound; /* dl_book_bind was called */
} dl_book;

/* dl_book_open opens the book of the run (its id, in hex) in the store at `url`, and reads it. A
 * run that nothing was launched for has an empty book. The book is bound to `executor`
 * (dl_book_bind). With NULL the last "begin" decides which ids are kept, until the caller binds
 * the book. Returns DILOCO_ENOMEM, an error of the store, or those of dl_book_read. After an error
 * the book is closed. */
DL_MUST_CHECK diloco_status dl_book_open(dl_book *book, const char *url, const char *run,
                                         const dl_executor *executor);
void dl_book_close(dl_book *book); /* zeroed is fine */

/* dl_book_bind sets which executor gets the ids of this book, and drops those that it does not
 * accept. From then on no "begin" changes that. A caller must bind the book before it gives a job
 * to a function of an executor. `executor` is borrowed. */
void dl_book_bind(dl_book *book, const dl_executor *executor);

/* dl_book_read reads the records that were added since. An id that the executor does not accept
 * (dl_executor.is_id) is left out, with a warning in the log that names its record. Returns
 * DILOCO_EPROTO if a record is damaged or of a later version, or an error of the store. The records
 * before that one count. */
DL_MUST_CHECK diloco_status dl_book_read(dl_book *book);

/* Returns the seconds of machine time so far, those of running replicas included. A replica counts
 * from its "start" on, so that waiting in a queue counts, too. */
double dl_book_machine_seconds(const dl_book *book);

/* Returns the number of replicas that have an id and are not over. */
size_t dl_book_alive(const dl_book *book);

/* Returns true if the last "begin" has these settings and nothing was cancelled since: no new
 * "begin" is needed. */
bool dl_book_agrees(const dl_book *book, const dl_launch_spec *spec, const char *executor,
                    uint32_t min, uint32_t max);

/* The functions below append a record, and read the book up to it. begin and start return
 * DILOCO_EEXIST if another launcher was quicker to write a record. That record has been read, and
 * the caller decides again. The other functions write their record after it. All return errors of
 * the store. */
DL_MUST_CHECK diloco_status dl_book_begin(dl_book *book, const dl_launch_spec *spec,
                                          const char *executor, uint32_t min, uint32_t max);
/* `ranks` [n] in ascending order; `why` is the message of the generation before, for people. */
DL_MUST_CHECK diloco_status dl_book_start(dl_book *book, const uint32_t *ranks, size_t n,
                                          uint32_t generation, const char *why);
/* The ids of n jobs of one generation. Jobs without an id are left out, and without any nothing is
 * written. */
DL_MUST_CHECK diloco_status dl_book_handles(dl_book *book, const dl_job *jobs, size_t n);
DL_MUST_CHECK diloco_status dl_book_state(dl_book *book, const dl_job *job);
DL_MUST_CHECK diloco_status dl_book_scale(dl_book *book, uint32_t min, uint32_t max);
DL_MUST_CHECK diloco_status dl_book_cancel(dl_book *book);

#endif
