/* prune.c - the larger part of every neuron, after the trimming and the sign election of
 * TIES-Merging (2306.01708), inside one contribution.
 *
 * A neuron is a row of a matrix (dl_codec_tensor's); a tensor of one row is one neuron. Its sign is
 * that of the greater mass, so of its sum; plus for 0. Of its m elements floor(prune * m) are not
 * sent. Zeros are first, then those of the other sign, the smallest first, then those of its own
 * sign, the smallest first. Of equal ones those of highest index are dropped. The payload:
 *
 *     starts  8 bytes for each DL_BLOCK elements of the array: how many are sent before it
 *     map     a bit for each element of the array, low bits first, set where it is sent
 *     values  of those, 4 bytes each, in order
 *
 * With the sign turned so that the neuron's own is minus, and zeros plus, the order is
 * that of the floats' bits as unsigned integers. The largest are sent. */
#include "codec/blocks.h"
#include "codec/codec_rows.h"
#include "codec/select.h"

enum { START = sizeof(uint64_t) };

/* ---- where things are ------------------------------------------------------------------- */

static size_t n_starts(const dl_codec_form *form)
{
    return (form->n + DL_BLOCK - 1) / DL_BLOCK;
}

static size_t map_at(const dl_codec_form *form)
{
    return n_starts(form) * START;
}

static size_t values_at(const dl_codec_form *form)
{
    return map_at(form) + (form->n + 7) / 8;
}

/* The number follows from the row's length alone, so a payload has one length. */
static size_t sent_of_row(const dl_codec_form *form, size_t m)
{
    return m - (size_t)(form->options.prune * (double)m);
}

static diloco_status lay_out(dl_codec_form *form)
{
    size_t longest = 0; /* row: encode turns its signs in a copy, after the payload */
    for (size_t i = 0; i < form->n_tensors; i++) {
        dl_codec_tensor *t = &form->tensors[i];
        t->at = form->end;
        form->end += t->rows * sent_of_row(form, t->cols);
        longest = dl_size_max(longest, t->cols);
    }
    form->bound = values_at(form) + form->end * sizeof(float);
    form->room = form->bound + (longest + 1) * sizeof(float);
    return DILOCO_OK;
}

static uint64_t load_start(const unsigned char *p)
{
    uint64_t start;
    memcpy(&start, p, sizeof start);
    return start;
}

/* Bits [i, i + 64) of the map of n, as far as it goes; i is a multiple of 8. */
static uint64_t map_word(const unsigned char *map, size_t i, size_t n)
{
    uint64_t word = 0;
    memcpy(&word, map + i / 8, dl_size_min(sizeof word, (n + 7) / 8 - i / 8));
    return word;
}

/* ---- encoding ----------------------------------------------------------------------------- */

static inline DL_BODY double itself(float x, float unused)
{
    (void)unused;
    return (double)x;
}
DL_KERNEL(add_up, (double *sum, const float *x, size_t n), *sum = dl_sum_lanes(itself, x, x, n))

static inline DL_BODY void turn_body(float *out, const float *x, size_t n, float sign)
{
    DL_EACH
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * sign + 0.0f;
}
DL_KERNEL(turn, (float *out, const float *x, size_t n, float sign), turn_body(out, x, n, sign))

static float *align(unsigned char *p)
{
    return (float *)(void *)(p + (0 - (uintptr_t)p) % _Alignof(float));
}

/* Map the row of m elements that begins at bit `begin`. The sign of the sum is turned to minus,
 * since the order puts negative values first. The row's copy leaves the input untouched. */
static void map_row(const dl_codec_form *form, unsigned char *map, float *turned, const float *x,
                    size_t begin, size_t m)
{
    static const dl_order minus_first = {0xffffffff, 0x80000000};
    double sum;
    dl_isa_call(add_up)(&sum, x, m);
    dl_isa_call(turn)(turned, x, m, sum < 0 ? 1.0f : -1.0f);
    dl_selection selection = dl_select(turned, m, sent_of_row(form, m), minus_first);
    for (size_t i = 0; i < m; i++) {
        bool sent =
            dl_key(turned[i], minus_first) >= selection.least && dl_selected(&selection, turned[i]);
        map[(begin + i) / 8] |= (unsigned char)(sent << (begin + i) % 8);
    }
}

