/* recorder.h - the record of one replica (docs/architecture.md section 9): the events of the run
 * and of the trainer in their order, as lines of JSON. They go to the run's rec/, to the file
 * run.record, and to the program's hook; their numbers go to run.track (tracker.h).
 *
 *     dl_json *j = dl_recorder_begin(recorder, "step");
 *     dl_json_u64(j, "step", 12);
 *     DL_TRY(dl_recorder_end(recorder));
 *
 * One thread at a time. Allocates nothing once the longest line was written. */
#ifndef DL_TRAIN_RECORDER_H
#define DL_TRAIN_RECORDER_H

#include "base/config.h"
#include "base/json.h"
#include "train/step.h"
#include "train/tracker.h"
#include <diloco/train.h>

/* A zeroed recorder may be closed; any other use needs dl_recorder_open. */
typedef struct dl_recorder {
    int fd;                          /* of run.record; -1: none */
    bool failed;                     /* the failure to write the file was reported */
    const char *path;                /* borrowed */
    const char *replica;             /* borrowed */
    diloco_run *run;                 /* borrowed; NULL: without a log there is no rec/ */
    const diloco_train_hooks *hooks; /* borrowed; or NULL */
    dl_tracker tracker;              /* of run.track */
    dl_buf line;                     /* the open event, at most 1 MiB */
    dl_json json;                    /* writes into `line` */
    uint64_t n_unapplied;            /* consecutive steps that changed nothing */
} dl_recorder;

/* Opens the file, if config names one, and gets the run's lines. All arguments are borrowed until
 * dl_recorder_close. The run writes its last line when it is closed. To record it, close the run,
 * set `run` to NULL, then close the recorder. Returns DILOCO_EIO or DILOCO_ENOENT of the file. */
DL_MUST_CHECK diloco_status dl_recorder_open(dl_recorder *out, const dl_config *config,
                                             const char *replica, diloco_run *run,
                                             const diloco_train_hooks *hooks);
void dl_recorder_close(dl_recorder *recorder); /* zeroed is fine */

/* Begins an event. Its members are written to the returned object until dl_recorder_end, which
 * sends the line. Call it after diloco_run_join. */
dl_json *dl_recorder_begin(dl_recorder *recorder, const char *event);
DL_MUST_CHECK diloco_status dl_recorder_end(dl_recorder *recorder);

/* Writes the inner loop's settings as members of the open event. */
void dl_recorder_put_inner(dl_json *j, const dl_config *config);

/* {"event":"warn","replica":…,"code":code,"text":text} */
DL_MUST_CHECK diloco_status dl_recorder_warn(dl_recorder *recorder, const char *code,
                                             const char *text);

/* Writes an event "step": the replica's step-th completed step, which brought it to `position`
 * during an entry. */
DL_MUST_CHECK diloco_status dl_recorder_step(dl_recorder *recorder, const dl_step_facts *facts,
                                             double lr, uint64_t step, uint64_t position,
                                             uint64_t entry);

/* Checks a step of a logical client or (-1) of the replica itself. If it was not applied, writes a
 * warning with the error text as its reason. Returns DILOCO_ENUMERIC after 100 consecutive ones. */
DL_MUST_CHECK diloco_status dl_recorder_check_step(dl_recorder *recorder,
                                                   const dl_step_facts *facts, uint64_t step,
                                                   int64_t client);

#endif
