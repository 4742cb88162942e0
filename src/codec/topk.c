/* topk.c - the k largest |x| of each chunk (2508.15706): their places and their values.
 *
 * A matrix is cut into chunks of 64 x 64, narrower and lower at its edges; a tensor of one row or
 * one column into runs of 4096. Of a chunk's m elements k = keep * m, rounded, at least 1, are
 * sent; of equal ones those of lowest index. A chunk's record:
 *
 *     indices  within the chunk by rows, ascending, in the code of Elias and Fano: the lowest l
 *              bits of each, low bits first; then, from the next byte on, the bits above in unary:
 *              for each value in turn a one for each index that has it, and between two values a
 *              zero
 *     values   f32: 4 bytes each
 *              int8: a scale, as in int8.c over the k values, then a byte each
 *              2bit: a code each, four in a byte, low bits first
 *
 * The payload is the chunks' records by tensor and, within it, by rows of chunks. With 2bit each
 * tensor's begin with a codebook of four floats. With the mean and the standard deviation (of n -
 * 1) of all its selected values, code = clamp(round((x - mean) / (6 * std / 4) + 2), 0, 3). The
 * codebook holds the mean of the values that got each code. Statistics are float64 sums in the
 * payload's order.
 *
 * The unary part has k ones and (m - 1) >> l zeros, whatever the indices are: with l = 6, 64 of
 * 4096 take 8 bits each. l is the one of least bits, of two the larger; where it leaves nothing
 * above there is no unary part. One list of indices has one code.
 *
 * All sizes follow from the form, so a record is found by arithmetic: chunks of one tensor have at
 * most four shapes. */
#include "codec/blocks.h"
#include "codec/codec_rows.h"
#include "codec/select.h"
#include "codec/topk_indices.h"

#include <math.h>

enum { SIDE = 64, CHUNK = SIDE * SIDE, N_CODES = 4, CODEBOOK = N_CODES * sizeof(float) };

static dl_codec_values_choice values_of(const dl_codec_form *form)
{
    return form->options.values;
}

/* ---- where things are ------------------------------------------------------------------- */

/* How a tensor is cut. Chunks at the lower and at the right edge are short; shapes[lower][right].
 */
typedef struct grid {
    size_t rows, cols;       /* of the tensor; a run is one row */
    size_t height, width;    /* of a whole chunk */
    size_t n_down, n_across; /* chunks */
    size_t head;             /* bytes before the first record */
    struct {
        size_t height, width, bytes;
        coding indices;
    } shapes[2][2];
} grid;

typedef struct chunk {
    size_t origin;        /* its first element in the tensor */
    size_t row, col;      /* of that */
    size_t height, width; /* its extent */
    coding indices;
    size_t at; /* its record, from the tensor's first byte */
} chunk;

/* Rounded to the nearest count, at least 1, so a chunk always sends something. */
static size_t kept(const dl_codec_form *form, size_t m)
{
    size_t k = (size_t)(form->options.keep * (double)m + 0.5);
    return dl_size_min(m, dl_size_max(k, 1));
}

/* One more low bit is k bits more, and spares half of the zeros: fewer each time. */
static coding coding_of(size_t m, size_t k)
{
    size_t last = m - 1, low = 0, width = 0;
    while (last >> width)
        width++;
    while ((last >> low) - (last >> (low + 1)) >= k)
        low++;
    coding c = {k, low, k + (last >> low)};
    if (width * k <= low * k + c.unary) c = (coding){k, width, 0};
    return c;
}

static size_t index_bytes(const coding *c)
{
    return low_bytes(c) + (c->unary + 7) / 8;
}

static size_t value_bytes(dl_codec_values_choice kind, size_t k)
{
    switch (kind) {
    case DL_CODEC_VALUES_F32:
        return k * sizeof(float);
    case DL_CODEC_VALUES_INT8:
        return sizeof(float) + k;
    case DL_CODEC_VALUES_2BIT:
        break;
    }
    return (k + 3) / 4;
}

/* The sizes of a record depend on its shape alone, so the four shapes are laid out once for each
 * tensor. */
