/* conv.h - the three matrix products of a convolution, for parts of a pool (nn/op_conv2d.c has the
 * formulas).
 *
 * x f32[in places][rows][in], y f32[out places][rows][out] as in planes.h; the weight is PyTorch's
 * f32[out][in][size][size], packed before it is used. Every element of a result is one sum in a
 * fixed order, whatever the number of parts. */
#ifndef DL_NN_CONV_H
#define DL_NN_CONV_H

#include "nn/planes.h"

/* One product's shape. The window is borrowed. */
typedef struct dl_conv {
    const dl_window *window;
    size_t rows; /* images of the batch */
    bool back;   /* y from x, or dx from dy: the same sum over the taps seen from the other side */
} dl_conv;

/* dl_conv_packed returns the floats of the packed weight, dl_conv_workspace those that each part of
 * dl_conv_weights needs for itself. Both hold for every instruction set. */
size_t dl_conv_packed(const dl_window *window, bool back);
size_t dl_conv_workspace(const dl_window *window, size_t rows);

/* Packs this part's share of the weight. All parts have to be done before dl_conv_product. */
void dl_conv_pack(float *packed, const float *weight, const dl_conv *conv, int part, int n_parts);

/* Writes this part's share of `to` (y, or dx): bias plus the sum over the taps. bias is f32[out] or
 * NULL. beside is room for a tile, DL_CONV_BESIDE floats that no other part uses. */
enum { DL_CONV_BESIDE = 12 * 32 }; /* DL_PANEL_ROWS * DL_PANEL_MAX_WIDTH */
void dl_conv_product(float *to, const float *from, const float *packed, const float *bias,
                     const dl_conv *conv, float *beside, int part, int n_parts);

/* Writes this part's share of dW, [tap][in][out], to `taps`. That memory is as large as the packed
 * weight. The result needs dl_conv_unpack after all parts are done. */
void dl_conv_weights(float *taps, const float *x, const float *dy, const dl_conv *conv,
                     float *workspace, int part, int n_parts);

/* Moves this part's share of dW to the weight's gradient, in PyTorch's order; adds it if `add`. */
void dl_conv_unpack(float *gradient, const float *taps, const dl_conv *conv, bool add, int part,
                    int n_parts);

#endif
