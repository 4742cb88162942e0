/* movement_columns.h - the functions for a GPU in the table of movement.c. Each starts a kernel, as
 * those of columns.h. */
#ifndef DL_NN_CUDA_MOVEMENT_COLUMNS_H
#define DL_NN_CUDA_MOVEMENT_COLUMNS_H

#include "nn/movement.h"

/* movement.h has the meaning of these. */
void dl_cuda_form(dl_backend *backend, float *g, const float *before, const float *after, size_t n);
void dl_cuda_squares(dl_backend *backend, double *squares, const float *g, size_t n);
void dl_cuda_adopt(dl_backend *backend, float *local, const float *theta, float mix, size_t n);
void dl_cuda_encode(dl_backend *backend, const dl_encoding *to, const float *x, size_t n);

#endif
