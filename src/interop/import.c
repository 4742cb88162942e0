/* import.c - reads a language model of Hugging Face's transformers.
 *
 * config.json becomes options, and the options become a sketch of the model: names and shapes. Each
 * of the sketch's tensors must be in the folder's safetensors files in exactly that shape. A tensor
 * that the sketch does not have is an error.
 *
 * Float32 tensors are written straight from the mapped files. Narrower ones are widened first, all
 * of them into one piece of memory. The result is a folder with model.safetensors, model.toml and
 * the tokenizer. The files are untrusted input: everything is checked before the first write. */
#include "base/sized.h"
#include "model/hf.h"
#include "model/model.h"
#include "tensor/kernels.h"
#include "tensor/widths.h"
#include <diloco/train.h>

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that are read or written at most. */
enum { CONFIG_MAX = 1 << 20, TOKENIZER_MAX = 256 << 20, HEADER_MAX = DL_ST_HEADER_MAX };
/* Tokens of context in model.toml at most; a model's maximum is often more than fits in memory. */
enum { DEFAULT_CONTEXT = 1024 };

/* One import, from the first file read to the last one written. */
typedef struct importing {
    const char *folder, *to; /* borrowed */
    dl_config config;        /* the options that config.json yields; the others are the defaults */
    dl_hf_facts facts;
    dl_hf_weights weights; /* the mapped files; spans below point into them */
    dl_model *model;       /* owned; a sketch */
    dl_st_tensor *tensors; /* owned; [n], as they will be written */
    dl_span *spans;        /* owned; [n + 1]: the header's place, then each tensor's bytes */
    float *wide;           /* owned; the widened values */
    size_t n, n_wide;      /* tensors; values in `wide` */
} importing;

/* ---- reading */

/* The path of a file of a folder. */
static diloco_status path_of(char out[4096], const char *folder, const char *file)
{
    int len = snprintf(out, 4096, "%s/%s", folder, file);
    if (len >= 0 && len < 4096) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s/%s: the path is too long", folder, file);
}

/* Reads config.json into options and facts. Errors name the folder. */
static diloco_status read_config(importing *im)
{
    dl_buf text;
    char path[4096];
    DL_TRY(path_of(path, im->folder, "config.json"));
    dl_buf_init(&text, CONFIG_MAX);
    diloco_status status = dl_file_read(&text, path);
    if (!status) status = dl_hf_config_read(&im->config, &im->facts, text.data, text.len);
    dl_buf_deinit(&text);
    return status ? dl_fail_context(status, "%s", im->folder) : DILOCO_OK;
}

/* Makes the sketch, with a context of at most DEFAULT_CONTEXT. */
static diloco_status sketch(importing *im)
{
    const dl_sample sample = dl_sample_tokens(1, 1);
    char context[24];
    int64_t fits = im->facts.positions < DEFAULT_CONTEXT ? im->facts.positions : DEFAULT_CONTEXT;
    snprintf(context, sizeof context, "%" PRId64, fits);
    DL_TRY(dl_config_set(&im->config, "parameters.model.context", context, "config.json"));
    return dl_model_sketch(&im->model, &im->config, &sample);
}

/* ---- tensors */

/* Returns true for a tensor of the files that the model does not need. Old folders have the rotary
 * frequencies, which transformers computes itself. A tied head may be there a second time. */
static bool may_be_passed_over(const importing *im, const char *name)
{
    const char *end = strrchr(name, '.');
    if (im->config.tied && strcmp(name, "lm_head.weight") == 0) return true;
    return end && strcmp(end, ".inv_freq") == 0;
}

static bool same_shape(const diloco_tensor *t, const dl_st_tensor *found)
{
    return t->n_dims == found->n_dims &&
           memcmp(t->shape, found->shape, (size_t)t->n_dims * sizeof *t->shape) == 0;
}

/* Finds the file's tensor of the name of `t`, in a readable type and the same shape. */
static diloco_status find_tensor(const dl_hf_tensor **out, const importing *im,
                                 const diloco_tensor *t)
{
    const dl_hf_tensor *found = *out = dl_hf_weights_find(&im->weights, t->name);
    size_t columns = t->n_dims > 1 ? t->shape[1] : 1;
    if (!found)
        return dl_fail(DILOCO_EPROTO, "there is no tensor %s, which config.json's model has",
                       t->name);
    if (!dl_width_known(found->tensor->dtype))
        return dl_fail(DILOCO_EPROTO, "tensor %s is %s; F32, BF16 and F16 can be read", t->name,
                       found->tensor->dtype);
    if (same_shape(t, found->tensor)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "tensor %s does not have the shape %zu x %zu of config.json",
                   t->name, t->shape[0], columns);
}

/* The number of a tensor's values. */
static size_t count_of(const dl_st_tensor *t)
{
    return (t->end - t->begin) / dl_st_dtype_size(t->dtype);
}

