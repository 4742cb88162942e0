/* bpe_test.c - tokens are those of Hugging Face's tokenizers (tests/goldens/bpe.py), and learned
 * vocabularies those of its trainer. Ranks and merges give the same. A file that would give other
 * tokens is refused by name. tests/hf/tokens.py does the same with the libraries themselves. */
#include "data/bpe.h"

#include "check.h"
#include "goldens/bpe_golden.h"
#include "scratch.h"

static const char *const jsons[DL_N_WORD_RULES] = {bpe_gpt2, bpe_cl100k};
enum { N_GOLDENS = sizeof bpe_goldens / sizeof bpe_goldens[0] };

static dl_bpe *read_text(const char *text)
{
    dl_bpe *bpe;
    CHECK_OK(dl_bpe_read(&bpe, text, strlen(text)));
    return bpe;
}

static void check_golden(const bpe_golden *g, int how, dl_bpe_encoder *encoder)
{
    int32_t *tokens = malloc((g->len + 1) * sizeof *tokens);
    size_t n;
    CHECK_OK(dl_bpe_encode(encoder, tokens, &n, g->text, 0, g->len, g->len));
    CHECK_INT(g->n[how], n);
    for (size_t i = 0; i < n; i++)
        CHECK_INT(g->tokens[how][i], tokens[i]);
    free(tokens);
}

static void check_goldens(const dl_bpe *bpe, int how)
{
    dl_bpe_encoder *encoder;
    CHECK_OK(dl_bpe_encoder_create(&encoder, bpe));
    for (int again = 0; again < 2; again++) /* words met before, too */
        for (size_t i = 0; i < N_GOLDENS; i++)
            check_golden(&bpe_goldens[i], how, encoder);
    dl_bpe_encoder_destroy(encoder);
}

TEST(tokens_are_those_of_hugging_face)
{
    for (int how = 0; how < DL_N_WORD_RULES; how++) {
        dl_bpe *bpe = read_text(jsons[how]);
        CHECK_INT(BPE_VOCAB, dl_bpe_n(bpe));
        CHECK_INT(0, dl_bpe_end_token(bpe));
        CHECK(dl_bpe_may_cut(bpe));
        check_goldens(bpe, how);
        dl_bpe_close(bpe);
    }
}

TEST(tokens_give_their_text_back)
{
    dl_bpe *bpe = read_text(bpe_cl100k);
    for (size_t i = 0; i < N_GOLDENS; i++) {
        const bpe_golden *g = &bpe_goldens[i];
        size_t at = 0;
        for (size_t k = 0; k < g->n[1]; k++) {
            size_t len;
            const char *text = dl_bpe_token(bpe, g->tokens[1][k], &len);
            CHECK_BYTES(g->text + at, text, len);
            at += len;
        }
        CHECK_INT(g->len, at);
    }
    dl_bpe_close(bpe);
}

TEST(learned_merges_equal_those_of_hugging_face)
{
    const dl_text text = {bpe_text, BPE_TEXT};
    for (int how = 0; how < DL_N_WORD_RULES; how++) {
        dl_buf json;
        dl_bpe_trained report;
        dl_buf_init(&json, 1 << 20);
        CHECK_OK(dl_bpe_train(&json, &report, &text, 1, (dl_word_rule)how, BPE_VOCAB));
        CHECK_INT(BPE_VOCAB, report.vocab);
        dl_bpe *bpe = read_text(dl_buf_str(&json));
        check_goldens(bpe, how);
        dl_bpe_close(bpe);
        dl_buf_deinit(&json);
    }
}

TEST(learning_ends_where_no_pair_comes_twice)
{
    const dl_text texts[] = {{"ab ab", 5}, {"", 0}};
    dl_buf json;
    dl_bpe_trained report;
    dl_buf_init(&json, 1 << 20);
    CHECK_OK(dl_bpe_train(&json, &report, texts, 2, DL_WORD_RULE_GPT2, 1000));
    CHECK_INT(258, report.vocab); /* "ab" */
    CHECK_INT(2, report.words);
    CHECK_INT(2, report.distinct);
    CHECK_STATUS(DILOCO_EINVAL, dl_bpe_train(&json, &report, texts, 1, DL_WORD_RULE_GPT2, 256));
    CHECK_CONTAINS("give 257 to", diloco_error_text());
    dl_buf_deinit(&json);
}

