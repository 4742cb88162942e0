/* outer_tile.h - the loop that all outer rows share. A row writes its rule for one tile,
 *
 *     static inline DL_BODY void <row>_tile(const dl_outer_block *b, const float *G, size_t at,
 *                                           size_t n)
 *
 * theta_out[at + i], state_out[..][at + i] from theta[at + i], state[..][at + i], G[i], i < n.
 * DL_OUTER_KERNEL(<row>) makes the kernel <row> over a block of it, for every instruction set:
 * combine, apply the rule, sum G*G, look for values that are not finite, hash, and adopt.
 *
 * A tile is small, so that its G never leaves the first cache, and so that the processor has all
 * streams of memory in flight at once. With one loop for each of these over 4096 elements the step
 * reached half of the streaming bandwidth on one core; this way it reaches all of it. */
#ifndef DL_OUTER_OUTER_TILE_H
#define DL_OUTER_OUTER_TILE_H

#include "combine/mean.h"
#include "outer/outer.h"
#include "tensor/kernels.h"

#include <float.h>

enum {
    DL_LANES = 16,  /* partial sums of a norm, as PROTOCOL B3 prescribes */
    DL_TILE = 64,   /* elements */
    DL_STRIP = 256, /* hashed at a time, right after the step; 128 to 512 are much the same */
};

/* The running sums of one block. Lane l adds the elements l, l + DL_LANES, …, whatever the
 * instruction set: the order of the additions is part of the result's bits. */
typedef struct dl_tile_sums {
    double norm2[DL_OUTER_MAX_SUMS][DL_LANES]; /* PROTOCOL B3; kernels.c: why no fma is needed */
    double dot[DL_LANES];                      /* of the own member with G */
    float bad[DL_TILE];                        /* 0, or NaN once a result was not finite */
} dl_tile_sums;

/* Adds G*G of n <= DL_TILE elements to the lanes. Only a block's last tile may be short, since a
 * short tile restarts at lane 0. */
static inline DL_BODY void dl_tile_norm2(double *lane, const float *G, size_t n)
{
    size_t whole = n - n % DL_LANES;
    DL_ROLLED
    for (size_t i = 0; i < whole; i += DL_LANES)
        for (size_t l = 0; l < DL_LANES; l++)
            lane[l] += (double)G[i + l] * (double)G[i + l];
    for (size_t l = 0; whole + l < n; l++)
        lane[l] += (double)G[whole + l] * (double)G[whole + l];
}

/* Add x*y of at most one tile to the lanes. Within the tile the sum is in float32, which avoids two
 * conversions an element. The result is for people. */
static inline DL_BODY void dl_tile_dot(double *lane, const float *x, const float *y, size_t n)
{
    float sum[DL_LANES] = {0};
    size_t whole = n - n % DL_LANES;
    DL_ROLLED
    for (size_t i = 0; i < whole; i += DL_LANES)
        for (size_t l = 0; l < DL_LANES; l++)
            sum[l] += x[i + l] * y[i + l];
    for (size_t l = 0; whole + l < n; l++)
        sum[l] += x[whole + l] * y[whole + l];
    for (size_t l = 0; l < DL_LANES; l++)
        lane[l] += (double)sum[l];
}

/* Adds x - x, which is 0, or NaN if x is a NaN or an infinity. A NaN is kept by later additions, so
 * no branch is needed in the loop. */
static inline DL_BODY void dl_tile_check(float *bad, const float *x, size_t n)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        bad[i] += x[i] - x[i];
}

static inline DL_BODY bool dl_tile_is_bad(const dl_tile_sums *sums)
{
    int bad = 0;
    for (size_t i = 0; i < DL_TILE; i++)
        bad |= sums->bad[i] != sums->bad[i];
    return bad;
}

/* G of the tile, and the norms of all sums. */
static inline DL_BODY void dl_tile_combine(float *G, dl_tile_sums *sums, const dl_outer_block *b,
                                           size_t at, size_t n)
{
    float other[DL_TILE];
    if (b->n_members == 0) {
        for (size_t i = 0; i < n; i++)
            G[i] = b->g[0][at + i];
        return;
    }
    dl_mean_body(G, b->g, b->weights[0], b->n_members, at, n);
    dl_tile_norm2(sums->norm2[0], G, n);
    if (b->own) dl_tile_dot(sums->dot, G, b->own + at, n);
    for (int k = 1; k < b->n_sums; k++) {
        dl_mean_body(other, b->g, b->weights[k], b->n_members, at, n);
        dl_tile_norm2(sums->norm2[k], other, n);
    }
}

