/* prepare_test.c - shards hold what encoding gives, the same whatever was there before; another
 * text or tokenizer never mixes in. */
#include "data/prepare.h"

#include "base/file.h"
#include "check.h"
#include "data/corpus.h"
#include "goldens/bpe_golden.h"
#include "scratch.h"

#include <sys/stat.h>
#include <unistd.h>

static dl_bpe *tokenizer(const char *json)
{
    dl_bpe *bpe;
    CHECK_OK(dl_bpe_read(&bpe, json, strlen(json)));
    return bpe;
}

static char *in(const char *folder, const char *file)
{
    static char paths[4][4096];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, file);
    return path;
}

/* 20 MB in two files, the first of which is cut. */
static const char *texts(void)
{
    static char *folder;
    if (folder) return folder;
    enum { LINES = 700000 };
    static const char line[] = "the ship that sails the sea\n";
    char *big = malloc(LINES * (sizeof line - 1));
    folder = scratch_folder("texts");
    for (size_t i = 0; i < LINES; i++)
        memcpy(big + i * (sizeof line - 1), line, sizeof line - 1);
    CHECK_OK(dl_file_write(in(folder, "a.txt"), &(dl_span){big, LINES * (sizeof line - 1)}, 1));
    CHECK_OK(dl_file_write(in(folder, "b.txt"), &(dl_span){"end", 3}, 1));
    free(big);
    return folder;
}

static diloco_status run(dl_prepared *out, const dl_bpe *bpe, const char *text, const char *to)
{
    const dl_prepare what = {.text = text, .bpe = bpe, .out = to, .n_threads = 2};
    return dl_prepare_run(out, &what);
}

/* All tokens of a folder are those of the texts, with the end token before each. */
static void check_tokens(const dl_bpe *bpe, const char *folder)
{
    dl_corpus corpus;
    dl_bpe_encoder *encoder;
    dl_map map;
    size_t n, m;
    CHECK_OK(dl_map_open(&map, in(texts(), "a.txt")));
    int32_t *expected = malloc((map.len + 8) * sizeof *expected);
    CHECK_OK(dl_bpe_encoder_create(&encoder, bpe));
    expected[0] = 0;
    CHECK_OK(dl_bpe_encode(encoder, expected + 1, &n, (const char *)map.data, 0, map.len, map.len));
    expected[++n] = 0;
    CHECK_OK(dl_bpe_encode(encoder, expected + n + 1, &m, "end", 0, 3, 3));
    n += 1 + m;
    CHECK_OK(dl_corpus_open(&corpus, &dl_source_tokens, folder, "test"));
    CHECK_INT(n, corpus.n);
    CHECK_INT(3, corpus.n_files);
    int32_t *got = malloc(n * sizeof *got);
    dl_corpus_read(&corpus, got, 0, n);
    CHECK_BYTES(expected, got, n * sizeof *got);
    free(got), free(expected);
    dl_corpus_close(&corpus);
    dl_bpe_encoder_destroy(encoder);
    dl_map_close(&map);
}

TEST(shards_hold_the_tokens_of_the_texts)
{
    dl_bpe *bpe = tokenizer(bpe_gpt2);
    dl_prepared report;
    const char *out = scratch_path("whole");
    CHECK_OK(run(&report, bpe, texts(), out));
    CHECK_INT(3, report.shards);
    CHECK_INT(0, report.found);
    check_tokens(bpe, out);
    uint64_t tokens = report.tokens;
    CHECK_OK(run(&report, bpe, texts(), out)); /* nothing is left to do */
    CHECK_INT(3, report.found);
    CHECK_INT(tokens, report.tokens);
    dl_bpe_close(bpe);
}

/* As a kill leaves it: some shards, a half-written one, not yet under its name. */
TEST(a_killed_preparation_resumes)
{
    dl_bpe *bpe = tokenizer(bpe_gpt2);
    dl_prepared report;
    const char *whole = scratch_path("first"), *out = scratch_path("second"),
               *part = scratch_path("second.part");
    CHECK_OK(run(&report, bpe, texts(), whole));
    CHECK_INT(0, rename(whole, part));
    CHECK_INT(0, unlink(in(part, "000001.bin")));
    CHECK_OK(dl_file_write(in(part, "000001.bin.77-1.tmp"), &(dl_span){"x", 1}, 1));
    CHECK_OK(run(&report, bpe, texts(), out));
    CHECK_INT(2, report.found);
    check_tokens(bpe, out);
    CHECK(!dl_file_exists(part));
    CHECK(!dl_file_exists(in(out, "000001.bin.77-1.tmp")));
    dl_bpe_close(bpe);
}

