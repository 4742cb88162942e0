/* export.c - writes a run's model in a format that other programs read.
 *
 * The newest model's tensors are read into memory and checked against the model that the run's
 * settings describe. Those that the caller wants narrower are narrowed into one other piece of
 * memory. Then the format's function writes them. A format is a file of this folder and a row of
 * DL_EXPORT_FORMATS. The functions that several formats share follow after the choice. */
#include "interop/export.h"

#include "base/sized.h"
#include "model/model.h"
#include "tensor/widths.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(name) &dl_export_##name,
static const dl_export_format *const formats[] = {DL_EXPORT_FORMATS(ROW)};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

const char *diloco_export_format_at(size_t i)
{
    return i < N_FORMATS ? formats[i]->name : NULL;
}

/* ---- choosing */

/* Finds a format by its name. The text of the error lists them. */
static diloco_status find_format(const dl_export_format **out, const char *name)
{
    *out = NULL;
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i]->name, name) == 0) {
            *out = formats[i];
            return DILOCO_OK;
        }
    return dl_fail(DILOCO_EINVAL,
                   "there is no format %.60s to export to: take hf, npz, gguf or peft", name);
}

/* Finds the safetensors name of a dtype of the command line. */
static diloco_status find_dtype(const char **out, const char *name, const dl_export_format *format)
{
    static const char *const names[][2] = {{"f32", "F32"}, {"bf16", "BF16"}, {"f16", "F16"}};
    *out = NULL;
    for (size_t i = 0; i < 3; i++)
        if (strcmp(names[i][0], name) == 0) *out = names[i][1];
    if (!*out) return dl_fail(DILOCO_EINVAL, "dtype %.60s is unknown: take f32, bf16 or f16", name);
    if (format->has_bf16 || strcmp(*out, "BF16") != 0) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED, "%s files have no bf16: take f32 or f16", format->name);
}

/* Refuses an image model in a format for language models. */
static diloco_status check_model(const dl_config *config, const dl_export_format *format)
{
    if (format->any_model || strcmp(config->model, "gpt") == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "the run's model is %s, and %s is for language models: export it to npz",
                   config->model, format->name);
}

/* ---- the tensors */

static bool same_shape(const diloco_tensor *t, const dl_st_tensor *found)
{
    return t->n_dims == found->n_dims &&
           memcmp(t->shape, found->shape, (size_t)t->n_dims * sizeof *t->shape) == 0;
}

/* Returns true for a tensor of the model. A run's state may hold others, whose names begin with
 * "diloco.". */
static bool is_models(const dl_st_tensor *t)
{
    return strncmp(t->name, "diloco.", 7) != 0;
}

/* Fails for a tensor that does not fit the model of the settings. `how` is the verb of the text. */
static diloco_status is_another(const char *name, const char *how, const dl_config *config,
                                const dl_export_format *format)
{
    return dl_fail(DILOCO_EREFUSED,
                   "tensor %s %s model %s as the run's settings describe it: another trainer made "
                   "this run, and %s is for the language models of this program; export it to npz",
                   name, how, config->model, format->name);
}

/* Compares the run's tensors with those of the model that the settings describe. They differ if
 * another trainer (PyTorch, a program in C) made the run with tensors of its own. */
static diloco_status compare_tensors(const dl_model *model, const dl_st *st,
                                     const dl_config *config, const dl_export_format *format)
{
    size_t n, n_own = 0;
    const diloco_tensor *own = dl_model_tensors(model, &n);
    for (size_t i = 0; i < st->n; i++) {
        const dl_st_tensor *t = &st->tensors[i];
        size_t k = 0;
        if (!is_models(t)) continue;
        while (k < n && strcmp(own[k].name, t->name) != 0)
            k++;
        if (k == n) return is_another(t->name, "is not in", config, format);
        if (!same_shape(&own[k], t))
            return is_another(t->name, "has another shape in", config, format);
        n_own++;
    }
    for (size_t i = 0; i < n && n_own < n; i++)
        if (!dl_st_find(st, own[i].name))
            return is_another(own[i].name, "is not in the run but is in", config, format);
    return DILOCO_OK;
}

/* Compares with a sketch, which has names and shapes and no values. Its sample of one token is
 * enough, since no parameter's shape depends on the context. */
