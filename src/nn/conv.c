/* conv.c - a convolution as sums of small products, one for each tap (batch-reduce products:
 * Georganas et al. 2020, Harnessing deep learning via a single building block).
 *
 * Forward. Under tap t, output place p reads the matrix [rows][in] of input place s(p, t):
 *
 *     y[p] = sum over the taps t inside the image:  x[s(p, t)] W_t         W_t f32[in][out]
 *
 * A block of DL_PANEL_ROWS rows and a panel of outputs stays in registers over many taps. No
 * column matrix exists and taps outside the image cost nothing, which at 4 x 4 places saves a
 * third of the work. dx[s] is the same sum over the taps on s, with W_t transposed.
 *
 *     for outputs by N_BLOCK, for taps and inputs by K_BLOCK      packed weights in the L2 cache
 *         for each place, for each block of rows                  x in the L1 cache
 *             for each panel: tile over the taps of the block
 *
 * Weights. dW_t = sum over places p: x[s(p, t)]^T dy[p]. A part owns some tiles of dW and adds up
 * all places, so no sums are added between parts. It takes a chunk of places at a time, whose dy is
 * packed into panels. */
#include "nn/conv.h"

#include "base/thread.h"
#include "nn/cpu/panel.h"

/* A block of packed weights is at most N_BLOCK * K_BLOCK floats, 576 KiB: it fits an L2 cache of
 * 1 MiB. A chunk of dy has half of that cache. */
enum { N_BLOCK = 384, K_BLOCK = 384, ROWS = DL_PANEL_ROWS };
enum { CHUNK_BYTES = 512 << 10, CHUNK_PLACES = 64 };
enum { STRETCH = 16 }; /* floats of a cache line */

_Static_assert((int)DL_CONV_BESIDE >= (int)DL_PANEL_ROWS * (int)DL_PANEL_MAX_WIDTH, "a tile");

/* Returns how many blocks of ROWS cover the rows. */
static size_t tiles_of(size_t rows)
{
    return (rows + ROWS - 1) / ROWS;
}

/* ---- packing: [tap][panel][k][width], zeros to the right of the last column */

/* From one tap's matrix of n floats to the next: not a power of two, or all taps of an element
 * would fight for one set of the caches. */
static size_t tap_pitch(size_t n)
{
    return n + 3 * STRETCH;
}

size_t dl_conv_packed(const dl_window *w, bool back)
{
    size_t k = back ? w->out_channels : w->in_channels;
    size_t n = back ? w->in_channels : w->out_channels;
    return dl_window_taps(w) * tap_pitch(k * dl_size_round_up(n, DL_PANEL_MAX_WIDTH));
}

/* Where element (k, n) of a tap's matrix is in the weight: at k * k_step + n * n_step + tap. */
typedef struct order {
    size_t k, n, k_step, n_step, taps;
} order;

/* dx is the same product with inputs and outputs exchanged, so the matrices are transposed. */
static order order_of(const dl_conv *c)
{
    size_t taps = dl_window_taps(c->window), in = c->window->in_channels;
    size_t out = c->window->out_channels;
    return c->back ? (order){out, in, in * taps, taps, taps}
                   : (order){in, out, taps, in * taps, taps};
}

/* Rows [0, n) of one column, all taps. The rows of a panel that a stretch of them fills stay in the
 * L1 cache over all columns. */
static inline DL_BODY void pack_stretch(float *to, size_t tap_step, size_t row_step,
                                        const float *from, size_t column, size_t n, const order *o)
{
    from += column * o->n_step;
    for (size_t l = 0; l < n; l++)
        for (size_t t = 0; t < o->taps; t++)
            to[l * row_step + t * tap_step] = column < o->n ? from[l * o->k_step + t] : 0;
}

/* Packs panels [first, last) of every tap. */
static inline DL_BODY void pack_body(float *packed, const float *weight, const order *o,
                                     size_t first, size_t last, int lanes)
{
    size_t width = DL_PANEL_WIDTH(lanes), n_panels = (o->n + width - 1) / width;
    for (size_t j = first; j < last; j++)
        for (size_t l = 0; l < o->k; l += STRETCH)
            for (size_t i = 0; i < width; i++)
                pack_stretch(packed + (j * o->k + l) * width + i,
                             tap_pitch(n_panels * o->k * width), width, weight + l * o->k_step,
                             j * width + i, dl_size_min(STRETCH, o->k - l), o);
}
DL_TILE_KERNEL(pack,
               (float *packed, const float *weight, const order *o, size_t first, size_t last),
               pack_body(packed, weight, o, first, last, lanes))

