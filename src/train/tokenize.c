/* tokenize.c - learns tokenizers and encodes texts, for include/diloco/train.h. The work is done by
 * data/bpe_train.c and data/prepare.c; a report is set after an error, too. */
#include "base/file.h"
#include "base/sized.h"
#include "base/thread.h"
#include "data/corpus.h"
#include "data/prepare.h"
#include <diloco/train.h>

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 256 << 20 }; /* bytes of tokenizer.json, as many as data/bpe_read.c reads */

static diloco_status find_words(dl_word_rule *out, const char *name)
{
    static const char *const names[DL_N_WORD_RULES] = {"gpt2", "cl100k"};
    for (int i = 0; i < DL_N_WORD_RULES; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (dl_word_rule)i;
            return DILOCO_OK;
        }
    return dl_fail(DILOCO_EINVAL,
                   "%.60s is not a rule for splitting text into words: take gpt2 or cl100k", name);
}

/* Each file is a text of its own, so that no word crosses the border between two files. */
static diloco_status learn(dl_buf *out, diloco_tokenizer_report *report, const dl_corpus *corpus,
                           dl_word_rule how, uint32_t vocab)
{
    dl_bpe_trained trained;
    dl_text *texts = calloc(corpus->n_files, sizeof *texts);
    if (!texts) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu texts", corpus->n_files);
    for (size_t i = 0; i < corpus->n_files; i++)
        texts[i] = (dl_text){(const char *)corpus->files[i].map.data, corpus->files[i].map.len};
    diloco_status status = dl_bpe_train(out, &trained, texts, corpus->n_files, how,
                                        vocab > INT32_MAX ? INT32_MAX : (int32_t)vocab);
    *report = (diloco_tokenizer_report){corpus->n, trained.words, trained.distinct,
                                        (uint32_t)trained.vocab};
    free(texts);
    return status;
}

diloco_status diloco_tokenizer_train_sized(diloco_tokenizer_report *out, size_t size,
                                           const char *text, const char *words, uint32_t vocab,
                                           const char *to)
{
    diloco_tokenizer_report report = {.bytes = 0};
    dl_word_rule how = DL_WORD_RULE_GPT2;
    dl_corpus corpus;
    dl_buf json;
    dl_sized_out(out, size, &report, sizeof report);
    DL_TRY(find_words(&how, words));
    DL_TRY(dl_corpus_open(&corpus, &dl_source_text, text, "the text"));
    dl_buf_init(&json, FILE_MAX);
    diloco_status status = learn(&json, &report, &corpus, how, vocab);
    if (!status) status = dl_file_write(to, &(dl_span){json.data, json.len}, 1);
    dl_buf_deinit(&json);
    dl_corpus_close(&corpus);
    dl_sized_out(out, size, &report, sizeof report);
    return status;
}

diloco_status diloco_data_prepare_sized(diloco_prepare_report *out, size_t size, const char *text,
                                        const char *tokenizer, const char *to, int n_threads,
                                        diloco_prepare_fn on_progress, void *user)
{
    diloco_prepare_report report = {.bytes = 0};
    dl_bpe *bpe;
    dl_prepared done;
    dl_sized_out(out, size, &report, sizeof report);
    DL_TRY(dl_bpe_open(&bpe, tokenizer));
    const dl_prepare what = {.text = text,
                             .bpe = bpe,
                             .out = to,
                             .n_threads = n_threads > 0 ? n_threads : dl_cores(),
                             .on_progress = on_progress,
                             .user = user};
    diloco_status status = dl_prepare_run(&done, &what);
    report = (diloco_prepare_report){done.bytes, done.tokens, done.shards, done.found,
                                     (uint32_t)dl_bpe_n(bpe)};
    dl_sized_out(out, size, &report, sizeof report);
    dl_bpe_close(bpe);
    return status;
}
