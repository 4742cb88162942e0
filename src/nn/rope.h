/* rope.h - rotary positions (Su et al. 2021, arXiv:2104.09864): at position t the pair (i, i +
 * dim/2) of a head's elements is turned by the angle t * w_i, w_i = theta^(-2i / dim) radians a
 * position.
 *
 * For texts longer than those a model began with, pairs turn more slowly:
 *
 *     linear   all by a factor (Chen et al. 2023, arXiv:2306.15595): w_i / factor
 *     llama3   the slow ones by the factor, the fast ones not, those between partly (Llama 3.1)
 *
 * llama3, with n = original * w_i / 2 pi, the turns of a pair over the original length:
 *
 *     n < low            w_i / factor
 *     n > high           w_i
 *     low <= n <= high   s w_i + (1 - s) w_i / factor,  s = (n - low) / (high - low)
 *
 * as transformers computes both (modeling_rope_utils.py). */
#ifndef DL_NN_ROPE_H
#define DL_NN_ROPE_H

#include "base/options/model_options.h"

typedef struct dl_rope {
    double theta;
    dl_rope_scaling scaling;
    double factor;              /* > 0, of linear and llama3 */
    double low, high, original; /* of llama3: low < high, turns over `original` positions */
} dl_rope;

/* Returns by which factor pair i < dim / 2 turns more slowly than without scaling: 1 to factor. */
double dl_rope_divisor(const dl_rope *rope, size_t pair, size_t dim);

/* Returns the angle of a pair at a position, in radians, not reduced to one turn. */
double dl_rope_angle(const dl_rope *rope, size_t position, size_t pair, size_t dim);

/* Writes cos and sin of all pairs' angles at a position, f32[dim / 2] each. They are computed in
 * double and rounded once. */
void dl_rope_angles(float *cosine, float *sine, const dl_rope *rope, size_t position, size_t dim);

#endif
