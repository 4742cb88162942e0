/* columns.h - the functions for a GPU in the tables of gradient.c, movement.c and inner.c. Each
 * starts kernels by name. A launch is queued on the backend's one stream, so kernels run in the
 * order of the calls and see each other's results. */
#ifndef DL_NN_CUDA_COLUMNS_H
#define DL_NN_CUDA_COLUMNS_H

#include "nn/gradient.h"

/* gradient.h has the meaning of these. They queue kernels and return; n may be 0. */
void dl_cuda_judge(const dl_gradient *gradient);
void dl_cuda_scale(const dl_gradient *gradient);
void dl_cuda_pull(const dl_gradient *gradient, const dl_pull *pull);

/* movement.h has the meaning of these. */
void dl_cuda_form(dl_backend *backend, float *g, const float *before, const float *after, size_t n);
void dl_cuda_squares(dl_backend *backend, double *squares, const float *g, size_t n);
void dl_cuda_adopt(dl_backend *backend, float *local, const float *theta, float mix, size_t n);

/* out and verdict are in device memory; the options are copied with the launch. */
void dl_cuda_hyper(dl_backend *backend, dl_hyper *out, const dl_verdict *verdict,
                   const dl_hyper_options *options);

#endif
