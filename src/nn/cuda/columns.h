/* columns.h - the functions for a GPU in the tables of gradient.c and inner.c. Each starts kernels
 * by name. A launch is queued on the backend's one stream, so kernels run in the order of the calls
 * and see each other's results. */
#ifndef DL_NN_CUDA_COLUMNS_H
#define DL_NN_CUDA_COLUMNS_H

#include "nn/gradient.h"

/* gradient.h has the meaning of these. They queue kernels and return; n may be 0. */
void dl_cuda_judge(const dl_gradient *gradient);
void dl_cuda_scale(const dl_gradient *gradient);
void dl_cuda_pull(const dl_gradient *gradient, const dl_pull *pull);

/* out and verdict are in device memory; the options are copied with the launch. */
void dl_cuda_hyper(dl_backend *backend, dl_hyper *out, const dl_verdict *verdict,
                   const dl_hyper_options *options);

#endif
