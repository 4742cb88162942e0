/* tokens_test.c - llm.c's token shards: read as written, and refused when they are not. */
#include "data/corpus.h"

#include "check.h"
#include "scratch.h"

enum { HEADER = 1024, MAX = 8 };

typedef struct shard {
    unsigned char bytes[HEADER + 2 * MAX];
    size_t len;
} shard;

static void put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static shard make_shard(uint32_t magic, uint32_t version, uint32_t says, const uint16_t *tokens,
                        size_t n)
{
    shard s = {.len = HEADER + 2 * n};
    put_u32(s.bytes, magic), put_u32(s.bytes + 4, version), put_u32(s.bytes + 8, says);
    for (size_t i = 0; i < n; i++) {
        s.bytes[HEADER + 2 * i] = (unsigned char)tokens[i];
        s.bytes[HEADER + 2 * i + 1] = (unsigned char)(tokens[i] >> 8);
    }
    return s;
}

static diloco_status open_tokens(dl_corpus *corpus, const char *path)
{
    return dl_corpus_open(corpus, &dl_source_tokens, path, "data.train_path");
}

static void check_refused(const char *name, const void *bytes, size_t len, const char *part)
{
    dl_corpus corpus;
    CHECK_STATUS(DILOCO_EPROTO, open_tokens(&corpus, scratch_write(name, bytes, len)));
    CHECK_CONTAINS(name, diloco_error_text());
    CHECK_CONTAINS(part, diloco_error_text());
}

static const uint16_t some[] = {50256, 7, 0, 65535, 300};

TEST(tokens_come_as_written_across_files)
{
    scratch_folder("shards");
    shard a = make_shard(20240520, 1, 3, some, 3), b = make_shard(20240520, 1, 2, some + 3, 2);
    scratch_write("shards/train_0.bin", a.bytes, a.len);
    scratch_write("shards/train_1.bin", b.bytes, b.len);
    scratch_write("shards/notes.txt", "not taken", 9);
    dl_corpus corpus;
    CHECK_OK(open_tokens(&corpus, scratch_path("shards")));
    CHECK_INT(5, corpus.n);
    int32_t tokens[5];
    dl_corpus_read(&corpus, tokens, 0, 5);
    for (size_t i = 0; i < 5; i++)
        CHECK_INT(some[i], tokens[i]);
    dl_corpus_read(&corpus, tokens, 2, 2);
    CHECK(tokens[0] == 0 && tokens[1] == 65535);
    dl_corpus_close(&corpus);
}

TEST(the_largest_token_is_found_and_held_against_the_vocabulary)
{
    shard s = make_shard(20240520, 1, 3, some, 3);
    dl_corpus corpus;
    CHECK_OK(open_tokens(&corpus, scratch_write("vocab.bin", s.bytes, s.len)));
    int32_t largest = 0;
    CHECK_OK(dl_corpus_check_vocab(&corpus, 50257, &largest));
    CHECK_INT(50256, largest);
    CHECK_STATUS(DILOCO_EINVAL, dl_corpus_check_vocab(&corpus, 50256, &largest));
    CHECK_CONTAINS("vocab.bin", diloco_error_text());
    CHECK_CONTAINS("50257", diloco_error_text());
    dl_corpus_close(&corpus);
}

TEST(a_shard_cut_at_any_byte_is_refused)
{
    shard s = make_shard(20240520, 1, 5, some, 5);
    for (size_t len = 0; len < s.len; len++) {
        check_refused("cut.bin", s.bytes, len, len < HEADER ? "header" : "damaged");
    }
}

TEST(bytes_after_the_tokens_are_refused)
{
    shard s = make_shard(20240520, 1, 5, some, 5);
    check_refused("longer.bin", s.bytes, s.len + 1, "damaged");
    check_refused("longer.bin", s.bytes, s.len + 2, "damaged");
}

TEST(another_format_is_refused)
{
    shard s = make_shard(20240801, 1, 5, some, 5); /* llm.c's llama 3 shards */
    check_refused("magic.bin", s.bytes, s.len, "magic");
    s = make_shard(20240520, 7, 5, some, 5);
    check_refused("version.bin", s.bytes, s.len, "version 7");
}

TEST(wrong_counts_are_refused)
{
    const uint32_t lies[] = {0, 4, 6, 0x7fffffff, 0x80000000, 0x80000005, 0xffffffff};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        shard s = make_shard(20240520, 1, lies[i], some, 5);
        check_refused("lie.bin", s.bytes, s.len, "damaged");
    }
}

TEST(a_shard_of_no_tokens_is_no_data)
{
    shard s = make_shard(20240520, 1, 0, some, 0);
    dl_corpus corpus;
    CHECK_STATUS(DILOCO_EINVAL, open_tokens(&corpus, scratch_write("none.bin", s.bytes, s.len)));
    CHECK_CONTAINS("no data", diloco_error_text());
}

TEST_MAIN(tokens_come_as_written_across_files,
          the_largest_token_is_found_and_held_against_the_vocabulary,
          a_shard_cut_at_any_byte_is_refused, bytes_after_the_tokens_are_refused,
          another_format_is_refused, wrong_counts_are_refused, a_shard_of_no_tokens_is_no_data)