static grid grid_of(const dl_codec_form *form, const dl_codec_tensor *t)
{
    bool run = t->rows == 1 || t->cols == 1;
    grid g = {.rows = run ? 1 : t->rows,
              .cols = run ? t->count : t->cols,
              .height = run ? 1 : SIDE,
              .width = run ? CHUNK : SIDE};
    g.n_down = (g.rows + g.height - 1) / g.height;
    g.n_across = (g.cols + g.width - 1) / g.width;
    g.head = values_of(form) == DL_CODEC_VALUES_2BIT ? CODEBOOK : 0;
    for (int lower = 0; lower < 2; lower++)
        for (int right = 0; right < 2; right++) {
            size_t height = lower ? g.rows % g.height : g.height;
            size_t width = right ? g.cols % g.width : g.width;
            size_t m = dl_size_max(height * width, 1); /* one without elements is not asked for */
            coding indices = coding_of(m, kept(form, m));
            g.shapes[lower][right].height = height;
            g.shapes[lower][right].width = width;
            g.shapes[lower][right].indices = indices;
            g.shapes[lower][right].bytes =
                index_bytes(&indices) + value_bytes(values_of(form), indices.k);
        }
    return g;
}

/* A record's place is arithmetic: whole rows of chunks above it, then whole chunks to its left. */
static chunk chunk_at(const grid *g, size_t down, size_t across)
{
    size_t whole_across = g->cols / g->width;
    int lower = down == g->rows / g->height, right = across == whole_across;
    size_t row_bytes = whole_across * g->shapes[0][0].bytes;
    if (g->n_across > whole_across) row_bytes += g->shapes[0][1].bytes;
    chunk c = {.row = down * g->height,
               .col = across * g->width,
               .height = g->shapes[lower][right].height,
               .width = g->shapes[lower][right].width,
               .indices = g->shapes[lower][right].indices,
               .at = g->head + down * row_bytes + across * g->shapes[lower][0].bytes};
    c.origin = c.row * g->cols + c.col;
    return c;
}

/* Values that are sent of the whole tensor. */
static size_t kept_of_tensor(const grid *g)
{
    size_t down = g->rows / g->height, across = g->cols / g->width, sum = 0;
    for (int lower = 0; lower < 2; lower++)
        for (int right = 0; right < 2; right++)
            sum += (lower ? g->n_down - down : down) * (right ? g->n_across - across : across) *
                   g->shapes[lower][right].indices.k;
    return sum;
}

/* The last chunk's end is the tensor's end. */
static diloco_status lay_out(dl_codec_form *form)
{
    size_t most = 0; /* values of a tensor: 2bit lays them down before it knows their codes */
    for (size_t i = 0; i < form->n_tensors; i++) {
        dl_codec_tensor *t = &form->tensors[i];
        grid g = grid_of(form, t);
        chunk last = chunk_at(&g, g.n_down - 1, g.n_across - 1);
        t->at = form->end;
        t->units = form->n_units;
        form->n_units += g.n_down * g.n_across;
        form->end +=
            last.at + index_bytes(&last.indices) + value_bytes(values_of(form), last.indices.k);
        most = dl_size_max(most, kept_of_tensor(&g));
    }
    form->bound = form->room = form->end;
    if (values_of(form) == DL_CODEC_VALUES_2BIT) form->room += most * sizeof(float);
    return DILOCO_OK;
}

/* ---- encoding ----------------------------------------------------------------------------- */

/* The chunk's elements by rows: in place, or by way of room[CHUNK]. Each row is on another page,
 * which no machine foresees, so what comes two chunks later is asked for: 6.5 GB/s, without it 4.4.
 */
static const float *elements_of(float *room, const float *x, const grid *g, const chunk *c)
{
    enum { AHEAD = 2 * SIDE, LINE = 16 };
    size_t r = 0, n_ahead = c->col + AHEAD + SIDE <= g->cols ? SIDE : 0;
    x += c->origin;
    if (c->height == 1) return x;
    do {
        memcpy(room + r * c->width, x, c->width * sizeof *x);
        for (size_t i = 0; i < n_ahead; i += LINE)
            __builtin_prefetch(x + AHEAD + i, 0, 2); /* nearer, it would push out the room */
        x += g->cols;
    } while (++r < c->height);
    return room;
}

static const dl_order by_size = {0x7fffffff, 0};

/* Eight marks at once, one in each byte. */
static uint64_t eight_at(const unsigned char *marks, size_t i)
{
    uint64_t eight;
    memcpy(&eight, marks + i, sizeof eight);
    return eight;
}

/* The indices of elements whose size reaches a bound that at least k reach; ascending. Most eights
 * have none, and finding those that do is free of branches, which could not be foretold. */
static size_t candidates(uint16_t *indices, const float *elements, size_t m, size_t k)
{
    unsigned char marks[CHUNK];
    uint16_t eights[CHUNK / 8];
    size_t n_eights = 0, n = 0;
    dl_select_marks(marks, elements, m, by_size, dl_select_bound(elements, m, k, by_size));
    memset(marks + m, 0, dl_size_round_up(m, 8) - m);
    for (size_t i = 0; i < m; i += 8) {
        eights[n_eights] = (uint16_t)i;
        n_eights += eight_at(marks, i) != 0;
    }
    for (size_t e = 0; e < n_eights; e++)
        for (uint64_t eight = eight_at(marks, eights[e]); eight; eight &= eight - 1)
            indices[n++] = (uint16_t)(eights[e] + __builtin_ctzll(eight) / 8);
    return n;
}

