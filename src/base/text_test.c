/* text_test.c - numbers and characters, at their borders. */
#include "base/text.h"

#include "check.h"

#include <locale.h>

static bool to_f64(double *out, const char *s)
{
    return dl_text_to_f64(out, s, strlen(s));
}

TEST(numbers_are_those_of_json)
{
    static const char *const good[] = {"0", "-0", "10", "1.5", "-0.25", "1e5", "1E+05", "4e-4"};
    static const char *const bad[] = {"",    "-", "+1", ".5",  "1.", "1e",
                                      "1e+", "a", " 1", "inf", "nan"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_INT(strlen(good[i]), dl_number_len(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(0, dl_number_len(bad[i], strlen(bad[i])));
    CHECK_INT(1, dl_number_len("01", 2));
    CHECK_INT(3, dl_number_len("1.5]", 4));
    CHECK_INT(1, dl_number_len("1.5", 1));
}

TEST(integers_are_exact_up_to_their_borders)
{
    int64_t i = 5;
    uint64_t u = 5;
    CHECK(dl_text_to_i64(&i, "-9223372036854775808", 20) && i == INT64_MIN);
    CHECK(dl_text_to_i64(&i, "9223372036854775807", 19) && i == INT64_MAX);
    CHECK(!dl_text_to_i64(&i, "9223372036854775808", 19) && i == INT64_MAX);
    CHECK(dl_text_to_u64(&u, "18446744073709551615", 20) && u == UINT64_MAX);
    CHECK(!dl_text_to_u64(&u, "18446744073709551616", 20));
    CHECK(!dl_text_to_u64(&u, "-1", 2));
    CHECK(!dl_text_to_i64(&i, "1.0", 3));
    CHECK(!dl_text_to_i64(&i, "1e3", 3));
    CHECK(!dl_text_to_i64(&i, "12x", 3));
    CHECK(!dl_text_to_i64(&i, "", 0));
    CHECK(u == UINT64_MAX && i == INT64_MAX);
}

TEST(doubles_beyond_the_largest_or_too_long_are_refused)
{
    double x = 5;
    char digits[DL_NUMBER_MAX + 2];
    CHECK(!to_f64(&x, "1e309"));
    CHECK(!to_f64(&x, "-1e309"));
    memset(digits, '1', sizeof digits);
    CHECK(!dl_text_to_f64(&x, digits, DL_NUMBER_MAX + 1));
    CHECK(x == 5);
    CHECK(dl_text_to_f64(&x, digits, DL_NUMBER_MAX));
    CHECK(to_f64(&x, "1e-400") && x == 0);
}

TEST(doubles_are_written_short_and_read_back_to_equal_bits)
{
    static const struct {
        double value;
        const char *text;
    } known[] = {{0.1, "0.1"}, {4e-4, "0.0004"}, {1e-8, "1e-08"},
                 {-0.0, "-0"}, {1e15, "1e+15"},  {0.1 + 0.2, "0.30000000000000004"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char text[32];
        double back;
        dl_text_from_f64(text, known[i].value);
        CHECK_STR(known[i].text, text);
        CHECK(to_f64(&back, text));
        CHECK_BYTES(&known[i].value, &back, sizeof back);
    }
    const double extremes[] = {1.7976931348623157e308, -2.2250738585072014e-308, 5e-324, 1.0 / 3};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        char text[32];
        double back;
        dl_text_from_f64(text, extremes[i]);
        CHECK(to_f64(&back, text) && back == extremes[i]);
    }
}

TEST(the_programs_locale_changes_nothing)
{
    /* A locale with a decimal comma, where this machine has one. */
    const char *comma = setlocale(LC_NUMERIC, "de_DE.UTF-8");
    if (!comma) comma = setlocale(LC_NUMERIC, "fr_FR.UTF-8");
    if (!comma) skip();
    char text[32];
    double x;
    dl_text_from_f64(text, 1.5);
    CHECK_STR("1.5", text);
    CHECK(to_f64(&x, "2.25") && x == 2.25);
    setlocale(LC_NUMERIC, "C");
}

TEST(utf8_round_trips_at_the_borders_of_its_lengths)
{
    static const uint32_t codes[] = {0,      0x7F,   0x80,   0x7FF,   0x800,
                                     0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF};
    static const size_t lens[] = {1, 1, 2, 2, 3, 3, 3, 3, 4, 4};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        char bytes[4];
        uint32_t back;
        CHECK_INT(lens[i], dl_utf8_put(bytes, codes[i]));
        CHECK_INT(lens[i], dl_utf8_char(&back, bytes, lens[i]));
        CHECK_INT(codes[i], back);
        CHECK_INT(0, dl_utf8_char(&back, bytes, lens[i] - 1)); /* truncated */
    }
}

TEST(sentence_of_another_program_becomes_a_clause)
{
    static const char *const pairs[][2] = {
        {"No such image.", "No such image"}, {"waits...", "waits"}, {"Denied. \r\n", "Denied"},
        {"v1.2 is old", "v1.2 is old"},      {". . .", ""},         {"", ""},
        {"is it a.b?", "is it a.b?"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[32];
        strcpy(text, pairs[i][0]);
        CHECK_STR(pairs[i][1], dl_text_clause(text));
    }
}

TEST(malformed_utf8_is_refused)
{
    static const char *const bad[] = {
        "\x80",
        "\xBF", /* a continuation alone */
        "\xC0\x80",
        "\xC1\xBF", /* longer than needed */
        "\xE0\x9F\xBF",
        "\xF0\x8F\xBF\xBF", /* likewise */
        "\xED\xA0\x80",
        "\xED\xBF\xBF", /* surrogates */
        "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80",
        "\xFF", /* beyond U+10FFFF */
        "\xC3(",
        "\xE2\x82(", /* interrupted */
    };
    uint32_t code;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (dl_utf8_char(&code, bad[i], strlen(bad[i]))) CHECK_FAIL("bad[%zu] was accepted", i);
}

TEST(number_of_a_person_may_begin_with_the_point)
{
    double x = 7;
    CHECK(dl_text_to_real(&x, ".5", 2) && x == .5);
    CHECK(dl_text_to_real(&x, "-.5e1", 5) && x == -5);
    CHECK(dl_text_to_real(&x, "0.25", 4) && x == .25);
    static const char *const bad[] = {"", "-", ".", "-.", "..5", ".-5", "5.", "+.5", ".5 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!dl_text_to_real(&x, bad[i], strlen(bad[i])));
    char full[DL_NUMBER_MAX + 2] = ".";
    memset(full + 1, '1', DL_NUMBER_MAX);
    CHECK(dl_text_to_real(&x, full, DL_NUMBER_MAX - 1));
    CHECK(!dl_text_to_real(&x, full, DL_NUMBER_MAX));
}

TEST(percent_escapes_are_decoded_and_invalid_ones_are_refused)
{
    static const char *const good[][3] = {{"a%2Fb%2fc", "a/b/c", "a/b/c"},
                                          {"a+b", "a+b", "a b"},
                                          {"%2B%25", "+%", "+%"},
                                          {"", "", ""}};
    char text[32];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        for (int plus = 0; plus < 2; plus++) {
            strcpy(text, good[i][0]);
            CHECK(dl_text_unescape(text, plus));
            CHECK_STR(good[i][1 + plus], text);
        }
    static const char *const bad[] = {"x%a", "x%", "%+1", "% 5", "%00", "%g1", "%1g", "%-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        strcpy(text, bad[i]);
        CHECK(!dl_text_unescape(text, false));
        CHECK_STR(bad[i], text);
    }
}

TEST_MAIN(numbers_are_those_of_json, integers_are_exact_up_to_their_borders,
          doubles_beyond_the_largest_or_too_long_are_refused,
          doubles_are_written_short_and_read_back_to_equal_bits,
          the_programs_locale_changes_nothing, utf8_round_trips_at_the_borders_of_its_lengths,
          sentence_of_another_program_becomes_a_clause, malformed_utf8_is_refused,
          number_of_a_person_may_begin_with_the_point,
          percent_escapes_are_decoded_and_invalid_ones_are_refused)
