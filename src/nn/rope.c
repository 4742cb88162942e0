/* rope.c - angles of rotary positions (rope.h). They are computed in double: an angle of thousands
 * of radians has few digits after the point as a float. Only its cosine and sine are rounded. */
#include "nn/rope.h"

#include <math.h>

static const double TURN = 6.283185307179586;

/* w_i in radians a position, before scaling. */
static double frequency(const dl_rope *rope, size_t pair, size_t dim)
{
    return pow(rope->theta, -2.0 * (double)pair / (double)dim);
}

double dl_rope_divisor(const dl_rope *rope, size_t pair, size_t dim)
{
    if (rope->scaling == DL_ROPE_NONE) return 1;
    if (rope->scaling == DL_ROPE_LINEAR) return rope->factor;
    double turns = rope->original * frequency(rope, pair, dim) / TURN;
    if (turns < rope->low) return rope->factor;
    if (turns > rope->high) return 1;
    double share = (turns - rope->low) / (rope->high - rope->low);
    return 1 / (share + (1 - share) / rope->factor);
}

double dl_rope_angle(const dl_rope *rope, size_t position, size_t pair, size_t dim)
{
    return (double)position * frequency(rope, pair, dim) / dl_rope_divisor(rope, pair, dim);
}

void dl_rope_angles(float *cosine, float *sine, const dl_rope *rope, size_t position, size_t dim)
{
    for (size_t i = 0; i < dim / 2; i++) {
        double angle = dl_rope_angle(rope, position, i, dim);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
}
