/* gradient.h - operations on the whole gradient, between the backward pass and the update: its
 * norm, the clip factor that follows from it, scaling, and the pull towards an anchor.
 *
 * Each has a function for each kind of device, as the operations of a graph have (op.h). Results
 * stay in backend memory, where the update reads them; the host reads them after the step. */
#ifndef DL_NN_GRADIENT_H
#define DL_NN_GRADIENT_H

#include "base/thread.h"
#include "nn/verdict.h"
#include "tensor/backend.h"
#include <stdbool.h>

/* A gradient and the memory that its operations need. Nothing is owned. */
typedef struct dl_gradient {
    dl_backend *backend;
    dl_pool *pool;
    float *values; /* f32[n], on the backend */
    size_t n;
    double *squares;     /* f64[dl_gradient_blocks(n)], on the backend */
    dl_verdict *verdict; /* on the backend */
    double clip;         /* largest norm; 0: any */
    double margin;       /* added to the norm in clip / (norm + margin) */
} dl_gradient;

/* Returns the number of partial sums of n elements: one for each block of DL_BLOCK. */
size_t dl_gradient_blocks(size_t n);

/* dl_gradient_judge queues the verdict: the norm in float64 by blocks, so the same at any number of
 * threads, and the clip factor. A finite norm adds 1 to `steps`. */
void dl_gradient_judge(const dl_gradient *gradient);

/* dl_gradient_scale queues values *= clip_factor, or zeros if the norm is not finite. The caller
 * has queued dl_gradient_judge before. An optimizer's step does not need it: it multiplies by the
 * factor itself. */
void dl_gradient_scale(const dl_gradient *gradient);

/* dl_gradient_pull queues values[i] += mu * (parameters[i] - anchor[i]) for begin <= i < end. Both
 * arrays are f32[n] on the backend. */
typedef struct dl_pull {
    const float *parameters, *anchor;
    size_t begin, end;
    float mu;
} dl_pull;
void dl_gradient_pull(const dl_gradient *gradient, const dl_pull *pull);

#endif