/* Cut at a border, text gives the tokens of the whole. */
TEST(parts_of_a_text_give_the_tokens_of_the_whole)
{
    dl_bpe *bpe = read_text(bpe_cl100k);
    dl_bpe_encoder *encoder;
    static const char text[] = "the sea\nand  \n\nthe wind\n sails\n";
    int32_t whole[sizeof text], parts[sizeof text];
    size_t len = sizeof text - 1, n, m = 0, begin = 0;
    CHECK_OK(dl_bpe_encoder_create(&encoder, bpe));
    CHECK_OK(dl_bpe_encode(encoder, whole, &n, text, 0, len, len));
    for (size_t at = 1; at <= len; at++) {
        size_t more;
        if (at < len && !dl_word_border(text, at)) continue;
        CHECK_OK(dl_bpe_encode(encoder, parts + m, &more, text, begin, at, len));
        m += more;
        begin = at;
    }
    CHECK_INT(n, m);
    CHECK_BYTES(whole, parts, n * sizeof *whole);
    dl_bpe_encoder_destroy(encoder);
    dl_bpe_close(bpe);
}

/* ---- ranks */

/* base64 of up to 3 bytes. */
static void put_rank(dl_buf *out, const char *bytes, size_t len, int rank)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    char text[5] = "====";
    for (size_t i = 0; i < 3; i++)
        bits = bits << 8 | (i < len ? (unsigned char)bytes[i] : 0);
    for (size_t i = 0; i <= len; i++)
        text[i] = letters[bits >> (18 - 6 * i) & 63];
    CHECK_OK(dl_buf_addf(out, "%s %d\n", text, rank));
}

static void put_bytes(dl_buf *out)
{
    dl_buf_init(out, 1 << 16);
    for (int i = 0; i < 256; i++)
        put_rank(out, &(char){(char)i}, 1, i);
}

TEST(ranks_merge_by_their_numbers)
{
    dl_buf text;
    dl_bpe *bpe;
    dl_bpe_encoder *encoder;
    int32_t tokens[16];
    size_t n;
    put_bytes(&text);
    put_rank(&text, "bc", 2, 256);
    put_rank(&text, "ab", 2, 257);
    put_rank(&text, "abc", 3, 258);
    CHECK_OK(dl_bpe_read(&bpe, text.data, text.len));
    CHECK_INT(259, dl_bpe_n(bpe));
    CHECK_INT(-1, dl_bpe_end_token(bpe));
    CHECK_OK(dl_bpe_encoder_create(&encoder, bpe));
    CHECK_OK(dl_bpe_encode(encoder, tokens, &n, "abcd", 0, 4, 4));
    CHECK_INT(2, n); /* a bc d, then abc d */
    CHECK(tokens[0] == 258 && tokens[1] == 'd');
    CHECK_OK(dl_bpe_encode(encoder, tokens, &n, "abab", 0, 4, 4));
    CHECK(n == 2 && tokens[0] == 257 && tokens[1] == 257);
    dl_bpe_encoder_destroy(encoder);
    dl_bpe_close(bpe);
    dl_buf_deinit(&text);
}

/* ---- refusals */

static void refused(diloco_status status, const char *part, const char *text)
{
    dl_bpe *bpe;
    CHECK_STATUS(status, dl_bpe_read(&bpe, text, strlen(text)));
    CHECK(bpe == NULL);
    CHECK_CONTAINS(part, diloco_error_text());
}

/* The golden file with one piece of it another. */
static char *with(const char *from, const char *to)
{
    const char *at = strstr(bpe_gpt2, from);
    CHECK(at != NULL);
    size_t before = (size_t)(at - bpe_gpt2);
    char *text = malloc(sizeof bpe_gpt2 + strlen(to));
    memcpy(text, bpe_gpt2, before);
    strcpy(text + before, to);
    strcat(text, at + strlen(from));
    return text;
}