/* A head that the files have in addition to the embedding that it is tied to must be the same
 * matrix, bit for bit. Otherwise config.json is wrong, and the head would be lost. */
static diloco_status check_tied(const importing *im)
{
    const dl_hf_tensor *head = dl_hf_weights_find(&im->weights, "lm_head.weight"),
                       *table = dl_hf_weights_find(&im->weights, "model.embed_tokens.weight");
    if (!im->config.tied || !head || !table) return DILOCO_OK;
    size_t len = table->tensor->end - table->tensor->begin;
    if (head->tensor->end - head->tensor->begin == len && memcmp(head->data, table->data, len) == 0)
        return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "tie_word_embeddings is true, but lm_head.weight is another "
                                  "matrix than model.embed_tokens.weight");
}

/* Refuses tensors that the model does not have. Counting the known ones first avoids the quadratic
 * search in the usual case, in which all of them are known. */
static diloco_status check_no_more(const importing *im, const diloco_tensor *own)
{
    size_t known = 0;
    for (size_t i = 0; i < im->n; i++)
        known += dl_hf_weights_find(&im->weights, own[i].name) != NULL;
    for (size_t i = 0; i < im->weights.n && known < im->weights.n; i++) {
        const char *name = im->weights.tensors[i].tensor->name;
        size_t k = 0;
        while (k < im->n && strcmp(own[k].name, name) != 0)
            k++;
        if (k == im->n && !may_be_passed_over(im, name))
            return dl_fail(DILOCO_EPROTO,
                           "tensor %s is not one of the model's that config.json "
                           "describes",
                           name);
    }
    return DILOCO_OK;
}

/* Sets all tensors as they will be written. Those that must be widened have no data yet. */
static diloco_status list_tensors(importing *im, const diloco_tensor *own)
{
    for (size_t i = 0; i < im->n; i++) {
        const dl_hf_tensor *found;
        dl_st_tensor *t = &im->tensors[i];
        DL_TRY(find_tensor(&found, im, &own[i]));
        size_t count = count_of(found->tensor);
        bool wide = strcmp(found->tensor->dtype, "F32") == 0;
        *t = *found->tensor;
        t->name = own[i].name;
        t->dtype = "F32";
        im->spans[1 + i] = (dl_span){wide ? found->data : NULL, count * sizeof(float)};
        if (!wide) im->n_wide += count;
    }
    return DILOCO_OK;
}

/* Widens every tensor without data, in order, into one piece of memory. */
static diloco_status widen_all(importing *im, const diloco_tensor *own)
{
    size_t at = 0;
    im->wide = malloc(dl_size_max(im->n_wide, 1) * sizeof *im->wide);
    if (!im->wide) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu parameters", im->n_wide);
    for (size_t i = 0; i < im->n; i++) {
        if (im->spans[1 + i].data) continue;
        const dl_hf_tensor *found = dl_hf_weights_find(&im->weights, own[i].name);
        size_t count = count_of(found->tensor);
        dl_widen(im->wide + at, found->data, count, found->tensor->dtype);
        im->spans[1 + i].data = im->wide + at;
        at += count;
    }
    return DILOCO_OK;
}

/* Returns the index of the first value that is not finite, and the value; the number of values if
 * all are finite. A file's tensors need not be aligned, so blocks are copied. */
static size_t first_not_finite(float *out, dl_span span)
{
    float block[1024];
    const size_t n = span.len / sizeof(float), most = sizeof block / sizeof *block;
    for (size_t at = 0; at < n; at += most) {
        const size_t size = dl_size_min(n - at, most);
        memcpy(block, (const char *)span.data + at * sizeof(float), size * sizeof(float));
        const size_t bad = dl_first_bad(block, size, FLT_MAX);
        if (bad == size) continue;
        *out = block[bad];
        return at + bad;
    }
    return n;
}

/* A NaN or an infinity would spread to all parameters with the first step. */
static diloco_status check_finite(const importing *im)
{
    for (size_t i = 0; i < im->n; i++) {
        float value = 0;
        const dl_span span = im->spans[1 + i];
        const size_t n = span.len / sizeof(float), bad = first_not_finite(&value, span);
        if (bad < n)
            return dl_fail(DILOCO_ENUMERIC,
                           "tensor %s is not finite: element %zu of %zu is %g; export the model "
                           "again from a checkpoint before its training diverged",
                           im->tensors[i].name, bad, n, (double)value);
    }
    return DILOCO_OK;
}

/* Makes all tensors ready to be written. Errors name the folder. */
static diloco_status gather(importing *im)
{
    const diloco_tensor *own = dl_model_tensors(im->model, &im->n);
    im->tensors = calloc(im->n, sizeof *im->tensors);
    im->spans = calloc(im->n + 1, sizeof *im->spans);
    if (!im->tensors || !im->spans)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", im->n);
    diloco_status status = list_tensors(im, own);
    if (!status) status = check_tied(im);
    if (!status) status = check_no_more(im, own);
    if (!status) status = widen_all(im, own);
    if (!status) status = check_finite(im);
    return status ? dl_fail_context(status, "%s", im->folder) : DILOCO_OK;
}

