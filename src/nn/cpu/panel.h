/* panel.h - a strip of C under one panel of B: the step that blocked products are made of.
 *
 * A panel is DL_PANEL_WIDTH columns of B, packed as [k][DL_PANEL_WIDTH] with zeros to the right of
 * the last column. A block of C in registers is 12 x 32 with AVX-512 (24 of 32 registers),
 * 6 x 16 with AVX2, 6 x 8 with anything else. */
#ifndef DL_NN_CPU_PANEL_H
#define DL_NN_CPU_PANEL_H

#include "nn/cpu/tile.h"

#include <string.h>

/* The largest block, that of AVX-512. Buffers are sized for it on every machine. */
enum { DL_PANEL_ROWS = 12, DL_PANEL_MAX_WIDTH = 32 };
#define DL_PANEL_WIDTH(lanes) (2 * (size_t)(lanes))

/* Multiplies t->m rows; with vecs 1 only by the left half of the panel. `lanes` is a constant after
 * inlining, so two of the three calls disappear. */
static inline DL_BODY void dl_panel_strip(const dl_tile *t, int vecs, int lanes)
{
    if (lanes == 16) dl_tile_strip16(t, 0, 12, vecs);
    if (lanes == 8) dl_tile_strip8(t, 0, 6, vecs);
    if (lanes == 4) dl_tile_strip4(t, 0, 6, vecs);
}

/* Copies n < DL_PANEL_MAX_WIDTH floats by the bits of n: constant sizes become vector moves, where
 * memcpy of a variable size is a call. */
static inline DL_BODY void dl_copy_short(float *to, const float *from, size_t n)
{
    size_t at = 0;
    if (n & 16) memcpy(to, from, 64), at = 16;
    if (n & 8) memcpy(to + at, from + at, 32), at += 8;
    if (n & 4) memcpy(to + at, from + at, 16), at += 4;
    if (n & 2) memcpy(to + at, from + at, 8), at += 2;
    if (n & 1) to[at] = from[at];
}

/* The strip's first n columns (all, where n is more than there are), t->m <= DL_PANEL_ROWS. Where
 * C ends inside a vector, it is computed in `beside`, DL_PANEL_ROWS * DL_PANEL_MAX_WIDTH floats.
 * Up to 8 columns take vectors of 8, of which Zen 4 does twice as many in a cycle. */
static inline DL_BODY void dl_panel_product(const dl_tile *t, size_t n, float *beside, int lanes)
{
    size_t width = DL_PANEL_WIDTH(lanes), half = (size_t)lanes;
    if (n >= width) {
        dl_panel_strip(t, 2, lanes);
        return;
    }
    dl_tile whole = *t;
    if (n != half) {
        whole.c = beside;
        whole.c_row = width;
        for (size_t r = 0; r < t->m && t->add; r++)
            dl_copy_short(beside + r * width, t->c + r * t->c_row, n);
    }
    if (lanes == 16 && n <= 8)
        dl_tile_strip8(&whole, 0, 12, 1);
    else if (n <= half)
        dl_panel_strip(&whole, 1, lanes);
    else
        dl_panel_strip(&whole, 2, lanes);
    for (size_t r = 0; r < t->m && n != half; r++)
        dl_copy_short(t->c + r * t->c_row, beside + r * width, n);
}

#endif
