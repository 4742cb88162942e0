/* results.h - the results file of a federated run: CSV, a row a round, for plots.
 *
 *     round,accuracy,elapsed_time
 *     1,0.8312,12.417
 *
 * Columns are those of results.types. The facts of a round in the log (clients, steps, samples,
 * loss, bytes) are read from the log, so no round is lost. Only an evaluation measures accuracy and
 * time, so they are empty in a round without one.
 *
 * The file is written whole and renamed into place under a lock of its folder. Several processes of
 * a machine share it, and a killed one leaves the old file or the new one. A run that starts again
 * begins a new file. */
#ifndef DL_TRAIN_RESULTS_H
#define DL_TRAIN_RESULTS_H

#include "base/clock.h"
#include "base/config.h"
#include "presets/result_columns.h"
#include "train/evaluate.h"

/* An unknown value is NaN. */
typedef struct dl_results_row {
    double values[DL_RESULTS_COLUMNS];
} dl_results_row;

typedef struct dl_results {
    const dl_config *config; /* borrowed */
    dl_config_path path;
    int columns[DL_RESULTS_COLUMNS]; /* numbers of the file's columns, in order */
    size_t n_columns;
    dl_results_row *rows; /* owned; row i is of round i + 1 */
    size_t n_rows, room;
    double before; /* elapsed_time of earlier generations, in seconds */
    dl_time begin; /* when this generation began */
} dl_results;

/* Opens the file when a generation begins, after that many entries; 0 begins a new file. Returns
 * DILOCO_EINVAL, DILOCO_EIO, DILOCO_ENOMEM, or DILOCO_EPROTO if the file of that name is something
 * else; such a file stays as it is. */
DL_MUST_CHECK diloco_status dl_results_open(dl_results *out, const dl_config *config,
                                            uint64_t entries);
void dl_results_close(dl_results *results); /* zeroed is fine */

/* Returns the accuracy in the round's row, or NaN if it has none. */
double dl_results_accuracy(const dl_results *results, uint64_t round);

/* Writes the row after entry round - 1; score NULL: it was not evaluated. Reads the log's new
 * entries. */
DL_MUST_CHECK diloco_status dl_results_put(dl_results *results, uint64_t round,
                                           const dl_score *score);

#endif
