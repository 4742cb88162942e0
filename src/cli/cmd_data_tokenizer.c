/* cmd_data_tokenizer.c - a byte-pair tokenizer from text.
 *
 * diloco_tokenizer_train merges the most frequent pair of tokens until the vocabulary has its size.
 * The result is a tokenizer.json, which Hugging Face's libraries read as well. */
#include "cli/cli.h"
#include "cli/display/units.h"
#include <diloco/train.h>

/* Print one object. `vocab` is the size that was reached, which may be less than --vocab. */
static diloco_status print_json(const diloco_tokenizer_report *r, const char *path)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_str(&json, "path", path);
    dl_json_u64(&json, "vocab", r->vocab);
    dl_json_u64(&json, "bytes", r->bytes);
    dl_json_u64(&json, "words", r->words);
    dl_json_u64(&json, "distinct_words", r->distinct_words);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* Fewer tokens than asked for are no error: a short text has no more pairs that occur twice. The
 * bounds of --vocab are those of diloco_tokenizer_train. */
static diloco_status cmd_data_tokenizer(const dl_args *args)
{
    diloco_tokenizer_report r;
    uint64_t vocab;
    dl_unit_text tokens, words;
    const char *text = args->flags[DL_FLAG_TEXT], *path = args->flags[DL_FLAG_TO_PATH],
               *cut = args->flags[DL_FLAG_WORDS] ? args->flags[DL_FLAG_WORDS] : "cl100k";
    if (!text || !path)
        return dl_fail(DILOCO_EINVAL, "data tokenizer needs --text LIST and --out FILE");
    DL_TRY(dl_args_u64(&vocab, args, DL_FLAG_VOCAB, 8192, UINT32_MAX));
    DL_TRY(diloco_tokenizer_train(&r, text, cut, (uint32_t)vocab, path));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&r, path);
    printf("%s tokens from %s different words in %s\n", dl_count_text(tokens, r.vocab),
           dl_count_text(words, r.distinct_words), path);
    if (r.vocab < vocab) printf("no more: every other pair of tokens occurs only once\n");
    return DILOCO_OK;
}

const dl_command dl_command_data_tokenizer = {
    .name = "data tokenizer",
    .summary = "learn a byte-pair tokenizer from text",
    .details = "  diloco data tokenizer --text books/ --vocab 4096 --out tokenizer.json",
    .flags = DL_FLAGS(DL_FLAG_TEXT, DL_FLAG_VOCAB, DL_FLAG_WORDS, DL_FLAG_TO_PATH, DL_FLAG_JSON),
    .run = cmd_data_tokenizer,
};