/* Adds the lanes in a tree: 8 pairs, 4, 2, 1. The sum of a norm is in lane 0 afterwards. */
static inline DL_BODY void dl_tile_fold_norms(dl_tile_sums *sums)
{
    for (size_t stride = DL_LANES / 2; stride; stride /= 2)
        for (size_t l = 0; l < stride; l++) {
            for (int k = 0; k < DL_OUTER_MAX_SUMS; k++)
                sums->norm2[k][l] += sums->norm2[k][l + stride];
            sums->dot[l] += sums->dot[l + stride];
        }
}

/* Moves the sums of a finished block to its results. */
static inline DL_BODY void dl_tile_fold(dl_outer_block *b, dl_tile_sums *sums)
{
    dl_tile_fold_norms(sums);
    for (int k = 0; k < DL_OUTER_MAX_SUMS; k++)
        b->norm2[k] = sums->norm2[k][0];
    b->own_dot = sums->dot[0];
    b->bad = dl_tile_is_bad(sums);
}

static inline DL_BODY void dl_strip_hash(const dl_outer_block *b, size_t at, size_t n, int n_state)
{
    dl_leaf_add(&b->hash[0], b->theta_out + at, n * sizeof(float));
    for (int k = 0; k < n_state; k++)
        dl_leaf_add(&b->hash[1 + k], b->state_out[k] + at, n * sizeof(float));
}

/* Writes past the cache: training reads these elements only after they would have left it. From the
 * first strip that is not finite on, nothing is written, because the step fails. */
static inline DL_BODY void dl_strip_adopt(const dl_outer_block *b, const dl_tile_sums *sums,
                                          size_t at, size_t n)
{
    if (!dl_tile_is_bad(sums)) dl_write_through(b->adopt + at, b->theta_out + at, n);
}

/* The block of a row with `whole` (outer.h), which has stepped it before: theta_out and state_out
 * hold the result. n_state is an argument because a row's block does not know its row. */
static inline void dl_outer_look(dl_outer_block *b, int n_state)
{
    b->bad = dl_first_bad(b->theta_out, b->n, FLT_MAX) < b->n;
    for (int k = 0; k < n_state; k++)
        b->bad |= dl_first_bad(b->state_out[k], b->n, FLT_MAX) < b->n;
    if (b->hash) dl_strip_hash(b, 0, b->n, n_state);
    if (b->adopt && !b->bad) dl_adopt(b->adopt, b->theta_out, 0, b->n);
}

#define DL_TILE_STEP(row, b, sums, at, n, n_state)                                                 \
    do {                                                                                           \
        float G_[DL_TILE];                                                                         \
        dl_tile_combine(G_, sums, b, at, n);                                                       \
        row##_tile(b, G_, at, n);                                                                  \
        dl_tile_check((sums)->bad, (b)->theta_out + (at), n);                                      \
        for (int k_ = 0; k_ < (n_state); k_++)                                                     \
            dl_tile_check((sums)->bad, (b)->state_out[k_] + (at), n);                              \
    } while (0)

#define DL_OUTER_KERNEL(row, n_state)                                                              \
    static inline DL_BODY void row##_body(dl_outer_block *b)                                       \
    {                                                                                              \
        dl_tile_sums sums = {0};                                                                   \
        for (size_t begin = 0; begin < b->n; begin += DL_STRIP) {                                  \
            size_t at = begin, end = dl_size_min(b->n, begin + DL_STRIP);                          \
            for (; at + DL_TILE <= end; at += DL_TILE)                                             \
                DL_TILE_STEP(row, b, &sums, at, DL_TILE, n_state);                                 \
            if (at < end) DL_TILE_STEP(row, b, &sums, at, end - at, n_state);                      \
            if (b->hash) dl_strip_hash(b, begin, end - begin, n_state);                            \
            if (b->adopt) dl_strip_adopt(b, &sums, begin, end - begin);                            \
        }                                                                                          \
        if (b->adopt) dl_written();                                                                \
        dl_tile_fold(b, &sums);                                                                    \
    }                                                                                              \
    DL_KERNEL(row, (dl_outer_block * b), row##_body(b))

#endif
