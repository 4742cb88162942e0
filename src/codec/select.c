/* select.c - see select.h. A pass that counts is a vector loop without branches. A dozen of them
 * are faster than one that moves keys about. A bound, in one pass, leaves few keys to count. */
#include "codec/select.h"

#include "base/size.h"

enum {
    FIRST_STEP = 1 << 22, /* half a factor of two in size */
    MOST_GROUPS = 1024
};

/* A comparison is added as 0 or 1, so the loop has no branch. */
static inline DL_BODY void count_body(uint32_t *count, const float *x, size_t n, dl_order order,
                                      int32_t least)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += dl_key(x[i], order) >= least;
    *count = sum;
}
DL_KERNEL(count_from, (uint32_t * count, const float *x, size_t n, dl_order order, int32_t least),
          count_body(count, x, n, order, least))

/* Counts of a block fit 32 bits; their sum need not. */
static size_t count_all(const float *x, size_t n, dl_order order, int32_t least)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i += DL_BLOCK) {
        uint32_t count;
        dl_isa_call(count_from)(&count, x + i, dl_size_min(n - i, DL_BLOCK), order, least);
        sum += count;
    }
    return sum;
}

/* The search starts at the largest key, since the k largest are near it. */
static inline DL_BODY void largest_body(int32_t *largest, const float *x, size_t n, dl_order order)
{
    int32_t most = INT32_MIN;
    for (size_t i = 0; i < n; i++) {
        int32_t key = dl_key(x[i], order);
        most = key > most ? key : most;
    }
    *largest = most;
}
DL_KERNEL(largest_key, (int32_t * largest, const float *x, size_t n, dl_order order),
          largest_body(largest, x, n, order))

/* At least k keys (n_from) are at or above low, fewer than k (n_above) at or above high. Down from
 * the largest in growing steps, then by halves. */
dl_selection dl_select(const float *x, size_t n, size_t k, dl_order order)
{
    int32_t largest;
    size_t n_from = 0, n_above = 0;
    DL_ASSERT(k >= 1 && k <= n);
    dl_isa_call(largest_key)(&largest, x, n, order);
    int64_t high = (int64_t)largest + 1, low = high;
    for (int64_t step = FIRST_STEP; n_from < k; step *= 2) {
        high = low;
        n_above = n_from;
        low = high - step > INT32_MIN ? high - step : INT32_MIN;
        n_from = count_all(x, n, order, (int32_t)low);
    }
    while (n_from > k && high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        size_t count = count_all(x, n, order, (int32_t)middle);
        if (count >= k)
            low = middle, n_from = count;
        else
            high = middle, n_above = count;
    }
    return (dl_selection){order, (int32_t)low, k - n_above};
}

static inline DL_BODY void mark_body(unsigned char *marks, const float *x, size_t n, dl_order order,
                                     int32_t least)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        marks[i] = dl_key(x[i], order) >= least;
}
DL_KERNEL(mark, (unsigned char *marks, const float *x, size_t n, dl_order order, int32_t least),
          mark_body(marks, x, n, order, least))

void dl_select_marks(unsigned char *marks, const float *x, size_t n, dl_order order, int32_t least)
{
    dl_isa_call(mark)(marks, x, n, order, least);
}

/* Element i is of group i mod n_groups; the largest of each, made of its key. */
static inline DL_BODY void group_body(float *most, size_t n_groups, const float *x, size_t n,
                                      dl_order order)
{
    int32_t keys[MOST_GROUPS];
    for (size_t i = 0; i < n_groups; i++)
        keys[i] = dl_key(x[i], order);
    for (size_t from = n_groups; from < n; from += n_groups) {
        size_t n_here = n - from < n_groups ? n - from : n_groups;
        for (size_t i = 0; i < n_here; i++) {
            int32_t key = dl_key(x[from + i], order);
            keys[i] = key > keys[i] ? key : keys[i];
        }
    }
    for (size_t i = 0; i < n_groups; i++)
        most[i] = dl_float_of((uint32_t)keys[i] ^ order.flip);
}
DL_KERNEL(largest_of_groups,
          (float *most, size_t n_groups, const float *x, size_t n, dl_order order),
          group_body(most, n_groups, x, n, order))

/* The k-th largest of the groups' maxima is reached by k elements at least, one of each of k
 * groups. With too many groups the exact selection is taken. */
int32_t dl_select_bound(const float *x, size_t n, size_t k, dl_order order)
{
    float most[MOST_GROUPS];
    size_t n_groups = dl_size_round_up(2 * k, 64);
    if (n_groups > MOST_GROUPS || n_groups > n / 2) return dl_select(x, n, k, order).least;
    dl_isa_call(largest_of_groups)(most, n_groups, x, n, order);
    return dl_select(most, n_groups, k, order).least;
}
