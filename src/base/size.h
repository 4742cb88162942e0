/* size.h - sums and products of sizes that say when they do not fit. */
#ifndef DL_BASE_SIZE_H
#define DL_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a + b (a * b); false, and *out unspecified, when it overflows. */
static inline bool dl_size_add(size_t *out, size_t a, size_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool dl_size_mul(size_t *out, size_t a, size_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Rounds n up to a multiple of `to`, which is not 0. n + to must not overflow. */
static inline size_t dl_size_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}
static inline size_t dl_size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline size_t dl_size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