/* The k indices, ascending, and the values there without negative zeros. The candidates include all
 * of the k largest; a second, exact selection among these few decides ties. */
static void choose(uint16_t *indices, float *values, const float *elements, size_t m, size_t k)
{
    float found[CHUNK];
    size_t n_found = candidates(indices, elements, m, k), n = 0;
    for (size_t i = 0; i < n_found; i++)
        found[i] = elements[indices[i]];
    dl_selection selection = dl_select(found, n_found, k, by_size);
    for (size_t i = 0; i < n_found; i++) {
        if (dl_key(found[i], by_size) < selection.least || !dl_selected(&selection, found[i]))
            continue;
        values[n] = found[i] + 0.0f;
        indices[n++] = indices[i];
    }
    DL_ASSERT(n == k);
}

static void put_int8(unsigned char *out, const float *values, size_t k)
{
    float s = dl_integer_scale(values, k, 127);
    dl_store_f32(out, s);
    for (size_t i = 0; i < k; i++)
        out[sizeof s + i] = (unsigned char)dl_nearest(values[i] * (1 / s));
}

/* The inputs of a tensor's codebook. */
typedef struct statistics {
    double n, sum, squares, mean, scale;
    double sums[N_CODES], counts[N_CODES];
} statistics;

/* The first of two passes over a tensor's values: the statistics that set the codes. */
static void add_value(statistics *s, float x)
{
    s->n++;
    s->sum += (double)x;
    s->squares += (double)x * (double)x;
}

/* Rounding may make the sum of squared deviations slightly negative, hence the maximum with 0. */
static void set_scale(statistics *s)
{
    s->mean = s->sum / s->n;
    double variance = s->n > 1 ? fmax(0, s->squares - s->sum * s->mean) / (s->n - 1) : 0;
    s->scale = 6 * sqrt(variance) / N_CODES;
}

/* The second pass. With a scale of 0 all values share one code. */
static unsigned next_code(statistics *s, float x)
{
    double place = s->scale > 0 ? ((double)x - s->mean) / s->scale : 0;
    unsigned code = (unsigned)fmin(fmax(rint(place + 2), 0), N_CODES - 1);
    s->sums[code] += (double)x;
    s->counts[code]++;
    return code;
}

/* The codes of k values, of which the sums are kept. */
static void put_2bit(unsigned char *out, const unsigned char *values, size_t k, statistics *s)
{
    memset(out, 0, (k + 3) / 4);
    for (size_t i = 0; i < k; i++) {
        unsigned code = next_code(s, dl_load_f32(values + i * sizeof(float)));
        out[i / 4] = (unsigned char)(out[i / 4] | code << 2 * (i % 4));
    }
}

/* A code that no value has gets 0. */
static void put_codebook(unsigned char *out, const statistics *s)
{
    for (size_t code = 0; code < N_CODES; code++)
        dl_store_f32(out + code * sizeof(float),
                     s->counts[code] > 0 ? (float)(s->sums[code] / s->counts[code]) + 0.0f : 0);
}

/* Indices and values of a chunk; with 2bit the values go to *aside, which moves on. */
static void encode_chunk(const dl_codec_form *form, unsigned char *record, unsigned char **aside,
                         const float *x, const grid *g, const chunk *c)
{
    float room[CHUNK], values[CHUNK];
    uint16_t indices[CHUNK];
    const size_t k = c->indices.k;
    unsigned char *out = record + index_bytes(&c->indices);
    choose(indices, values, elements_of(room, x, g, c), c->height * c->width, k);
    put_indices(record, indices, &c->indices);
    switch (values_of(form)) {
    case DL_CODEC_VALUES_F32:
        memcpy(out, values, k * sizeof *values);
        break;
    case DL_CODEC_VALUES_INT8:
        put_int8(out, values, k);
        break;
    case DL_CODEC_VALUES_2BIT:
        memcpy(*aside, values, k * sizeof *values);
        *aside += k * sizeof *values;
        break;
    }
}

