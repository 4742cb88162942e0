/* position.h - a decoder's computation for one position: products of a matrix and a vector, which
 * take as long as reading the matrix, and the small operations between them. */
#ifndef DL_NN_POSITION_H
#define DL_NN_POSITION_H

#include <stddef.h>

/* y[row] = W[row][n] . x for rows begin … end-1; y is indexed by row, not from begin. */
void dl_position_product(float *y, const float *w, const float *x, size_t n, size_t begin,
                         size_t end);
/* y = x / sqrt(mean(x^2) + eps) * w; y may be x. */
void dl_position_norm(float *y, const float *x, const float *w, size_t n, float eps);
/* Turn the pairs (i, i + dim/2) of a head by cosine and sine [dim/2]. */
void dl_position_turn(float *x, const float *cosine, const float *sine, size_t dim);
/* y = silu(gate) * up, [n] each */
void dl_position_swiglu(float *y, const float *gate, const float *up, size_t n);
/* out[dim] = softmax(q . keys / sqrt(dim)) values over n positions, keys and values [n][dim];
 * room f32[n]. */
void dl_position_attend(float *out, const float *q, const float *keys, const float *values,
                        size_t n, size_t dim, float *room);

#endif
