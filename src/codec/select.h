/* select.h - the k largest of n floats by an order on their bits, ties by lowest index. */
#ifndef DL_CODEC_SELECT_H
#define DL_CODEC_SELECT_H

#include "tensor/kernels.h"

/* A float's key is (bits & mask) ^ flip as a signed integer. */
typedef struct dl_order {
    uint32_t mask, flip;
} dl_order;

/* Largest first: {0x7fffffff, 0} by |x|; {~0, 1 << 31} the negative by |x|, then the positive. */
static inline DL_BODY int32_t dl_key(float x, dl_order order)
{
    return (int32_t)((dl_bits_of(x) & order.mask) ^ order.flip);
}

/* Selected are keys above `least` and, of those equal to it, the first n_ties. */
typedef struct dl_selection {
    dl_order order;
    int32_t least;
    size_t n_ties;
} dl_selection;

/* k is 1 to n. By bisection on the key: it counts the keys at or above a pivot until k
 * of them, or a single key, are left. */
dl_selection dl_select(const float *x, size_t n, size_t k, dl_order order);

/* A key that at least k of the n keys reach and, unless they are laid out against it, few more; k
 * is 1 to n. Of 2k groups the largest keys are taken, and of these the k-th. */
int32_t dl_select_bound(const float *x, size_t n, size_t k, dl_order order);

/* marks[i] is 1 where x[i]'s key is at least `least`, else 0. */
void dl_select_marks(unsigned char *marks, const float *x, size_t n, dl_order order, int32_t least);

/* Is this one, of at least that key, selected? Asked in order of index. */
static inline bool dl_selected(dl_selection *selection, float x)
{
    if (dl_key(x, selection->order) != selection->least) return true;
    if (selection->n_ties == 0) return false;
    selection->n_ties--;
    return true;
}

#endif
