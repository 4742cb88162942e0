/* results.h - the results file of a federated run: CSV, a row a round, for whoever plots it.
 *
 *     round,accuracy,elapsed_time
 *     1,0.8312,12.417
 *
 * Columns are those of results.types. What the log says of a round (clients, steps, samples, loss,
 * bytes) is read from the log, so no round is lost; what only somebody measured (accuracy, time) is
 * empty in a round after which nobody evaluated. The file is written whole and renamed into place
 * under a lock of its folder: several processes of a machine share it, and one that is killed
 * leaves the old file or the new one. A run that starts again begins a new file. */
#ifndef DL_TRAIN_RESULTS_H
#define DL_TRAIN_RESULTS_H

#include "base/clock.h"
#include "base/config.h"
#include "presets/result_columns.h"
#include "train/evaluate.h"

/* A value that is not known is NaN. */
typedef struct dl_results_row {
    double values[DL_RESULTS_COLUMNS];
} dl_results_row;

typedef struct dl_results {
    const dl_config *config; /* borrowed */
    dl_config_path path;
    int columns[DL_RESULTS_COLUMNS]; /* that the file has, in order */
    size_t n_columns;
    dl_results_row *rows; /* owned; row i is of round i + 1 */
    size_t n_rows, room;
    double before; /* elapsed_time of earlier generations */
    dl_time begin;
} dl_results;

/* At a generation's beginning, after so many entries; 0 begins a new file. DILOCO_EINVAL,
 * DILOCO_EIO, DILOCO_ENOMEM; DILOCO_EPROTO: a file of that name is something else. */
DL_MUST_CHECK diloco_status dl_results_open(dl_results *out, const dl_config *config,
                                            uint64_t entries);
void dl_results_close(dl_results *results); /* zeroed is fine */

/* Of the round's row; NaN: it has none. */
double dl_results_accuracy(const dl_results *results, uint64_t round);

/* After entry round - 1; score NULL: nobody evaluated. Reads the log's new entries. */
DL_MUST_CHECK diloco_status dl_results_put(dl_results *results, uint64_t round,
                                           const dl_score *score);

#endif
