/* result_columns.h - the columns of a federated run's results file, and those that results.types
 * chooses. */
#ifndef DL_PRESETS_RESULT_COLUMNS_H
#define DL_PRESETS_RESULT_COLUMNS_H

#include "base/config.h"

/* The columns, in the order of dl_result_names. */
enum {
    DL_RESULTS_ROUND,
    DL_RESULTS_ACCURACY,
    DL_RESULTS_ELAPSED_TIME, /* s of training so far, of all generations; or as simulated, of the
                                log */
    DL_RESULTS_TEST_LOSS,
    DL_RESULTS_TRAIN_LOSS,    /* mean of the members */
    DL_RESULTS_COMM_OVERHEAD, /* MB of contributions so far */
    DL_RESULTS_CLIENTS,       /* counted in this round */
    DL_RESULTS_STEPS,         /* optimizer steps of all counted clients so far */
    DL_RESULTS_SAMPLES,       /* likewise */
    DL_RESULTS_COLUMNS
};

/* As the file's first line calls them. */
extern const char *const dl_result_names[DL_RESULTS_COLUMNS];

/* Read the words of "round, accuracy" into columns[*n], in order. Return false at a word that is no
 * column, or that is there twice, and for an empty list. */
bool dl_result_columns_read(int columns[DL_RESULTS_COLUMNS], size_t *n, const char *text);

/* The columns of results.types. Returns DILOCO_EINVAL, with the words to choose from, if it cannot
 * be read. */
DL_MUST_CHECK diloco_status dl_result_columns_choose(int columns[DL_RESULTS_COLUMNS], size_t *n,
                                                     const dl_config *config);
/* The same check without the result. */
DL_MUST_CHECK diloco_status dl_results_check(const dl_config *config);

#endif