/* The columns of a panel depend on the instruction set, so only a kernel knows them. */
static inline DL_BODY void width_body(size_t *width, int lanes)
{
    *width = DL_PANEL_WIDTH(lanes);
}
DL_TILE_KERNEL(panel_width, (size_t * width), width_body(width, lanes))

void dl_conv_pack(float *packed, const float *weight, const dl_conv *c, int part, int n_parts)
{
    order o = order_of(c);
    size_t width, first, last;
    dl_isa_call(panel_width)(&width);
    dl_part_range(&first, &last, (o.n + width - 1) / width, 1, part, n_parts);
    dl_isa_call(pack)(packed, weight, &o, first, last);
}

/* ---- y and dx */

typedef struct product {
    const dl_conv *conv;
    float *to, *beside;
    const float *from, *packed, *bias;
    size_t k, n; /* channels of `from` and of `to` */
} product;

/* A block of the sum: taps [tap, end) of channels [k, k + n_k), outputs [n, n + n_n). */
typedef struct block {
    size_t tap, end, k, n_k, n, n_n;
} block;

/* Lists the taps of a place of `to`: an output place, or seen from the input an input place. */
static size_t list_taps(dl_tap *list, const dl_conv *c, size_t place)
{
    return c->back ? dl_window_list_back(list, c->window, place)
                   : dl_window_list(list, c->window, place);
}

/* Moves the taps of the block to the front. Returns their number. */
static size_t keep_taps(dl_tap *list, size_t n, const block *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (list[i].tap >= b->tap && list[i].tap < b->end) list[kept++] = list[i];
    return kept;
}

/* An output place can have no tap inside the first block of taps. Its sum then begins at 0, since
 * later blocks add. */
static void clear_tile(const product *p, const block *b, float *to, size_t m)
{
    for (size_t r = 0; r < m; r++, to += p->n)
        memset(to, 0, b->n_n * sizeof *to);
}

static inline DL_BODY void add_bias(const product *p, const block *b, float *to, size_t m)
{
    for (size_t r = 0; r < m; r++, to += p->n)
        for (size_t j = 0; j < b->n_n; j++)
            to[j] += p->bias[b->n + j];
}

/* Computes the block's part of the sum for m rows of one place, from `row` on. The first block
 * writes, and adds the bias; later ones add. */
static inline DL_BODY void tile_body(const product *p, const block *b, const dl_tap *list,
                                     size_t n_list, size_t place, size_t row, size_t m, int lanes)
{
    dl_tile_pair pairs[DL_WINDOW_MAX_TAPS];
    size_t rows = p->conv->rows, width = DL_PANEL_WIDTH(lanes);
    size_t n_panels = (p->n + width - 1) / width;
    float *to = p->to + (place * rows + row) * p->n + b->n;
    bool first = b->tap == 0 && b->k == 0;
    if (first && n_list == 0) clear_tile(p, b, to, m);
    for (size_t i = 0; i < n_list; i++) {
        const float *panels = p->packed + list[i].tap * tap_pitch(n_panels * p->k * width);
        pairs[i].a = p->from + (list[i].place * rows + row) * p->k + b->k;
        pairs[i].b = panels + (b->n / width * p->k + b->k) * width;
    }
    dl_tile t = {.m = m,
                 .n = width,
                 .k = b->n_k,
                 .c_row = p->n,
                 .a_row = p->k,
                 .a_col = 1,
                 .b_row = width,
                 .add = !first,
                 .more = pairs + 1,
                 .n_more = n_list - 1};
    for (size_t j = 0; j < b->n_n && n_list; j += width) {
        t.c = to + j;
        t.a = pairs[0].a;
        t.b = pairs[0].b;
        dl_panel_product(&t, b->n_n - j, p->beside, lanes);
        for (size_t i = 0; i < n_list; i++)
            pairs[i].b += p->k * width;
    }
    if (first && p->bias) add_bias(p, b, to, m);
}