/* The codebook and the codes of a tensor whose indices are chosen. */
static void encode_2bit(unsigned char *out, const unsigned char *values, const grid *g)
{
    statistics s = {.n = 0};
    for (size_t i = 0; i < kept_of_tensor(g); i++)
        add_value(&s, dl_load_f32(values + i * sizeof(float)));
    set_scale(&s);
    for (size_t down = 0; down < g->n_down; down++)
        for (size_t across = 0; across < g->n_across; across++) {
            chunk c = chunk_at(g, down, across);
            put_2bit(out + c.at + index_bytes(&c.indices), values, c.indices.k, &s);
            values += c.indices.k * sizeof(float);
        }
    put_codebook(out, &s);
}

static void encode_tensor(const dl_codec_form *form, unsigned char *out, unsigned char *values,
                          const float *x, const grid *g)
{
    unsigned char *aside = values;
    for (size_t down = 0; down < g->n_down; down++)
        for (size_t across = 0; across < g->n_across; across++) {
            chunk c = chunk_at(g, down, across);
            encode_chunk(form, out + c.at, &aside, x, g, &c);
        }
    if (values_of(form) == DL_CODEC_VALUES_2BIT) encode_2bit(out, values, g);
}

static void encode(const dl_codec_form *form, unsigned char *out, size_t *len, const float *g)
{
    dl_fp_state saved = dl_fp_enter();
    for (size_t i = 0; i < form->n_tensors; i++) {
        const dl_codec_tensor *t = &form->tensors[i];
        grid cut = grid_of(form, t);
        encode_tensor(form, out + t->at, out + form->end, g + t->begin, &cut);
    }
    dl_fp_leave(saved);
    *len = form->bound;
}

/* ---- checking ------------------------------------------------------------------------------- */

/* Return true if no bit after the n bits is set in their last byte. */
static bool is_clean_behind(const unsigned char *bits, size_t n)
{
    return n % 8 == 0 || bits[n / 8] >> n % 8 == 0;
}

/* As many ones as there are indices, or they would have no end. */
static diloco_status check_coding(const unsigned char *record, const coding *c)
{
    size_t ones = 0;
    for (size_t at = 0; at < c->unary; at += 64)
        ones += ones_in(unary_at(c, record, at));
    if (!is_clean_behind(record, c->low * c->k) ||
        !is_clean_behind(record + low_bytes(c), c->unary))
        return dl_fail(DILOCO_EPROTO, "topk: bits after a chunk's indices are not zero");
    if (c->unary && ones != c->k)
        return dl_fail(DILOCO_EPROTO, "topk: a chunk's unary part has %zu ones for %zu indices",
                       ones, c->k);
    return DILOCO_OK;
}

/* Indices are a hostile peer's numbers until this has passed: decode writes to places that it
 * computes from them. */
static diloco_status check_indices(const unsigned char *record, const chunk *c)
{
    places p = places_of(&c->indices, record);
    size_t least = 0, index;
    DL_TRY(check_coding(record, &c->indices));
    for (; next_index(&p, &index); least = index + 1)
        if (index < least || index >= c->height * c->width)
            return dl_fail(DILOCO_EPROTO, "topk: index %zu, %zu, of a chunk of %zu is %s", p.i - 1,
                           index, c->height * c->width,
                           index < least ? "not above the one before it" : "outside");
    return DILOCO_OK;
}

/* A scale must be finite and not negative, and no code may be one that the encoder does not
 * make. */
static diloco_status check_values(const dl_codec_form *form, const unsigned char *in, size_t k)
{
    dl_codec_values_choice kind = values_of(form);
    if (kind == DL_CODEC_VALUES_INT8 && dl_bits_of(dl_load_f32(in)) > 0x7f7fffff)
        return dl_fail(DILOCO_EPROTO, "topk: a scale is negative, infinite or not a number");
    if (kind == DL_CODEC_VALUES_INT8 && memchr(in + sizeof(float), 0x80, k))
        return dl_fail(DILOCO_EPROTO, "topk: a value holds the code -128, which int8 does not use");
    if (kind == DL_CODEC_VALUES_2BIT && k % 4 && in[(k - 1) / 4] >> 2 * (k % 4))
        return dl_fail(DILOCO_EPROTO, "topk: bits after a chunk's last value are not zero");
    return DILOCO_OK;
}

static diloco_status check_codebook(const unsigned char *in)
{
    for (size_t code = 0; code < N_CODES; code++)
        if (!isfinite(dl_load_f32(in + code * sizeof(float))))
            return dl_fail(DILOCO_EPROTO, "topk: a codebook holds what is not a number");
    return DILOCO_OK;
}

