/* recorder.h - the record of one replica (docs/architecture.md section 9): the run's events and the
 * trainer's, as lines of JSON, in the order they happened, to the run's rec/, to the file
 * run.record, and to the program's hook; their numbers to run.track (tracker.h).
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

typedef struct dl_recorder {
    int fd;                          /* of run.record; -1: none */
    bool told;                       /* that the file cannot be written */
    const char *path;                /* borrowed */
    const char *replica;             /* borrowed */
    diloco_run *run;                 /* borrowed; NULL: without a log there is no rec/ */
    const diloco_train_hooks *hooks; /* borrowed; or NULL */
    dl_tracker tracker;              /* of run.track */
    dl_buf line;
    dl_json json;
    uint64_t n_unapplied; /* steps in a row */
} dl_recorder;

/* Open the file, if config names one, and listen to the run. Everything given is borrowed until
 * dl_recorder_close. The run's last line comes when it is closed: to get that, close the run, set
 * `run` NULL, then close the recorder. DILOCO_EIO, DILOCO_ENOENT: the file. */
DL_MUST_CHECK diloco_status dl_recorder_open(dl_recorder *out, const dl_config *config,
                                             const char *replica, diloco_run *run,
                                             const diloco_train_hooks *hooks);
void dl_recorder_close(dl_recorder *recorder); /* zeroed is fine */

/* Begin an event; its members are put into the object returned until dl_recorder_end, which sends
 * the line. After diloco_run_join. */
dl_json *dl_recorder_begin(dl_recorder *recorder, const char *event);
DL_MUST_CHECK diloco_status dl_recorder_end(dl_recorder *recorder);

/* The inner loop's settings, as members of the open event. */
void dl_recorder_put_inner(dl_json *j, const dl_config *config);

/* {"event":"warn","replica":…,"code":code,"text":text} */
DL_MUST_CHECK diloco_status dl_recorder_warn(dl_recorder *recorder, const char *code,
                                             const char *text);

/* An event "step": the step-th that this replica completed, which brought it to `position` in the
 * time of an entry. */
DL_MUST_CHECK diloco_status dl_recorder_step(dl_recorder *recorder, const dl_step_facts *facts,
                                             double lr, uint64_t step, uint64_t position,
                                             uint64_t entry);

/* A step was taken, by a logical client or (-1) the replica itself. One that was not applied is
 * warned of, with the error text as its reason. DILOCO_ENUMERIC: 100 in a row were not. */
DL_MUST_CHECK diloco_status dl_recorder_check_step(dl_recorder *recorder,
                                                   const dl_step_facts *facts, uint64_t step,
                                                   int64_t client);

#endif
