/* conv.h - the three matrix products of a convolution, for parts of a pool.
 *
 * x f32[in places][rows][in], y f32[out places][rows][out] as in planes.h; the weight is PyTorch's
 * f32[out][in][size][size], packed before it is used. Every element of a result is one sum in a
 * fixed order, whatever the number of parts. */
#ifndef DL_NN_CONV_H
#define DL_NN_CONV_H

#include "nn/planes.h"

typedef struct dl_conv {
    const dl_window *window;
    size_t rows;
    bool back; /* y from x, or dx from dy: the same sum over the taps seen from the other side */
} dl_conv;

/* Floats that the packed weight takes, and that dl_conv_weights needs of its own for each part. */
size_t dl_conv_packed(const dl_window *window, bool back);
size_t dl_conv_workspace(const dl_window *window, size_t rows);

/* This part's share of the packed weight. All of it is needed before dl_conv_product. */
void dl_conv_pack(float *packed, const float *weight, const dl_conv *conv, int part, int n_parts);

/* This part's share of `to` (y, or dx): = bias + the sum over the taps. bias f32[out] or NULL.
 * beside: a tile, DL_CONV_BESIDE floats. */
enum { DL_CONV_BESIDE = 12 * 32 };
void dl_conv_product(float *to, const float *from, const float *packed, const float *bias,
                     const dl_conv *conv, float *beside, int part, int n_parts);

/* This part's share of dW by taps, in as many floats as the packed weight takes. */
void dl_conv_weights(float *taps, const float *x, const float *dy, const dl_conv *conv,
                     float *workspace, int part, int n_parts);

/* This part's share of the weight's gradient, from all of dW by taps; added to it or written. */
void dl_conv_unpack(float *gradient, const float *taps, const dl_conv *conv, bool add, int part,
                    int n_parts);

#endif
