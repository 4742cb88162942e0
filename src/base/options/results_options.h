/* results_options.h - options of [results]: the file of a federated run. */
#ifndef DL_BASE_OPTIONS_RESULTS_OPTIONS_H
#define DL_BASE_OPTIONS_RESULTS_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* Where a process writes its results for people. Nothing here changes training. */
#define DL_RESULTS_OPTIONS(X) \
    X(PATH, result_types, "results.types", "round, accuracy, elapsed_time", "columns", 0, \
      "Columns of the results file of a federated run.", \
      .applies_when = "clients.total_clients") \
    X(PATH, result_path, "results.result_path", "", "path", 0, \
      "Folder of the results file. Default: STORE.results.", \
      .applies_when = "clients.total_clients")
// clang-format on

DL_OPTION_STRUCT(results, DL_RESULTS_OPTIONS)

#endif
