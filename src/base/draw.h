/* draw.h - draws from distributions, with the same bits on every machine.
 *
 * Several machines that deal one data set over clients have to deal it alike, and math
 * libraries differ in their logarithms. So nothing here calls any: + - * / and sqrt alone, which
 * IEEE 754 rounds in one way (the build contracts no a * b + c, cmake/flags.cmake). */
#ifndef DL_BASE_DRAW_H
#define DL_BASE_DRAW_H

#include "base/rng.h"

/* ln x of a finite x > 0, and e^x of x <= 700 (0 below -700), to a few units of the last place. */
double dl_draw_log(double x);
double dl_draw_exp(double x);

double dl_draw_normal(dl_rng *rng); /* mean 0, deviation 1 */

/* Logarithm of a draw from the gamma distribution of this shape > 0, scale 1. For small shapes the
 * draw itself is often less than the smallest number. */
double dl_draw_log_gamma(dl_rng *rng, double shape);

/* n > 0 parts that sum to 1, drawn from the symmetric Dirichlet distribution. */
void dl_draw_dirichlet(double *out, size_t n, double concentration, dl_rng *rng);

#endif
