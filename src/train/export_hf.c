/* export_hf.c - a folder that transformers loads: config.json, generation_config.json,
 * model.safetensors. The tensors have Hugging Face's names already. config.json is written last: a
 * folder with one is whole. */
#include "model/hf.h"
#include "train/export.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEXT_MAX = 1 << 20 };

static diloco_status path_of(char out[4096], const dl_export *e, const char *file)
{
    int len = snprintf(out, 4096, "%s/%s", e->to, file);
    if (len >= 0 && len < 4096) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s/%s: the path is too long", e->to, file);
}

static diloco_status write_text(const dl_export *e, const char *file, const dl_buf *text)
{
    char path[4096];
    DL_TRY(path_of(path, e, file));
    return dl_file_write(path, &(dl_span){text->data, text->len}, 1);
}

static diloco_status write_weights(const dl_export *e)
{
    static const dl_st_meta meta = {"format", "pt"}; /* transformers asks for it */
    char path[4096];
    dl_buf header;
    DL_TRY(path_of(path, e, "model.safetensors"));
    dl_span *spans = calloc(e->n + 1, sizeof *spans);
    if (!spans) return dl_fail(DILOCO_ENOMEM, "no memory for %zu tensors", e->n);
    for (size_t i = 0; i < e->n; i++)
        spans[1 + i] = e->data[i];
    dl_buf_init(&header, DL_ST_HEADER_MAX);
    diloco_status status = dl_st_write(path, &header, spans, e->tensors, e->n, &meta, 1);
    dl_buf_deinit(&header);
    free(spans);
    return status;
}

static diloco_status write_texts(const dl_export *e, dl_buf *text)
{
    DL_TRY(dl_hf_generation_write(text, -1));
    DL_TRY(write_text(e, "generation_config.json", text));
    dl_buf_clear(text);
    DL_TRY(dl_hf_config_write(text, e->config, e->dtype, -1));
    return write_text(e, "config.json", text);
}

static diloco_status write_folder(const dl_export *e)
{
    dl_buf text;
    DL_TRY(dl_dir_make(e->to));
    DL_TRY(write_weights(e));
    dl_buf_init(&text, TEXT_MAX);
    diloco_status status = write_texts(e, &text);
    dl_buf_deinit(&text);
    return status;
}

const dl_export_format dl_export_hf = {"hf", true, false, false, write_folder};
