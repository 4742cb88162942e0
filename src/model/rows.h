/* rows.h - what each model's file gives to the table in model.c. */
#ifndef DL_MODEL_ROWS_H
#define DL_MODEL_ROWS_H

#include "base/config.h"
#include "nn/graph.h"

/* Check the options and build the graph; it is not allocated yet. */
typedef diloco_status (*dl_model_build)(dl_graph **out, const dl_config *config, size_t vocab,
                                        size_t max_rows, int n_threads);

diloco_status dl_gpt_build(dl_graph **out, const dl_config *config, size_t vocab, size_t max_rows,
                           int n_threads);

#endif