TEST(a_tokenizer_that_would_give_other_tokens_is_refused_by_name)
{
    static const struct {
        const char *from, *to, *says;
        diloco_status status;
    } rows[] = {
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", "a normalizer",
         DILOCO_EREFUSED},
        {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "a model.type other than BPE",
         DILOCO_EREFUSED},
        {"\"unk_token\":null", "\"unk_token\":\"a\"", "model.unk_token", DILOCO_EREFUSED},
        {"\"dropout\":null", "\"dropout\":0.1", "model.dropout", DILOCO_EREFUSED},
        {"\"byte_fallback\":false", "\"byte_fallback\":true", "model.byte_fallback",
         DILOCO_EREFUSED},
        {"\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space",
         DILOCO_EREFUSED},
        {"\"type\":\"ByteLevel\"", "\"type\":\"Whitespace\"", "a pre_tokenizer other than",
         DILOCO_EREFUSED},
        {"\"use_regex\":true", "\"use_regex\":false", "does not cut words", DILOCO_EREFUSED},
        {"\"lstrip\":false", "\"lstrip\":true", "the added token <|endoftext|> has lstrip",
         DILOCO_EREFUSED},
        {"\"id\":0", "\"id\":4194304", "", DILOCO_EPROTO},
        {"\"id\":0", "\"id\":-1", "", DILOCO_EPROTO},
        {"\"id\":0", "\"id\":7", "token 7 is not <|endoftext|> in the vocabulary", DILOCO_EPROTO},
        {"\"!\":1,", "", "byte 33 has no token", DILOCO_EREFUSED},
        {"\"!\":1,", "\"!\":2,", "token 2 occurs twice", DILOCO_EPROTO},
        {"\"merges\":[", "\"merges\":[\"x\",", "merge 0: it is not a pair", DILOCO_EPROTO},
        {"\"merges\":[", "\"merges\":[\"q q\",", "are not in the vocabulary", DILOCO_EPROTO},
        {"\"merges\":[", "\"merges\":[7,", "merge 0: it is not a string", DILOCO_EPROTO},
        {"\"vocab\":{", "\"vocab\":[{", "", DILOCO_EPROTO},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = with(rows[i].from, rows[i].to);
        refused(rows[i].status, rows[i].says, text);
        free(text);
    }
    refused(DILOCO_EPROTO, "\"model\" is not an object", "{}");
}

/* ---- its parts */

TEST(merges_come_in_their_order)
{
    dl_buf text;
    dl_bpe *bpe;
    dl_bpe_merge *merges;
    size_t n;
    put_bytes(&text);
    put_rank(&text, "bc", 2, 256);
    put_rank(&text, "ab", 2, 257);
    put_rank(&text, "abc", 3, 258);
    CHECK_OK(dl_bpe_read(&bpe, text.data, text.len));
    CHECK_OK(dl_bpe_merges(&merges, &n, bpe));
    CHECK_INT(4, n);
    CHECK(merges[0].left == 'b' && merges[0].right == 'c');
    CHECK(merges[1].left == 'a' && merges[1].right == 'b');
    CHECK(merges[2].left == 'a' && merges[2].right == 256 && merges[2].rank == 258);
    CHECK(merges[3].left == 257 && merges[3].right == 'c' && merges[3].rank == 258);
    free(merges);
    dl_bpe_close(bpe);
    dl_buf_deinit(&text);
    bpe = read_text(bpe_gpt2);
    CHECK_OK(dl_bpe_merges(&merges, &n, bpe));
    CHECK_INT(BPE_VOCAB - 257, n); /* each makes the next token */
    for (size_t i = 0; i < n; i++) {
        size_t left, right, both;
        const char *x = dl_bpe_token(bpe, merges[i].left, &left),
                   *y = dl_bpe_token(bpe, merges[i].right, &right),
                   *xy = dl_bpe_token(bpe, (int32_t)(257 + i), &both);
        CHECK_INT(i, merges[i].rank);
        CHECK_INT(both, left + right);
        CHECK_BYTES(x, xy, left);
        CHECK_BYTES(y, xy + left, right);
    }
    free(merges);
    dl_bpe_close(bpe);
}

TEST(tokens_are_bytes_or_added_or_special_or_none)
{
    char *text = with("\"added_tokens\":[", "\"added_tokens\":[{\"id\":302,\"content\":\"<x>\","
                                            "\"special\":false},");
    dl_bpe *bpe = read_text(text);
    CHECK_INT(303, dl_bpe_n(bpe));
    CHECK(dl_bpe_kind_of(bpe, 0) == DL_BPE_SPECIAL);
    CHECK(dl_bpe_kind_of(bpe, 1) == DL_BPE_BYTES && dl_bpe_kind_of(bpe, 299) == DL_BPE_BYTES);
    CHECK(dl_bpe_kind_of(bpe, 300) == DL_BPE_NONE && dl_bpe_kind_of(bpe, 301) == DL_BPE_NONE);
    CHECK(dl_bpe_kind_of(bpe, 302) == DL_BPE_ADDED);
    CHECK(dl_bpe_word_rule(bpe) == DL_WORD_RULE_GPT2 && !dl_bpe_whole_words(bpe));
    dl_bpe_close(bpe);
    free(text);
}