/* ---- writing */

/* Writes model.safetensors; "format": "pt" is what transformers asks of a file. */
static diloco_status write_weights(importing *im, const char *path)
{
    static const dl_st_meta meta = {"format", "pt"};
    dl_buf header;
    dl_buf_init(&header, HEADER_MAX);
    diloco_status status = dl_st_write(path, &header, im->spans, im->tensors, im->n, &meta, 1);
    dl_buf_deinit(&header);
    return status;
}

/* A JSON string is a TOML string as well. */
static diloco_status put_quoted(dl_buf *out, const char *text)
{
    dl_json j;
    dl_json_init(&j, out);
    dl_json_str(&j, NULL, text);
    return dl_json_done(&j);
}

/* Writes model.toml: the model's options that config.json has set, by the table of all options. An
 * option of another model is not among them. */
static diloco_status put_toml(dl_buf *out, const importing *im, const char *weights)
{
    static const char section[] = "parameters.model.";
    const size_t skip = sizeof section - 1;
    DL_TRY(dl_buf_addf(out, "# A model of Hugging Face's, read by diloco import: add [data] and "
                            "train.\n[trainer]\nmodel_name = \"gpt\"\ninit_from = "));
    DL_TRY(put_quoted(out, weights));
    DL_TRY(dl_buf_addf(out,
                       "\n\n[parameters.model]\n# context is the length to train with; the model "
                       "was made for up to %" PRId64 "\n",
                       im->facts.positions));
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        const char *quote = dl_option_string(row, &im->config) ? "\"" : "";
        if (strncmp(row->name, section, skip) != 0) continue;
        if (!dl_config_given(&im->config, row->name)) continue; /* of no use to this model */
        DL_TRY(dl_buf_addf(out, "%s = %s", row->name + skip, quote));
        DL_TRY(dl_option_text(out, row, &im->config));
        DL_TRY(dl_buf_addf(out, "%s\n", quote));
    }
    return DILOCO_OK;
}

static diloco_status write_toml(const importing *im, const char *weights)
{
    dl_buf out;
    char path[4096];
    DL_TRY(path_of(path, im->to, "model.toml"));
    dl_buf_init(&out, CONFIG_MAX);
    diloco_status status = put_toml(&out, im, weights);
    if (!status) status = dl_file_write(path, &(dl_span){out.data, out.len}, 1);
    dl_buf_deinit(&out);
    return status;
}

/* A folder without tokenizer.json is fine: the user may name another file. */
static diloco_status copy_tokenizer(const importing *im)
{
    dl_buf text;
    char from[4096], path[4096];
    DL_TRY(path_of(from, im->folder, "tokenizer.json"));
    DL_TRY(path_of(path, im->to, "tokenizer.json"));
    if (!dl_file_exists(from)) return DILOCO_OK;
    dl_buf_init(&text, TOKENIZER_MAX);
    diloco_status status = dl_file_read(&text, from);
    if (!status) status = dl_file_write(path, &(dl_span){text.data, text.len}, 1);
    dl_buf_deinit(&text);
    return status;
}

/* model.toml is written last, and names the weights by their absolute path, because it may be used
 * from any folder. */
static diloco_status import(importing *im)
{
    char weights[4096], whole[PATH_MAX];
    DL_TRY(path_of(weights, im->to, "model.safetensors"));
    DL_TRY(read_config(im));
    DL_TRY(sketch(im));
    DL_TRY(dl_hf_weights_open(&im->weights, im->folder));
    DL_TRY(gather(im));
    DL_TRY(dl_dir_make(im->to));
    DL_TRY(write_weights(im, weights));
    DL_TRY(copy_tokenizer(im));
    if (!realpath(weights, whole)) return dl_fail_errno(errno, "find", weights);
    return write_toml(im, whole);
}

static diloco_status import_folder(diloco_import_report *out, const char *folder, const char *to)
{
    importing *im = calloc(1, sizeof *im);
    if (!im) return dl_fail(DILOCO_ENOMEM, "out of memory for the settings");
    im->folder = folder;
    im->to = to;
    dl_config_init(&im->config);
    diloco_status status = import(im);
    for (size_t i = 0; i < im->n && !status; i++)
        out->parameters += count_of(&im->tensors[i]);
    out->tensors = im->n;
    out->files = im->weights.n_shards;
    out->positions = (uint64_t)im->facts.positions;
    dl_hf_weights_close(&im->weights);
    dl_model_destroy(im->model);
    free(im->tensors), free(im->spans), free(im->wide);
    free(im);
    return status;
}

diloco_status diloco_import_sized(diloco_import_report *out, size_t size, const char *folder,
                                  const char *to)
{
    diloco_import_report report = {.tensors = 0};
    const diloco_status status = import_folder(&report, folder, to);
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}
