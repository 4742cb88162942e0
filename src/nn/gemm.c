/* gemm.c - blocked product (Goto, van de Geijn: Anatomy of high-performance matrix
 * multiplication; TOMS 34, 2008), for caches of 32 KiB and 1 MiB or more.
 *
 *     for n by DL_GEMM_N, for k by DL_GEMM_K
 *         pack B's block into panels of two vectors, [k][width]; at most 600 KB, in the L2 cache
 *         for m by DL_GEMM_ROWS
 *             for each panel: a tile of C in registers over all of k (tile.h)
 *
 * A is read in place: a panel's rows of it stay in the L1 cache while B streams by, and the next
 * rows are fetched meanwhile. A tile is 12 x 32 with AVX-512 (24 of 32 registers), 6 x 16 with
 * AVX2, 6 x 8 with anything else.
 *
 * Why not a library: measured on our models' shapes (bench/train_speed.md) this is as fast as
 * oneDNN's sgemm and faster than OpenBLAS. oneDNN allocates heap memory in every call and starts
 * OpenMP teams, and OpenBLAS starts threads when it is loaded. */
#include "nn/gemm.h"

#include "nn/cpu/panel.h"

#include <string.h>

/* ---- tiles ---------------------------------------------------------------------------- */

/* Panels begin this far apart: not a multiple of 4 KiB, where they would fight for one set of
 * the L1 cache. */
static inline DL_BODY size_t panel_pitch(size_t k, size_t width)
{
    return (k + 1) * width;
}

/* While some rows of A are worked on, the next ones are fetched, a share with each panel. */
static inline DL_BODY void prefetch_share(const float *a, size_t a_row, size_t a_col, size_t share,
                                          size_t n_shares, size_t k)
{
    size_t begin = k * share / n_shares, end = k * (share + 1) / n_shares;
    if (a_col == 1)
        for (size_t r = 0; r < DL_GEMM_ROWS; r++)
            for (size_t l = begin; l < end; l += 16)
                __builtin_prefetch(a + r * a_row + l, 0, 2);
    else
        for (size_t l = begin; l < end; l++)
            __builtin_prefetch(a + l * a_col + DL_GEMM_ROWS, 0, 2);
}

/* The elements of C under the next panel. */
static inline DL_BODY void prefetch_tile(const float *c, size_t c_row, size_t m, size_t width)
{
    for (size_t r = 0; r < m; r++)
        for (size_t j = 0; j < width; j += 16)
            __builtin_prefetch(c + r * c_row + j, 1, 3);
}

/* Multiplies a block of rows with every panel. *rows holds the address of their first column in C,
 * A, the strides, and in b the packed block. */
static inline DL_BODY void all_panels(const dl_tile *rows, float *beside, size_t n, int lanes)
{
    size_t width = 2 * (size_t)lanes, n_panels = (n + width - 1) / width;
    for (size_t p = 0; p < n_panels; p++) {
        dl_tile t = *rows;
        t.c = rows->c + p * width;
        t.b = rows->b + p * panel_pitch(rows->k, width);
        prefetch_tile(t.c + width, t.c_row, t.m, width);
        prefetch_share(t.a + DL_GEMM_ROWS * t.a_row, t.a_row, t.a_col, p, n_panels, t.k);
        dl_panel_product(&t, n - p * width, beside, lanes);
    }
}

/* ---- packing -------------------------------------------------------------------------- */

/* B's block as panels [k][width], zeros to the right of column n. */
static inline DL_BODY void pack_rows(float *restrict to, const float *restrict from, size_t row,
                                     size_t k, size_t n, size_t width)
{
    for (size_t l = 0; l < k; l++)
        for (size_t j = 0; j < n; j += width) {
            float *at = to + j / width * panel_pitch(k, width) + l * width;
            if (j + width <= n)
                for (size_t i = 0; i < width; i++)
                    at[i] = from[l * row + j + i];
            else
                for (size_t i = 0; i < width; i++)
                    at[i] = j + i < n ? from[l * row + j + i] : 0;
        }
}

/* The same from B^T, f32[n][k]: a few rows of a panel at a time, which stay in the L1 cache while
 * they are filled column by column. */
