/* inner_columns.h - the functions for a GPU in the tables of the optimizers, as in columns.h. */
#ifndef DL_NN_CUDA_INNER_COLUMNS_H
#define DL_NN_CUDA_INNER_COLUMNS_H

#include "nn/inner_rows.h"

void dl_cuda_adamw(const dl_inner_part *part);
void dl_cuda_qhadamw(const dl_inner_part *part);
void dl_cuda_sgd(const dl_inner_part *part);
void dl_cuda_rmsprop(const dl_inner_part *part);

#endif
