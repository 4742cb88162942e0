/* movement.h - the operations of an exchange on tensors in backend memory: how far they moved from
 * the shared model, and adoption of that model.
 *
 * Each has a function for each kind of device, as the operations of a graph have (op.h). Finite
 * values have equal bits on all of them, those of dl_delta, dl_adopt and dl_block_norm2
 * (tensor/kernels.h). Each queues its work. All arrays are on the backend. */
#ifndef DL_NN_MOVEMENT_H
#define DL_NN_MOVEMENT_H

#include "codec/blocks.h"
#include "tensor/backend.h"

/* dl_movement_form queues g = before - after, f32[n] each. */
void dl_movement_form(dl_backend *backend, float *g, const float *before, const float *after,
                      size_t n);

/* dl_movement_squares queues the sums of squares of g f32[n], one for each block of DL_BLOCK
 * elements, to squares f64[dl_gradient_blocks(n)]. */
void dl_movement_squares(dl_backend *backend, double *squares, const float *g, size_t n);

/* dl_movement_adopt queues local = theta + mix (local - theta), f32[n] each. With mix 0 it copies,
 * and with mix 1 it does nothing. */
void dl_movement_adopt(dl_backend *backend, float *local, const float *theta, float mix, size_t n);

/* The codes and scales of a tensor in a payload (codec/blocks.h), each aligned to 4 bytes. */
typedef struct dl_encoding {
    const dl_block_kind *kind; /* with `integers` */
    unsigned char *codes, *scales;
} dl_encoding;

/* dl_movement_encode queues the encoding of x f32[n], a tensor's movement. */
void dl_movement_encode(dl_backend *backend, const dl_encoding *to, const float *x, size_t n);

#endif