static inline DL_BODY void pack_columns(float *restrict to, const float *restrict from, size_t row,
                                        size_t k, size_t n, size_t width)
{
    enum { STRETCH = 64 };
    for (size_t j = 0; j < n; j += width)
        for (size_t first = 0; first < k; first += STRETCH) {
            size_t last = first + STRETCH < k ? first + STRETCH : k;
            float *at = to + j / width * panel_pitch(k, width);
            for (size_t i = 0; i < width; i++)
                for (size_t l = first; l < last; l++)
                    at[l * width + i] = j + i < n ? from[(j + i) * row + l] : 0;
        }
}

/* Rows a multiple of 4 KiB apart fall into one set of the cache: moved together, they do not. */
static inline DL_BODY void move_together(dl_tile *rows, float *to)
{
    size_t row = rows->k + 16;
    for (size_t r = 0; r < rows->m; r++)
        memcpy(to + r * row, rows->a + r * rows->a_row, rows->k * sizeof *to);
    rows->a = to;
    rows->a_row = row;
}

/* ---- blocks --------------------------------------------------------------------------- */

/* Returns the size of equal blocks of at most `most` that cover n, a multiple of grain. `most` is
 * one too, or the last block would not fit the workspace. */
static inline DL_BODY size_t block_size(size_t n, size_t most, size_t grain)
{
    size_t blocks = (n + most - 1) / most;
    return (n + blocks * grain - 1) / (blocks * grain) * grain;
}

/* Blocks of k are added in order, and their borders follow from k alone. So an element of C is
 * rounded at the same places whichever rows a part has. */
static inline DL_BODY void gemm_body(const dl_gemm_args *g, size_t begin, size_t end,
                                     float *workspace, int lanes)
{
    size_t a_row = g->trans_a == 'T' ? 1 : g->k, a_col = g->trans_a == 'T' ? g->m : 1;
    size_t width = 2 * (size_t)lanes;
    size_t k_block = block_size(g->k, DL_GEMM_K, 1), n_block = block_size(g->n, DL_GEMM_N, width);
    float *b = workspace, *together = b + (DL_GEMM_K + 1) * DL_GEMM_N;
    float *beside = together + DL_GEMM_ROWS * (DL_GEMM_K + 16);
    for (size_t j = 0; j < g->n; j += n_block)
        for (size_t l = 0; l < g->k; l += k_block) {
            size_t n = g->n - j < n_block ? g->n - j : n_block;
            size_t k = g->k - l < k_block ? g->k - l : k_block;
            if (g->trans_b == 'T')
                pack_columns(b, g->b + j * g->k + l, g->k, k, n, width);
            else
                pack_rows(b, g->b + l * g->n + j, g->n, k, n, width);
            dl_tile rows = {.c_row = g->n, .a_row = a_row, .a_col = a_col, .b = b, .b_row = width};
            rows.k = k;
            rows.add = l > 0 || g->add;
            for (size_t i = begin; i < end; i += DL_GEMM_ROWS) {
                dl_tile some = rows;
                some.m = end - i < DL_GEMM_ROWS ? end - i : DL_GEMM_ROWS;
                some.c = g->c + i * g->n + j;
                some.a = g->a + i * a_row + l * a_col;
                if (a_col == 1 && a_row % 1024 == 0) move_together(&some, together);
                all_panels(&some, beside, n, lanes);
            }
        }
}
DL_TILE_KERNEL(gemm, (const dl_gemm_args *g, size_t begin, size_t end, float *workspace),
               gemm_body(g, begin, end, workspace, lanes))

void dl_gemm(const dl_gemm_args *args, size_t begin, size_t end, float *workspace)
{
    DL_ASSERT(args->k > 0);
    if (begin < end && args->n) dl_isa_call(gemm)(args, begin, end, workspace);
}

/* Whole blocks of DL_GEMM_ROWS, so that only the last part has a partial block. */
void dl_gemm_range(size_t *begin, size_t *end, size_t n, int part, int n_parts)
{
    dl_part_range(begin, end, n, DL_GEMM_ROWS, part, n_parts);
}

void dl_gemm_part(const dl_gemm_args *args, int part, int n_parts, float *workspaces)
{
    size_t begin, end;
    dl_gemm_range(&begin, &end, args->m, part, n_parts);
    dl_gemm(args, begin, end, workspaces + (size_t)part * DL_GEMM_WORKSPACE);
}