/* Tiles [begin, end), counted over places and blocks of rows. */
static inline DL_BODY void tiles_body(const product *p, const block *b, size_t begin, size_t end,
                                      int lanes)
{
    dl_tap list[DL_WINDOW_MAX_TAPS];
    size_t rows = p->conv->rows, per_place = tiles_of(rows);
    for (size_t at = begin; at < end;) {
        size_t place = at / per_place, last = dl_size_min(end, (place + 1) * per_place);
        size_t n = keep_taps(list, list_taps(list, p->conv, place), b);
        for (; at < last; at++) {
            size_t row = at % per_place * ROWS;
            tile_body(p, b, list, n, place, row, dl_size_min(ROWS, rows - row), lanes);
        }
    }
}

/* n in equal blocks of at most `most`, a multiple of grain. */
static inline DL_BODY size_t block_size(size_t n, size_t most, size_t grain)
{
    size_t blocks = (n + most - 1) / most;
    return dl_size_round_up((n + blocks - 1) / blocks, grain);
}

/* Blocks are equal in size, so that no last block is small. If the channels are few, a block takes
 * several taps. */
static inline DL_BODY void product_body(const product *p, size_t begin, size_t end, int lanes)
{
    size_t taps = dl_window_taps(p->conv->window), width = DL_PANEL_WIDTH(lanes);
    size_t n_block = block_size(p->n, N_BLOCK, width), k_block = block_size(p->k, K_BLOCK, 1);
    size_t t_block = block_size(taps, dl_size_max(K_BLOCK / k_block, 1), 1);
    block b;
    for (b.n = 0; b.n < p->n; b.n += n_block)
        for (b.tap = 0; b.tap < taps; b.tap += t_block)
            for (b.k = 0; b.k < p->k; b.k += k_block) {
                b.n_n = dl_size_min(n_block, p->n - b.n);
                b.n_k = dl_size_min(k_block, p->k - b.k);
                b.end = dl_size_min(taps, b.tap + t_block);
                tiles_body(p, &b, begin, end, lanes);
            }
}
DL_TILE_KERNEL(products, (const product *p, size_t begin, size_t end),
               product_body(p, begin, end, lanes))

void dl_conv_product(float *to, const float *from, const float *packed, const float *bias,
                     const dl_conv *c, float *beside, int part, int n_parts)
{
    order o = order_of(c);
    product p = {c, to, beside, from, packed, bias, o.k, o.n};
    size_t places = c->back ? dl_window_in_places(c->window) : dl_window_out_places(c->window);
    size_t begin, end;
    dl_part_range(&begin, &end, places * tiles_of(c->rows), 1, part, n_parts);
    if (begin < end) dl_isa_call(products)(&p, begin, end);
}

/* ---- dW */

/* Output places of a chunk. */
static size_t chunk_places(const dl_window *w, size_t rows)
{
    size_t place = rows * dl_size_round_up(w->out_channels, DL_PANEL_MAX_WIDTH) * sizeof(float);
    return dl_size_max(dl_size_min(CHUNK_BYTES / place, CHUNK_PLACES), 1);
}

size_t dl_conv_workspace(const dl_window *w, size_t rows)
{
    return chunk_places(w, rows) * rows * dl_size_round_up(w->out_channels, DL_PANEL_MAX_WIDTH) +
           DL_CONV_BESIDE;
}

/* One part's computation of dW. */
typedef struct weights {
    const dl_conv *conv;
    float *taps, *panels, *beside;
    const float *x, *dy;
    size_t in, out;
} weights;

/* dy of n rows as panels [panel][row][width]. */
static inline DL_BODY void pack_chunk(float *panels, const float *dy, size_t n, size_t out,
                                      int lanes)
{
    size_t width = DL_PANEL_WIDTH(lanes);
    for (size_t j = 0; j < out; j += width, panels += n * width)
        for (size_t r = 0; r < n; r++)
            if (j + width <= out)
                memcpy(panels + r * width, dy + r * out + j, width * sizeof *dy);
            else
                for (size_t i = 0; i < width; i++)
                    panels[r * width + i] = j + i < out ? dy[r * out + j + i] : 0;
}

/* Sets *place to the input place under a tap of output place `out`. Returns false outside of the
 * image. */
static bool lies_on(size_t *place, const dl_window *w, size_t tap, size_t out)
{
    size_t y = out / w->out_width * w->stride + tap / w->size;
    size_t x = out % w->out_width * w->stride + tap % w->size;
    if (y < w->pad || y - w->pad >= w->in_height) return false;
    if (x < w->pad || x - w->pad >= w->in_width) return false;
    *place = (y - w->pad) * w->in_width + x - w->pad;
    return true;
}

