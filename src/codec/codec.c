/* codec.c - the table of codecs, the form they share, and the walk over decoded values that
 * ends every check. */
#include "base/own.h"
#include "codec/codec_rows.h"

#include <stdlib.h>
#include <string.h>

#define ROW(name) &dl_codec_##name,
static const dl_codec *const rows[] = {DL_CODECS(ROW)};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const dl_codec *dl_codec_at(size_t i)
{
    return i < N_ROWS ? rows[i] : NULL;
}

const dl_codec *dl_codec_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
    return NULL;
}

/* The caller's own codec is found by its name in the configuration, like the others. */
const dl_codec *dl_codec_of(const dl_config *config)
{
    const dl_codec *own = config->own ? config->own->codec : NULL;
    return own && strcmp(own->name, config->codec) == 0 ? own : dl_codec_find(config->codec);
}

/* ---- the form */

/* A tensor of no elements has nothing to encode. */
static bool in_array(const dl_manifest_tensor *t, int fragment, dl_region region)
{
    return t->fragment == fragment && t->region == region && t->count > 0;
}

/* A matrix has its first dimension as rows; a vector or a scalar is one row. */
static dl_codec_tensor tensor_of(const dl_manifest_tensor *t)
{
    size_t rows_of = t->n_dims >= 2 ? t->shape[0] : 1;
    return (dl_codec_tensor){
        .begin = t->offset, .count = t->count, .rows = rows_of, .cols = t->count / rows_of};
}

/* The fragment's array holds all trained regions before the averaged ones, so the manifest is
 * walked once for each region. dl_codec_tensor_of relies on ascending `begin`. */
static diloco_status list_tensors(dl_codec_form *form, const dl_manifest *manifest, int fragment)
{
    for (size_t i = 0; i < manifest->n_tensors; i++)
        for (int region = DL_TRAINED; region <= DL_AVERAGED; region++)
            form->n_tensors += in_array(&manifest->tensors[i], fragment, (dl_region)region);
    form->tensors = calloc(dl_size_max(form->n_tensors, 1), sizeof *form->tensors);
    if (!form->tensors)
        return dl_fail(DILOCO_ENOMEM, "out of memory for the layout of %zu tensors",
                       form->n_tensors);
    dl_codec_tensor *next = form->tensors;
    for (int region = DL_TRAINED; region <= DL_AVERAGED; region++)
        for (size_t i = 0; i < manifest->n_tensors; i++)
            if (in_array(&manifest->tensors[i], fragment, (dl_region)region))
                *next++ = tensor_of(&manifest->tensors[i]);
    return DILOCO_OK;
}

/* On success the form owns the list of tensors; a failed layout frees it here. */
diloco_status dl_codec_form_init(dl_codec_form *out, const dl_config *config,
                                 const dl_manifest *manifest, int fragment)
{
    const dl_fragment_shape *shape = &manifest->fragments[fragment];
    *out = (dl_codec_form){0};
    dl_codec_form form = {.codec = dl_codec_of(config),
                          .options = {.keep = config->codec_keep,
                                      .prune = config->codec_prune,
                                      .values = config->codec_values},
                          .n = shape->n_trained + shape->n_averaged};
    form.slices = dl_cut_count(form.n, (size_t)config->replicas);
    if (!form.codec) return dl_no_row("codec", config->codec);
    diloco_status status = list_tensors(&form, manifest, fragment);
    if (!status) status = form.codec->lay_out(&form);
    if (status)
        dl_codec_form_deinit(&form);
    else
        *out = form;
    return status;
}

void dl_codec_form_deinit(dl_codec_form *form)
{
    free(form->tensors);
    *form = (dl_codec_form){0};
}

