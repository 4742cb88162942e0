/* order.c - see order.h. */
#include "combine/order.h"

#include <stdbool.h>

/* Ties go by index, so the order is total and every machine finds the same one. */
static bool before(const double *key, size_t a, size_t b)
{
    return key[a] < key[b] || (key[a] == key[b] && a < b);
}

/* Let the entry at i sink among the first n. */
static void sink(size_t *heap, const double *key, size_t i, size_t n)
{
    size_t moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(key, heap[child], heap[child + 1])) child++;
        if (!before(key, moving, heap[child])) break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

/* The first loop makes a heap with the largest at the root. Each turn of the second moves the root
 * to the end of what is left. */
void dl_order(size_t *order, const double *key, size_t n)
{
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n / 2; i-- > 0;)
        sink(order, key, i, n);
    for (size_t end = n; end-- > 1;) {
        size_t last = order[end];
        order[end] = order[0];
        order[0] = last;
        sink(order, key, 0, end);
    }
}

double dl_median(size_t *order, const double *key, size_t n)
{
    dl_order(order, key, n);
    return (key[order[(n - 1) / 2]] + key[order[n / 2]]) / 2;
}
