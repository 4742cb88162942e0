/* order.h - small arithmetic that combiners share. Plain float64 in index order, so that every
 * machine gets the same bits. */
#ifndef DL_COMBINE_ORDER_H
#define DL_COMBINE_ORDER_H

#include <stddef.h>

/* order[n] = the indices 0 … n - 1 by ascending key, equal keys by index. Heap sort: no
 * memory, and no worst case that a hostile member could make. */
void dl_order(size_t *order, const double *key, size_t n);

/* The middle key, or the mean of the middle two; n > 0. order is written to. */
double dl_median(size_t *order, const double *key, size_t n);

/* ||x_a - x_b||^2 from dot products of n inputs: never negative, 0 for equal inputs. */
static inline double dl_distance2(const double *gram, size_t n, size_t a, size_t b)
{
    double d2 = gram[a * n + a] + gram[b * n + b] - 2 * gram[a * n + b];
    return d2 > 0 ? d2 : 0;
}

#endif