/* Starts and values, from the map. Each start makes its block readable without counting the bits
 * before it. */
static void put_values(const dl_codec_form *form, unsigned char *out, const float *g)
{
    unsigned char *values = out + values_at(form);
    uint64_t n_sent = 0;
    for (size_t i = 0; i < form->n; i += 64) {
        if (i % DL_BLOCK == 0) memcpy(out + i / DL_BLOCK * START, &n_sent, START);
        for (uint64_t word = map_word(out + map_at(form), i, form->n); word; word &= word - 1)
            dl_store_f32(values + n_sent++ * sizeof(float),
                         g[i + (size_t)__builtin_ctzll(word)] + 0.0f);
    }
    DL_ASSERT(n_sent == form->end);
}

static void encode(const dl_codec_form *form, unsigned char *out, size_t *len, const float *g)
{
    dl_fp_state saved = dl_fp_enter();
    unsigned char *map = out + map_at(form);
    float *turned = align(out + form->bound);
    memset(map, 0, (form->n + 7) / 8);
    for (const dl_codec_tensor *t = form->tensors; t < form->tensors + form->n_tensors; t++)
        for (size_t r = 0; r < t->rows; r++)
            map_row(form, map, turned, g + t->begin + r * t->cols, t->begin + r * t->cols, t->cols);
    put_values(form, out, g);
    dl_fp_leave(saved);
    *len = form->bound;
}

/* ---- checking and decoding ------------------------------------------------------------------ */

/* Every start is compared with the count of the map's bits before it. So decode can begin at any
 * block and never reads past the values. */
static diloco_status check(const dl_codec_form *form, const unsigned char *payload, size_t len)
{
    const unsigned char *map = payload + map_at(form);
    uint64_t n_sent = 0;
    if (len != form->bound)
        return dl_fail(DILOCO_EPROTO,
                       "prune needs %zu bytes for these tensors, the payload has %zu", form->bound,
                       len);
    for (size_t i = 0; i < form->n; i += 64) {
        if (i % DL_BLOCK == 0 && load_start(payload + i / DL_BLOCK * START) != n_sent)
            return dl_fail(DILOCO_EPROTO, "prune: start %zu is not what the map says",
                           i / DL_BLOCK);
        n_sent += (uint64_t)__builtin_popcountll(map_word(map, i, form->n));
    }
    if (n_sent != form->end)
        return dl_fail(DILOCO_EPROTO, "prune: the map has %llu of %zu elements",
                       (unsigned long long)n_sent, form->end);
    if (form->n % 8 && map[form->n / 8] >> form->n % 8)
        return dl_fail(DILOCO_EPROTO, "prune: bits after the map's last element are not zero");
    return DILOCO_OK;
}

/* The start gives the first value's place; from there the map's bits and the values advance
 * together. */
static void decode(const dl_codec_form *form, float *out, const unsigned char *payload, size_t len,
                   size_t first, size_t n)
{
    (void)len; /* known from the check */
    const unsigned char *value =
        payload + values_at(form) + load_start(payload + first / DL_BLOCK * START) * sizeof(float);
    memset(out, 0, n * sizeof *out);
    for (size_t i = 0; i < n; i += 64) {
        uint64_t word = map_word(payload + map_at(form), first + i, form->n);
        for (; word; word &= word - 1, value += sizeof(float))
            out[i + (size_t)__builtin_ctzll(word)] = dl_load_f32(value) + 0.0f;
    }
}

static const char *const options[] = {"server.diloco.codec_prune", NULL};

const dl_codec dl_codec_prune = {
    .name = "prune",
    .summary = "the larger part of each neuron, of its majority's sign first",
    .width = 4,
    .options = options,
    .lossy = true,
    .sparse = true,
    .lay_out = lay_out,
    .encode = encode,
    .check = check,
    .decode = decode,
};
