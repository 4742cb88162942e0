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
 *     {…,"what":"cancel"}                                       nothing is started from here on */
#ifndef DL_LAUNCH_BOOK_H
#define DL_LAUNCH_BOOK_H

#include "launch/executor.h"
#include "store/store.h"

typedef struct dl_book_rank {
    dl_job job;           /* the newest generation */
    bool started;         /* a launcher has announced it */
    bool again;           /* over, and a later "begin" lets it start once more */
    uint32_t lost;        /* times that it was lost since the last "begin" */
    double started_at;    /* seconds since 1970 */
    char by[33];          /* launcher that announced it */
    dl_time silent_since; /* of this launcher: no answer about it since; 0: it is answered for */
    dl_job orphan;        /* the last generation that was lost; id "": none, or it has ended */
    bool orphan_runs;     /* at the last look */
    bool orphan_ran;      /* at some look since the newest generation was started */
} dl_book_rank;

typedef struct dl_book {
    dl_store *store; /* owned */
    char run[33];
    char by[33];   /* this launcher */
    uint64_t next; /* number of the next record */
    bool begun, cancelled;
    dl_config_path executor, dir;
    uint32_t min, max;
    dl_config *options;  /* owned: options of [launch] of the last "begin" */
    dl_book_rank *ranks; /* owned, [DL_JOBS_MAX] */
    double machine_s;    /* seconds of replicas that are over */
} dl_book;

/* Open the book of the run in the store at `url`, and read it. A run that nothing was launched for
 * has an empty book. */
DL_MUST_CHECK diloco_status dl_book_open(dl_book *book, const char *url, const char *run);
void dl_book_close(dl_book *book); /* zeroed is fine */

/* Read the records that were added since. DILOCO_EPROTO: one is damaged, or of a later version. */
DL_MUST_CHECK diloco_status dl_book_read(dl_book *book);

/* Seconds of machine time so far, those of running replicas included. */
double dl_book_machine_seconds(const dl_book *book);

/* Is this what the last "begin" said, and nothing has been cancelled since? */
bool dl_book_agrees(const dl_book *book, const dl_launch_spec *spec, const char *executor,
                    uint32_t min, uint32_t max);

/* Append a record and read it. DILOCO_EEXIST, of begin and start: another launcher was quicker to
 * write a record; it has been read, and the caller decides again. The others are written after
 * it. */
DL_MUST_CHECK diloco_status dl_book_begin(dl_book *book, const dl_launch_spec *spec,
                                          const char *executor, uint32_t min, uint32_t max);
/* `ranks` in ascending order. */
DL_MUST_CHECK diloco_status dl_book_start(dl_book *book, const uint32_t *ranks, size_t n,
                                          uint32_t generation, const char *why);
/* Of the jobs that have an id. */
DL_MUST_CHECK diloco_status dl_book_handles(dl_book *book, const dl_job *jobs, size_t n);
DL_MUST_CHECK diloco_status dl_book_state(dl_book *book, const dl_job *job);
DL_MUST_CHECK diloco_status dl_book_scale(dl_book *book, uint32_t min, uint32_t max);
DL_MUST_CHECK diloco_status dl_book_cancel(dl_book *book);

#endif