static diloco_status check_tensors(const dl_config *config, const dl_export_format *format,
                                   const dl_st *st)
{
    const dl_sample sample = dl_sample_tokens(config->vocab > 0 ? (size_t)config->vocab : 1, 1);
    dl_model *model;
    if (format->any_model) return DILOCO_OK;
    DL_TRY(dl_model_sketch(&model, config, &sample));
    const diloco_status status = compare_tensors(model, st, config, format);
    dl_model_destroy(model);
    return status;
}

/* Vectors (norms' scales) may stay F32: they are few, and some readers take no other type. */
static bool is_narrowed(const dl_export *e, const dl_export_format *format, const dl_st_tensor *t)
{
    if (strcmp(e->dtype, "F32") == 0 || strcmp(t->dtype, "F32") != 0) return false;
    return !format->wide_vectors || t->n_dims > 1;
}

/* Sets e's tensors and their bytes. Bytes are borrowed from the snapshot, or from `narrow` for
 * tensors of another type than they had. `narrow` has half as many bytes as all tensors. */
static void set_tensors(dl_export *e, const dl_export_format *format, const dl_st *st,
                        unsigned char *narrow)
{
    for (size_t i = 0; i < st->n; i++) {
        if (!is_models(&st->tensors[i])) continue;
        dl_st_tensor *t = &e->tensors[e->n];
        *t = st->tensors[i];
        e->data[e->n] = (dl_span){st->data + t->begin, t->end - t->begin};
        if (is_narrowed(e, format, t)) {
            size_t count = (t->end - t->begin) / sizeof(float);
            dl_narrow(narrow, (const void *)(st->data + t->begin), count, e->dtype);
            e->data[e->n] = (dl_span){narrow, count * 2};
            t->dtype = e->dtype;
            narrow += count * 2;
        }
        e->n++;
    }
}

/* Lends the format's function the tensors, and frees them afterwards. */
static diloco_status write_as(dl_export *e, const dl_export_format *format, const dl_st *st)
{
    bool narrows = strcmp(e->dtype, "F32") != 0;
    unsigned char *narrow = malloc(narrows ? dl_size_max(st->data_len / 2, 1) : 1);
    e->tensors = calloc(dl_size_max(st->n, 1), sizeof *e->tensors);
    e->data = calloc(dl_size_max(st->n, 1), sizeof *e->data);
    diloco_status status = DILOCO_OK;
    if (!narrow || !e->tensors || !e->data)
        status = dl_fail(DILOCO_ENOMEM, "out of memory for %zu bytes of parameters", st->data_len);
    if (!status) {
        set_tensors(e, format, st, narrow);
        status = format->write(e);
    }
    free(e->tensors), free(e->data), free(narrow);
    return status;
}

/* `config` gets the run's settings, with those of the caller that a run does not fix. UINT64_MAX
 * asks for the newest model. */
static diloco_status export_run(diloco_export_report *out, dl_config *config,
                                const dl_export_format *format, dl_export *e)
{
    void *bytes;
    size_t len;
    dl_st st;
    DL_TRY(diloco_run_config(config, config->store));
    DL_TRY(check_model(config, format));
    DL_TRY(diloco_theta_read(&bytes, &len, &out->entry, config->store, UINT64_MAX));
    diloco_status status = dl_st_open(&st, bytes, len);
    if (!status) {
        status = check_tensors(config, format, &st);
        if (!status) status = write_as(e, format, &st);
        dl_st_close(&st);
    }
    diloco_free(bytes);
    return status;
}

/* The run's settings have many paths, so they are too large for the stack. */
static diloco_status export_as(diloco_export_report *out, const diloco_config *config,
                               const char *format_name, const char *dtype, const char *to)
{
    const dl_export_format *format = NULL;
    dl_export e = {.to = to};
    DL_TRY(find_format(&format, format_name));
    DL_TRY(find_dtype(&e.dtype, dtype, format));
    dl_config *run = malloc(sizeof *run);
    if (!run) return dl_fail(DILOCO_ENOMEM, "out of memory for the run's settings");
    *run = *config;
    e.config = run;
    diloco_status status = export_run(out, run, format, &e);
    out->tensors = e.n;
    free(run);
    return status;
}

/* ---- the tokenizer */

/* A tokenizer of another digest would give the model's tokens another text. */
static diloco_status check_digest(const dl_export *e, const dl_bpe *bpe)
{
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, dl_bpe_digest(bpe));
    if (strcmp(hex, e->config->tokenizer_digest) == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EDIFFERS, "data.tokenizer_path = \"%s\" is not the run's tokenizer",
                   e->config->tokenizer_path);
}

