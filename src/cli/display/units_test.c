/* units_test.c - numbers as people read them, and no rounding to four digits. */
#include "cli/display/units.h"

#include "check.h"

TEST(bytes_are_decimal_with_three_digits_at_most)
{
    dl_unit_text out;
    CHECK_STR("0 B", dl_bytes_text(out, 0));
    CHECK_STR("999 B", dl_bytes_text(out, 999));
    CHECK_STR("1.0 kB", dl_bytes_text(out, 1000));
    CHECK_STR("1.0 kB", dl_bytes_text(out, 999.7));
    CHECK_STR("99.9 kB", dl_bytes_text(out, 99900));
    CHECK_STR("100 kB", dl_bytes_text(out, 99960));
    CHECK_STR("1.0 MB", dl_bytes_text(out, 999600));
    CHECK_STR("25.3 GB", dl_bytes_text(out, 25.27e9));
    CHECK_STR("0 B", dl_bytes_text(out, (double)NAN));
}

TEST(rates_and_counts)
{
    dl_unit_text out;
    CHECK_STR("950", dl_rate_text(out, 950));
    CHECK_STR("34.1k", dl_rate_text(out, 34120));
    CHECK_STR("0", dl_count_text(out, 0));
    CHECK_STR("999", dl_count_text(out, 999));
    CHECK_STR("1,240", dl_count_text(out, 1240));
    CHECK_STR("18,446,744,073,709,551,615", dl_count_text(out, UINT64_MAX));
}

TEST(times_carry_over_when_rounded)
{
    dl_unit_text out;
    CHECK_STR("-", dl_time_text(out, -1));
    CHECK_STR("-", dl_time_text(out, (double)NAN));
    CHECK_STR("-", dl_time_text(out, (double)INFINITY));
    CHECK_STR("0 ms", dl_time_text(out, 0));
    CHECK_STR("12 ms", dl_time_text(out, 0.012));
    CHECK_STR("9.9 s", dl_time_text(out, 9.94));
    CHECK_STR("59 s", dl_time_text(out, 59.4));
    CHECK_STR("1 min 00 s", dl_time_text(out, 59.6));
    CHECK_STR("1 min 20 s", dl_time_text(out, 80));
    CHECK_STR("2 min 00 s", dl_time_text(out, 119.7));
    CHECK_STR("1 h 00 min", dl_time_text(out, 3599.7));
    CHECK_STR("2 h 05 min", dl_time_text(out, 7500));
    CHECK_STR("47 h 59 min", dl_time_text(out, 47 * 3600 + 59 * 60));
    CHECK_STR("2 days 0 h", dl_time_text(out, 48 * 3600));
    CHECK_STR("58 days 3 h", dl_time_text(out, 58 * 86400 + 2.6 * 3600));
}

TEST(suggested_word_reads_back_from_a_shell)
{
    static const struct {
        const char *text, *word;
    } cases[] = {{"runs/demo", "runs/demo"},
                 {"my run", "'my run'"},
                 {"", "''"},
                 {"it's", "'it'\\''s'"},
                 {"a$b", "'a$b'"},
                 {"läufe/ü", "läufe/ü"},
                 {"s3://bucket/run?x=1", "'s3://bucket/run?x=1'"}};
    char word[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STR(cases[i].word, dl_shell_word(word, sizeof word, cases[i].text));
    CHECK_STR("'my ", dl_shell_word(word, 5, "my run"));
}

TEST_MAIN(bytes_are_decimal_with_three_digits_at_most, rates_and_counts,
          times_carry_over_when_rounded, suggested_word_reads_back_from_a_shell)