static diloco_status check_tensor(const dl_codec_form *form, const unsigned char *records,
                                  const grid *g)
{
    if (values_of(form) == DL_CODEC_VALUES_2BIT) DL_TRY(check_codebook(records));
    for (size_t down = 0; down < g->n_down; down++)
        for (size_t across = 0; across < g->n_across; across++) {
            chunk c = chunk_at(g, down, across);
            DL_TRY(check_indices(records + c.at, &c));
            DL_TRY(check_values(form, records + c.at + index_bytes(&c.indices), c.indices.k));
        }
    return DILOCO_OK;
}

static diloco_status check(const dl_codec_form *form, const unsigned char *payload, size_t len)
{
    if (len != form->bound)
        return dl_fail(DILOCO_EPROTO, "topk needs %zu bytes for these tensors, the payload has %zu",
                       form->bound, len);
    for (size_t i = 0; i < form->n_tensors; i++) {
        grid cut = grid_of(form, &form->tensors[i]);
        DL_TRY(check_tensor(form, payload + form->tensors[i].at, &cut));
    }
    return DILOCO_OK;
}

/* ---- decoding ---------------------------------------------------------------------------------
 */

/* Value i of a record's values; `codebook` is where the tensor's records begin. */
static float value_at(dl_codec_values_choice kind, const unsigned char *values,
                      const unsigned char *codebook, size_t i)
{
    switch (kind) {
    case DL_CODEC_VALUES_F32:
        return dl_load_f32(values + i * sizeof(float)) + 0.0f;
    case DL_CODEC_VALUES_INT8:
        return (float)(signed char)values[sizeof(float) + i] * dl_load_f32(values) + 0.0f;
    case DL_CODEC_VALUES_2BIT:
        break;
    }
    return dl_load_f32(codebook + (values[i / 4] >> 2 * (i % 4) & 3) * sizeof(float)) + 0.0f;
}

/* The lowest index of the chunk whose element is not before `from`. */
static size_t index_from(const grid *g, const chunk *c, size_t from)
{
    size_t row = from / g->cols, col = from % g->cols;
    if (row < c->row) return 0;
    return (row - c->row) * c->width + (col > c->col ? dl_size_min(col - c->col, c->width) : 0);
}

/* Put a chunk's values that are in elements [from, to) of the tensor to out, which is element
 * `from`. Ascending indices are ascending elements. */
static void scatter(const dl_codec_form *form, float *out, const unsigned char *records,
                    const grid *g, const chunk *c, size_t from, size_t to)
{
    dl_codec_values_choice kind = values_of(form);
    const unsigned char *record = records + c->at, *values = record + index_bytes(&c->indices);
    const size_t first = index_from(g, c, from);
    places p = places_of(&c->indices, record);
    size_t index;
    skip_to(&p, first);
    while (next_index(&p, &index)) {
        if (index < first) continue;
        size_t element = c->origin + index / c->width * g->cols + index % c->width;
        if (element >= to) break;
        out[element - from] = value_at(kind, values, records, p.i - 1);
    }
}

/* Within one row of elements only some chunks across are needed; a range of several rows needs
 * all. */
static void decode_tensor(const dl_codec_form *form, float *out, const unsigned char *records,
                          const grid *g, size_t from, size_t to)
{
    size_t first_row = from / g->cols, last_row = (to - 1) / g->cols;
    size_t first = 0, last = g->n_across - 1; /* chunks across */
    if (first_row == last_row) {
        first = from % g->cols / g->width;
        last = (to - 1) % g->cols / g->width;
    }
    for (size_t down = first_row / g->height; down <= last_row / g->height; down++)
        for (size_t across = first; across <= last; across++) {
            chunk c = chunk_at(g, down, across);
            scatter(form, out, records, g, &c, from, to);
        }
}

/* Elements that were not sent are 0. */
static void decode(const dl_codec_form *form, float *out, const unsigned char *payload, size_t len,
                   size_t first, size_t n)
{
    (void)len; /* known from the check */
    memset(out, 0, n * sizeof *out);
    const dl_codec_tensor *t = dl_codec_tensor_of(form, first);
    for (size_t at = first; at < first + n; t++) {
        size_t end = dl_size_min(first + n, t->begin + t->count);
        grid cut = grid_of(form, t);
        decode_tensor(form, out + (at - first), payload + t->at, &cut, at - t->begin,
                      end - t->begin);
        at = end;
    }
}

static const char *const options[] = {"server.diloco.codec_keep", "server.diloco.codec_values",
                                      NULL};

const dl_codec dl_codec_topk = {
    .name = "topk",
    .summary = "the largest of each chunk, and where they are",
    .width = 1,
    .options = options,
    .lossy = true,
    .sparse = true,
    .lay_out = lay_out,
    .encode = encode,
    .check = check,
    .decode = decode,
};