TEST(another_text_or_tokenizer_does_not_mix_in)
{
    dl_bpe *bpe = tokenizer(bpe_gpt2), *other = tokenizer(bpe_cl100k);
    dl_prepared report;
    const char *out = scratch_path("mixed"), *part = scratch_path("begun.part");
    CHECK_OK(run(&report, bpe, in(texts(), "b.txt"), out));
    CHECK_STATUS(DILOCO_EDIFFERS, run(&report, other, in(texts(), "b.txt"), out));
    CHECK_CONTAINS("holds tokens of another text or tokenizer", diloco_error_text());
    CHECK_STATUS(DILOCO_EDIFFERS, run(&report, bpe, texts(), out));
    CHECK_INT(0, rename(out, part));
    CHECK_STATUS(DILOCO_EDIFFERS, run(&report, other, in(texts(), "b.txt"), scratch_path("begun")));
    CHECK_STATUS(DILOCO_EDIFFERS, run(&report, bpe, texts(), texts()));
    CHECK_CONTAINS("did not write it", diloco_error_text());
    dl_bpe_close(bpe), dl_bpe_close(other);
}

/* Beginning, end and length stay the same. */
TEST(a_text_that_differs_in_the_middle_does_not_mix_in)
{
    enum { LEN = 3 << 20 };
    dl_bpe *bpe = tokenizer(bpe_gpt2);
    dl_prepared report;
    char *text = malloc(LEN);
    const char *path = scratch_path("edited.txt"), *out = scratch_path("edited");
    for (size_t i = 0; i < LEN; i++)
        text[i] = "the ship "[i % 9];
    CHECK_OK(dl_file_write(path, &(dl_span){text, LEN}, 1));
    CHECK_OK(run(&report, bpe, path, out));
    text[LEN / 2] = 'q';
    CHECK_OK(dl_file_write(path, &(dl_span){text, LEN}, 1));
    CHECK_STATUS(DILOCO_EDIFFERS, run(&report, bpe, path, out));
    CHECK_CONTAINS("holds tokens of another text", diloco_error_text());
    free(text);
    dl_bpe_close(bpe);
}

TEST(a_folder_that_no_list_can_name_is_refused)
{
    dl_bpe *bpe = tokenizer(bpe_gpt2);
    dl_prepared report;
    CHECK_STATUS(DILOCO_EINVAL, run(&report, bpe, texts(), scratch_path("one,two")));
    CHECK_CONTAINS("one,two: a list of paths has commas", diloco_error_text());
    CHECK_OK(dl_dir_make(scratch_path("a, b")));
    CHECK(!chdir(scratch_path("a, b"))); /* the folder's own name is what counts */
    CHECK_OK(run(&report, bpe, in(texts(), "b.txt"), "shards"));
    CHECK_OK(run(&report, bpe, in(texts(), "b.txt"), "shards"));
    CHECK_INT(1, report.found);
    dl_bpe_close(bpe);
}

TEST(no_text_is_refused)
{
    dl_bpe *bpe = tokenizer(bpe_gpt2);
    dl_prepared report;
    CHECK_STATUS(DILOCO_EINVAL, run(&report, bpe, "", scratch_path("none")));
    CHECK_STATUS(DILOCO_ENOENT, run(&report, bpe, "/no-such-text", scratch_path("none")));
    CHECK(!dl_file_exists(scratch_path("none.part")));
    dl_bpe_close(bpe);
}

TEST_MAIN(shards_hold_the_tokens_of_the_texts, a_folder_that_no_list_can_name_is_refused,
          a_text_that_differs_in_the_middle_does_not_mix_in, a_killed_preparation_resumes,
          another_text_or_tokenizer_does_not_mix_in, no_text_is_refused)
