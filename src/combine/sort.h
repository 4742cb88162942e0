/* sort.h - sorting members, element by element: a network over rows of lanes.
 *
 * The rows of a tile are the inputs, its DL_SORT_LANES columns are elements; after
 * dl_sort_tile every column ascends. Batcher's merge exchange (Knuth, The Art of Computer
 * Programming 3, 5.2.2, algorithm M) compares the same rows whatever the values, so whole rows
 * are compared at once. Any number of rows: it has about n log^2 n / 4 exchanges (19 for 8 rows,
 * 543 for 64, 139 263 for 4096), each of which costs a lane a sixteenth of two instructions. */
#ifndef DL_COMBINE_SORT_H
#define DL_COMBINE_SORT_H

#include "combine/combine.h"

/* x[n_inputs][at … at + n) into the tile; lanes after n repeat nothing and are never read. */
static inline DL_BODY void dl_sort_load(float *tile, const float *const *x, size_t n_inputs,
                                        size_t at, size_t n)
{
    for (size_t m = 0; m < n_inputs; m++) {
        float *row = tile + m * DL_SORT_LANES;
        const float *from = x[m] + at;
        if (n == DL_SORT_LANES) {
            for (size_t l = 0; l < DL_SORT_LANES; l++)
                row[l] = from[l] + 0.0f;
        } else {
            for (size_t l = 0; l < DL_SORT_LANES; l++)
                row[l] = l < n ? from[l] + 0.0f : 0;
        }
    }
}

/* The values are finite and have no negative zero (dl_sort_load), so plain comparisons suffice;
 * each becomes a vector instruction. */
static inline DL_BODY void dl_sort_exchange(float *a, float *b)
{
    DL_EACH
    for (size_t l = 0; l < DL_SORT_LANES; l++) {
        float low = a[l] < b[l] ? a[l] : b[l], high = a[l] < b[l] ? b[l] : a[l];
        a[l] = low;
        b[l] = high;
    }
}

/* The pairs follow from the number of rows alone, so the branch below depends on no value. */
static inline DL_BODY void dl_sort_tile(float *tile, size_t n)
{
    size_t top = 1;
    while (2 * top < n)
        top *= 2;
    for (size_t p = n > 1 ? top : 0; p > 0; p /= 2)
        for (size_t q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {
            for (size_t i = 0; i + d < n; i++)
                if ((i & p) == r)
                    dl_sort_exchange(tile + i * DL_SORT_LANES, tile + (i + d) * DL_SORT_LANES);
            if (q == p) break;
        }
}

static inline DL_BODY void dl_sort_two(float *a, float *b)
{
    float low = *a < *b ? *a : *b, high = *a < *b ? *b : *a;
    *a = low;
    *b = high;
}

enum { DL_SORT_FEW = 8 };

/* The same network for n <= 8 values, a constant, which then stay in registers. */
static inline DL_BODY void dl_sort_few(float *v, size_t n)
{
#define DL_SORT(a, b) (void)((b) < n ? (dl_sort_two(v + (a), v + (b)), 0) : 0)
    DL_SORT(0, 4), DL_SORT(1, 5), DL_SORT(2, 6), DL_SORT(3, 7);
    DL_SORT(0, 2), DL_SORT(1, 3), DL_SORT(4, 6), DL_SORT(5, 7);
    DL_SORT(2, 4), DL_SORT(3, 5);
    DL_SORT(0, 1), DL_SORT(2, 3), DL_SORT(4, 5), DL_SORT(6, 7);
    DL_SORT(1, 4), DL_SORT(3, 6);
    DL_SORT(1, 2), DL_SORT(3, 4), DL_SORT(5, 6);
#undef DL_SORT
}

/* out[l] = the mean of rows [first, first + count), added in ascending order (PROTOCOL B2). */
static inline DL_BODY void dl_sort_mean(float *out, const float *tile, size_t first, size_t count)
{
    float by = (float)count;
    for (size_t l = 0; l < DL_SORT_LANES; l++)
        out[l] = 0;
    for (size_t m = first; m < first + count; m++)
        for (size_t l = 0; l < DL_SORT_LANES; l++)
            out[l] += tile[m * DL_SORT_LANES + l];
    for (size_t l = 0; l < DL_SORT_LANES; l++)
        out[l] /= by;
}

/* G[n] = the mean of each element's values without the `drop` smallest and largest; for a
 * row that needs it as its `elements`. */
void dl_middle_mean(float *G, const float *const *x, size_t n_inputs, size_t drop, float *room,
                    size_t n);

#endif
