/* export_hf.c - a folder that transformers loads: config.json, generation_config.json,
 * model.safetensors, and the tokenizer where the run has one of byte pairs. The tensors have
 * Hugging Face's names already. config.json is written last: a folder with one is whole. */
#include "interop/export.h"
#include "model/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 256 << 20 }; /* bytes of tokenizer.json; as many as import.c reads */

static diloco_status write_texts(const dl_export *e, dl_buf *text, int32_t end_token)
{
    DL_TRY(dl_hf_generation_write(text, end_token));
    DL_TRY(dl_export_text(e, "generation_config.json", text));
    dl_buf_clear(text);
    DL_TRY(dl_hf_config_write(text, e->config, e->dtype, end_token));
    return dl_export_text(e, "config.json", text);
}

/* ---- the tokenizer */

/* Copies a tokenizer.json as it is, and names the class that reads it in tokenizer_config.json. The
 * first byte shows the kind: a file of ranks (tiktoken) is no JSON and is not copied. */
static diloco_status copy_tokenizer(const dl_export *e, const dl_bpe *bpe, dl_buf *text)
{
    int32_t end_token = dl_bpe_end_token(bpe);
    size_t len = 0;
    const char *end = end_token < 0 ? NULL : dl_bpe_token(bpe, end_token, &len);
    dl_json j;
    DL_TRY(dl_file_read(text, e->config->tokenizer_path));
    if (text->len == 0 || text->data[0] != '{') return DILOCO_OK;
    DL_TRY(dl_export_text(e, "tokenizer.json", text));
    dl_buf_clear(text);
    dl_json_init(&j, text);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "tokenizer_class", "PreTrainedTokenizerFast");
    if (end) dl_json_strn(&j, "eos_token", end, len);
    dl_json_end(&j);
    DL_TRY(dl_json_done(&j));
    return dl_export_text(e, "tokenizer_config.json", text);
}

/* *end_token: the token that ends a text, or -1. `text` is empty afterwards. */
static diloco_status write_tokenizer(const dl_export *e, dl_buf *text, int32_t *end_token)
{
    dl_bpe *bpe;
    *end_token = -1;
    DL_TRY(dl_export_tokenizer(&bpe, e));
    if (!bpe) return DILOCO_OK;
    diloco_status status = copy_tokenizer(e, bpe, text);
    *end_token = dl_bpe_end_token(bpe);
    dl_bpe_close(bpe);
    dl_buf_clear(text);
    return status;
}

static diloco_status write_folder(const dl_export *e)
{
    dl_buf text;
    int32_t end_token;
    DL_TRY(dl_dir_make(e->to));
    dl_buf_init(&text, TEXT_MAX);
    diloco_status status = write_tokenizer(e, &text, &end_token);
    if (!status) status = dl_export_weights(e, "model.safetensors");
    if (!status) status = write_texts(e, &text, end_token);
    dl_buf_deinit(&text);
    return status;
}

const dl_export_format dl_export_hf = {"hf", true, false, false, write_folder};