diloco_status dl_export_tokenizer(dl_bpe **out, const dl_export *e)
{
    *out = NULL;
    if (strcmp(e->config->tokenizer, "bpe") != 0) return DILOCO_OK;
    if (!*e->config->tokenizer_path)
        return dl_fail(DILOCO_EINVAL, "the run's tokenizer goes with its model: add --set "
                                      "data.tokenizer_path=FILE");
    DL_TRY(dl_bpe_open(out, e->config->tokenizer_path));
    const diloco_status status = check_digest(e, *out);
    if (!status) return DILOCO_OK;
    dl_bpe_close(*out);
    *out = NULL;
    return status;
}

/* ---- a file of a folder */

/* The path of a file of the folder e->to. */
static diloco_status path_of(char out[4096], const dl_export *e, const char *file)
{
    int len = snprintf(out, 4096, "%s/%s", e->to, file);
    if (len >= 0 && len < 4096) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s/%s: the path is too long", e->to, file);
}

diloco_status dl_export_text(const dl_export *e, const char *file, const dl_buf *text)
{
    char path[4096];
    DL_TRY(path_of(path, e, file));
    return dl_file_write(path, &(dl_span){text->data, text->len}, 1);
}

diloco_status dl_export_weights(const dl_export *e, const char *file)
{
    static const dl_st_meta meta = {"format", "pt"}; /* transformers asks for it */
    char path[4096];
    dl_buf header;
    DL_TRY(path_of(path, e, file));
    dl_span *spans = calloc(e->n + 1, sizeof *spans);
    if (!spans) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", e->n);
    for (size_t i = 0; i < e->n; i++)
        spans[1 + i] = e->data[i];
    dl_buf_init(&header, DL_ST_HEADER_MAX);
    diloco_status status = dl_st_write(path, &header, spans, e->tensors, e->n, &meta, 1);
    dl_buf_deinit(&header);
    free(spans);
    return status;
}

/* ---- a file in pieces */

void dl_pieces_init(dl_pieces *p)
{
    *p = (dl_pieces){.n = 0};
    dl_buf_init(&p->small, (size_t)1 << 30);
}

void dl_pieces_deinit(dl_pieces *p)
{
    dl_buf_deinit(&p->small);
    free(p->spans);
}

void dl_pieces_add(dl_pieces *p, const void *data, size_t len)
{
    if (!p->status) p->status = dl_buf_add(&p->small, data, len);
    p->bytes += len;
}

/* Adds a span. The array doubles, so that n spans take O(n) time. */
static void put_span(dl_pieces *p, dl_span span)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        dl_span *spans = reallocarray(p->spans, cap, sizeof *spans);
        if (!spans) {
            p->status = dl_fail(DILOCO_ENOMEM, "out of memory for a file of %zu pieces", cap);
            return;
        }
        p->spans = spans;
        p->cap = cap;
    }
    p->spans[p->n++] = span;
}

/* Adds a span for the bytes of `small` that have none. It has no data pointer yet, because `small`
 * may move while it grows; dl_pieces_write() sets it. */
static void close_small(dl_pieces *p)
{
    if (!p->status && p->small.len > p->noted)
        put_span(p, (dl_span){NULL, p->small.len - p->noted});
    p->noted = p->small.len;
}

void dl_pieces_put(dl_pieces *p, dl_span borrowed)
{
    close_small(p);
    if (!p->status && borrowed.len) put_span(p, borrowed);
    p->bytes += borrowed.len;
}

void dl_pieces_u(dl_pieces *p, uint64_t value, int n_bytes)
{
    unsigned char bytes[8];
    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    dl_pieces_add(p, bytes, (size_t)n_bytes);
}

void dl_pieces_pad(dl_pieces *p, size_t to)
{
    while (p->bytes % to)
        dl_pieces_u(p, 0, 1);
}

diloco_status dl_pieces_write(dl_pieces *p, const char *path)
{
    size_t at = 0;
    close_small(p);
    if (p->status) return p->status;
    for (size_t i = 0; i < p->n; i++)
        if (!p->spans[i].data) {
            p->spans[i].data = p->small.data + at;
            at += p->spans[i].len;
        }
    return dl_file_write(path, p->spans, p->n);
}

diloco_status diloco_export_sized(diloco_export_report *out, size_t size,
                                  const diloco_config *config, const char *format,
                                  const char *dtype, const char *to)
{
    diloco_export_report report = {.entry = 0};
    const diloco_status status = export_as(&report, config, format, dtype, to);
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}