/* Bisection by the tensors' first elements. */
const dl_codec_tensor *dl_codec_tensor_of(const dl_codec_form *form, size_t i)
{
    const dl_codec_tensor *low = form->tensors, *high = low + form->n_tensors;
    DL_ASSERT(i < form->n);
    while (high - low > 1) {
        const dl_codec_tensor *middle = low + (high - low) / 2;
        if (middle->begin <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- encoding on several threads */

enum { WORTH_THREADS = 1 << 18 }; /* elements: below it waking them takes as long */

typedef struct encoding {
    const dl_codec_form *form;
    unsigned char *out;
    const float *g;
} encoding;

/* Parts begin at multiples of DL_BLOCK. A codec's block at such an edge belongs to one part
 * alone. */
static void encode_part(void *context, int part, int n_parts)
{
    const encoding *e = context;
    size_t begin, end;
    dl_part_range(&begin, &end, e->form->n, DL_BLOCK, part, n_parts);
    e->form->codec->encode_part(e->form, e->out, e->g, begin, end - begin);
}

/* Only codecs of constant length encode in parts, so the length is the bound. A caller's own codec
 * may claim any length, hence the comparison. */
diloco_status dl_codec_encode(const dl_codec_form *form, unsigned char *out, size_t *len,
                              const float *g, dl_pool *pool)
{
    encoding e = {form, out, g};
    if (form->codec->encode_part && form->n >= WORTH_THREADS) {
        dl_pool_run(pool, encode_part, &e);
        *len = form->bound;
        return DILOCO_OK;
    }
    form->codec->encode(form, out, len, g);
    if (*len <= form->bound) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "codec %s wrote %zu bytes for %zu elements, beyond its bound of %zu",
                   form->codec->name, *len, form->n, form->bound);
}

/* ---- common to all codecs */

/* The block at `first`, in place or by way of room[DL_BLOCK]. */
static const float *values(const dl_codec_form *form, float *room, const unsigned char *payload,
                           size_t len, size_t first, size_t n)
{
    const float *view = form->codec->view ? form->codec->view(payload, first) : NULL;
    if (view) return view;
    form->codec->decode(form, room, payload, len, first, n);
    return room;
}

/* Of elements [first, end). */
static diloco_status check_values(const dl_codec_form *form, const unsigned char *payload,
                                  size_t len, float bound, size_t first, size_t end, size_t *index,
                                  double *norm2)
{
    dl_fp_state saved = dl_fp_enter();
    float room[DL_BLOCK];
    double sum = 0;
    *index = end;
    for (size_t i = first; i < end && *index == end; i += DL_BLOCK) {
        size_t n = dl_size_min(end - i, DL_BLOCK);
        const float *g = values(form, room, payload, len, i, n);
        size_t bad = dl_first_bad(g, n, bound);
        if (bad < n) *index = i + bad;
        sum += dl_block_norm2(g, n);
    }
    dl_fp_leave(saved);
    if (*index < end)
        return dl_fail(DILOCO_ENUMERIC, "element %zu is not a number of size at most %g", *index,
                       (double)bound);
    *norm2 = sum;
    return DILOCO_OK;
}

/* The form is checked first: decode trusts lengths, indices and codes from then on. The walk ends
 * at the first offending element, so a hostile payload costs at most one decoding. */
diloco_status dl_codec_check(const dl_codec_form *form, const unsigned char *payload, size_t len,
                             float bound, size_t *index, double *norm2)
{
    DL_TRY(form->codec->check(form, payload, len));
    *norm2 = 0;
    for (size_t i = 0; i < form->slices; i++) {
        size_t first, end;
        double part;
        dl_cut_range(&first, &end, form->n, form->slices, i);
        DL_TRY(check_values(form, payload, len, bound, first, end, index, &part));
        *norm2 += part;
    }
    return DILOCO_OK;
}

/* The reader has the bytes of a slice alone, not a whole payload. */
diloco_status dl_codec_check_part(const dl_codec_form *form, const unsigned char *payload,
                                  float bound, size_t first, size_t n, double *norm2)
{
    size_t index;
    return check_values(form, payload, form->bound, bound, first, first + n, &index, norm2);
}

/* The walk is the one that other readers make, so `out` has their bits. */
void dl_codec_round_trip(const dl_codec_form *form, float *out, const unsigned char *payload,
                         size_t len)
{
    dl_fp_state saved = dl_fp_enter();
    for (size_t i = 0; i < form->n; i += DL_BLOCK)
        form->codec->decode(form, out + i, payload, len, i, dl_size_min(form->n - i, DL_BLOCK));
    dl_fp_leave(saved);
}