/* As Llama 3's file says it, and GPT-2's, whose template has no token. */
TEST(a_template_names_the_token_before_a_text)
{
    static const struct {
        const char *post;
        int32_t token;
    } rows[] = {
        {"null", -1},
        {"{\"type\":\"ByteLevel\",\"trim_offsets\":false}", -1},
        {"{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
         "{\"SpecialToken\":{\"id\":\"<|endoftext|>\"}}]}",
         -1},
        {"{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
         "\"<|endoftext|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\"}}]}",
         0},
        {"{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
         "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
         "\"<|endoftext|>\"}}]}]}",
         0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char post[400];
        snprintf(post, sizeof post, "\"post_processor\":%s", rows[i].post);
        char *text = with("\"post_processor\":null", post);
        dl_bpe *bpe = read_text(text);
        CHECK_INT(rows[i].token, dl_bpe_begin_token(bpe));
        dl_bpe_close(bpe);
        free(text);
    }
}

TEST(damaged_ranks_are_refused)
{
    dl_buf text;
    put_bytes(&text);
    put_rank(&text, "ab", 2, 300);
    refused(DILOCO_EPROTO, "line 257 has rank 300", dl_buf_str(&text));
    refused(DILOCO_EREFUSED, "byte 0 has no token", "YQ== 0\n");
    refused(DILOCO_EPROTO, "line 1 is not base64 and a number", "YQ= 0\n");
    refused(DILOCO_EPROTO, "line 1 is not base64 and a number", "YQ==\n");
    refused(DILOCO_EPROTO, "line 2 is not base64 and a number", "YQ== 0\n\n");
    dl_buf_deinit(&text);
}

/* Writes a token of 3 n + m bytes, m 1 or 2, that are all zero. */
static void put_zeros(dl_buf *out, size_t n, size_t m, int rank)
{
    for (size_t i = 0; i < n; i++)
        CHECK_OK(dl_buf_add(out, "AAAA", 4));
    CHECK_OK(dl_buf_addf(out, "%s %d\n", m == 1 ? "AA==" : "AAA=", rank));
}

/* The time to find the pairs of a token grows with the square of its bytes. */
TEST(ranks_with_a_token_of_more_than_256_bytes_are_refused_by_line)
{
    dl_buf text;
    dl_bpe *bpe;
    put_bytes(&text);
    put_zeros(&text, 85, 1, 256);
    CHECK_OK(dl_bpe_read(&bpe, text.data, text.len));
    dl_bpe_close(bpe);
    put_zeros(&text, 85, 2, 257);
    refused(DILOCO_EREFUSED, "line 258 is a token of 257 bytes", dl_buf_str(&text));
    dl_buf_deinit(&text);
}

TEST(a_file_is_named_in_its_errors)
{
    dl_bpe *bpe;
    CHECK_STATUS(DILOCO_ENOENT, dl_bpe_open(&bpe, "/no-such-tokenizer"));
    CHECK_STATUS(DILOCO_EPROTO, dl_bpe_open(&bpe, scratch_write("bad.json", "{", 1)));
    CHECK_CONTAINS("bad.json", diloco_error_text());
}

/* One word of a hundred thousand bytes takes no time to speak of. */
TEST(a_long_word_is_encoded)
{
    enum { LONG = 100000 };
    dl_bpe *bpe = read_text(bpe_gpt2);
    dl_bpe_encoder *encoder;
    char *text = malloc(LONG);
    int32_t *tokens = malloc(LONG * sizeof *tokens);
    size_t n, bytes = 0;
    for (size_t i = 0; i < LONG; i++)
        text[i] = "thesea"[i % 6];
    CHECK_OK(dl_bpe_encoder_create(&encoder, bpe));
    CHECK_OK(dl_bpe_encode(encoder, tokens, &n, text, 0, LONG, LONG));
    for (size_t i = 0; i < n; i++) {
        size_t len;
        dl_bpe_token(bpe, tokens[i], &len);
        bytes += len;
    }
    CHECK_INT(LONG, bytes);
    CHECK(n < LONG);
    dl_bpe_encoder_destroy(encoder);
    dl_bpe_close(bpe);
    free(text), free(tokens);
}

TEST_MAIN(tokens_are_those_of_hugging_face, tokens_give_their_text_back,
          learned_merges_equal_those_of_hugging_face, learning_ends_where_no_pair_comes_twice,
          parts_of_a_text_give_the_tokens_of_the_whole, ranks_merge_by_their_numbers,
          a_tokenizer_that_would_give_other_tokens_is_refused_by_name, merges_come_in_their_order,
          tokens_are_bytes_or_added_or_special_or_none, a_template_names_the_token_before_a_text,
          damaged_ranks_are_refused, ranks_with_a_token_of_more_than_256_bytes_are_refused_by_line,
          a_file_is_named_in_its_errors, a_long_word_is_encoded)
