/* words_test.c - the two ways of cutting text, case by case; the whole of it on the corners of
 * Unicode is in bpe_test.c, against Hugging Face's. */
#include "data/words.h"

#include "check.h"

/* The text cut and put together again with | between. */
static const char *cut(dl_word_rule how, const char *text)
{
    static char out[256];
    size_t len = strlen(text), n = 0;
    for (size_t at = 0, word; at < len; at += word) {
        word = dl_word(how, text, len, at);
        CHECK(word > 0 && word <= len - at);
        if (at) out[n++] = '|';
        memcpy(out + n, text + at, word);
        n += word;
    }
    out[n] = '\0';
    return out;
}

TEST(gpt2_cuts_letters_numbers_and_signs)
{
    CHECK_STR("I|'ll| see| 1234|x|!!?", cut(DL_WORD_RULE_GPT2, "I'll see 1234x!!?"));
    CHECK_STR("a| | b|\t|c", cut(DL_WORD_RULE_GPT2, "a  b\tc"));
    CHECK_STR("a|\n|\n|b|  ", cut(DL_WORD_RULE_GPT2, "a\n\nb  "));
    CHECK_STR("DON|'|T", cut(DL_WORD_RULE_GPT2, "DON'T"));
    CHECK_STR(" caf\u00e9| \u65e5\u672c", cut(DL_WORD_RULE_GPT2, " caf\u00e9 \u65e5\u672c"));
}

TEST(cl100k_cuts_numbers_short_and_keeps_line_ends)
{
    CHECK_STR("I|'LL| see| |123|4|x|!!\n\n|y", cut(DL_WORD_RULE_CL100K, "I'LL see 1234x!!\n\ny"));
    CHECK_STR("(x|)| [\n", cut(DL_WORD_RULE_CL100K, "(x) [\n"));
    CHECK_STR("a| \n\n| | b", cut(DL_WORD_RULE_CL100K, "a \n\n  b"));
    CHECK_STR("\tint| a", cut(DL_WORD_RULE_CL100K, "\tint a"));
    CHECK_STR("it|'\u017f", cut(DL_WORD_RULE_CL100K, "it'\u017f"));
}

TEST(bytes_that_are_not_utf8_are_signs)
{
    CHECK_STR("a|\xff\xfe|b", cut(DL_WORD_RULE_GPT2, "a\xff\xfe"
                                                     "b"));
    CHECK_STR("\xe6\x97", cut(DL_WORD_RULE_GPT2, "\xe6\x97")); /* cut short */
}

TEST(classes_are_those_of_unicode)
{
    CHECK_INT(DL_CHAR_LETTER, dl_char_class_of('a'));
    CHECK_INT(DL_CHAR_LETTER, dl_char_class_of(0x4e2d));
    CHECK_INT(DL_CHAR_LETTER, dl_char_class_of(0x20000));
    CHECK_INT(DL_CHAR_NUMBER, dl_char_class_of(0xbd));
    CHECK_INT(DL_CHAR_NUMBER, dl_char_class_of(0x2167));
    CHECK_INT(DL_CHAR_SPACE, dl_char_class_of(0x85));
    CHECK_INT(DL_CHAR_SPACE, dl_char_class_of(0x3000));
    CHECK_INT(DL_CHAR_OTHER, dl_char_class_of(0x200b));
    CHECK_INT(DL_CHAR_OTHER, dl_char_class_of(0x301));
    CHECK_INT(DL_CHAR_OTHER, dl_char_class_of(0x1f600));
    CHECK_INT(DL_CHAR_OTHER, dl_char_class_of(0x10ffff));
}

/* Where it says so, cutting each side by itself gives the same words. */
TEST(a_border_is_one_in_both_ways_of_cutting)
{
    const char *text = "one\ntwo\n\n three\n 4\n.five\r\nsix'll\nseven \n\neight";
    size_t len = strlen(text), found = 0;
    for (size_t at = 1; at < len; at++) {
        if (!dl_word_border(text, at)) continue;
        found++;
        for (int how = 0; how < DL_N_WORD_RULES; how++) {
            size_t word = 0;
            while (word < at)
                word += dl_word((dl_word_rule)how, text, len, word);
            CHECK_INT(at, word);
        }
    }
    CHECK_INT(4, found); /* two six seven eight */
}

TEST_MAIN(gpt2_cuts_letters_numbers_and_signs, cl100k_cuts_numbers_short_and_keeps_line_ends,
          bytes_that_are_not_utf8_are_signs, classes_are_those_of_unicode,
          a_border_is_one_in_both_ways_of_cutting)