/* Item `item` (a tap and a block of inputs) of dW over the places of the chunk [first, last). */
static inline DL_BODY void chunk_tile(const weights *g, size_t item, size_t first, size_t last,
                                      int lanes)
{
    dl_tile_pair pairs[CHUNK_PLACES];
    size_t rows = g->conv->rows, width = DL_PANEL_WIDTH(lanes), n = 0, place;
    size_t tap = item / tiles_of(g->in), channel = item % tiles_of(g->in) * ROWS;
    for (size_t out = first; out < last; out++)
        if (lies_on(&place, g->conv->window, tap, out))
            pairs[n++] = (dl_tile_pair){g->x + place * rows * g->in + channel,
                                        g->panels + (out - first) * rows * width};
    if (n == 0) return;
    dl_tile t = {.m = dl_size_min(ROWS, g->in - channel),
                 .n = width,
                 .k = rows,
                 .c_row = g->out,
                 .a_row = 1,
                 .a_col = g->in,
                 .b_row = width,
                 .add = true,
                 .more = pairs + 1,
                 .n_more = n - 1};
    for (size_t j = 0; j < g->out; j += width) {
        t.c = g->taps + tap * tap_pitch(g->in * g->out) + channel * g->out + j;
        t.a = pairs[0].a;
        t.b = pairs[0].b;
        dl_panel_product(&t, g->out - j, g->beside, lanes);
        for (size_t i = 0; i < n; i++)
            pairs[i].b += (last - first) * rows * width;
    }
}

/* Each part packs all of dy for itself, which is cheap against its products, and needs no
 * synchronization. */
static inline DL_BODY void weights_body(const weights *g, size_t begin, size_t end, int lanes)
{
    size_t rows = g->conv->rows, places = dl_window_out_places(g->conv->window);
    size_t chunk = chunk_places(g->conv->window, rows);
    for (size_t first = 0; first < places; first += chunk) {
        size_t last = dl_size_min(places, first + chunk);
        pack_chunk(g->panels, g->dy + first * rows * g->out, (last - first) * rows, g->out, lanes);
        for (size_t item = begin; item < end; item++)
            chunk_tile(g, item, first, last, lanes);
    }
}
DL_TILE_KERNEL(weight_tiles, (const weights *g, size_t begin, size_t end),
               weights_body(g, begin, end, lanes))

/* A part clears its own tiles first: chunks add, and a tap may be outside at every place. */
void dl_conv_weights(float *taps, const float *x, const float *dy, const dl_conv *c,
                     float *workspace, int part, int n_parts)
{
    const dl_window *w = c->window;
    size_t in = w->in_channels, out = w->out_channels, begin, end;
    size_t panels = dl_conv_workspace(w, c->rows) - DL_CONV_BESIDE;
    weights g = {c, taps, workspace, workspace + panels, x, dy, in, out};
    dl_part_range(&begin, &end, dl_window_taps(w) * tiles_of(in), 1, part, n_parts);
    for (size_t item = begin; item < end; item++) {
        size_t channel = item % tiles_of(in) * ROWS;
        memset(taps + item / tiles_of(in) * tap_pitch(in * out) + channel * out, 0,
               dl_size_min(ROWS, in - channel) * out * sizeof *taps);
    }
    if (begin < end) dl_isa_call(weight_tiles)(&g, begin, end);
}

/* One output of n inputs, all taps: written one after the other, read a line at a time that stays
 * in the L1 cache over the outputs of a stretch. */
static void unpack_stretch(float *to, const float *from, size_t n, size_t n_taps, size_t tap_step,
                           size_t row_step, bool add)
{
    for (size_t l = 0; l < n; l++, to += n_taps)
        for (size_t t = 0; t < n_taps; t++)
            to[t] = (add ? to[t] : 0) + from[l * row_step + t * tap_step];
}

void dl_conv_unpack(float *gradient, const float *taps, const dl_conv *c, bool add, int part,
                    int n_parts)
{
    size_t in = c->window->in_channels, out = c->window->out_channels;
    size_t n_taps = dl_window_taps(c->window), begin, end;
    dl_part_range(&begin, &end, out, STRETCH, part, n_parts);
    for (size_t first = begin; first < end; first += STRETCH)
        for (size_t l = 0; l < in; l += STRETCH)
            for (size_t o = first; o < dl_size_min(end, first + STRETCH); o++)
                unpack_stretch(gradient + (o * in + l) * n_taps, taps + l * out + o,
                               dl_size_min(STRETCH, in - l), n_taps, tap_pitch(in * out), out, add);
}
