/* int2_test.c - int2 against its definition: int8's with 1, in pairs of bits. */
#include "codec_form.h"

TEST(values_above_half_of_the_largest_are_sent_as_the_largest)
{
    float x[] = {-0.5f, 0.26f, 0.25f, -0.24f, 0.5f};
    static const float want[] = {-0.5f, 0.5f, 0, 0, 0.5f};
    codec_form f = form_open("int2", NULL, 1, 5);
    CHECK_BYTES(want, form_pass(&f, x), sizeof want);
    /* one word: element k in bits 2 k and 2 k + 1 */
    static const unsigned char payload[] = {0, 0, 0, 0x3f, 0x07, 0x01, 0, 0};
    CHECK_INT(sizeof payload, f.len);
    CHECK_BYTES(payload, f.payload, sizeof payload);
    form_close(&f);
}

TEST(an_unused_code_and_filled_gaps_are_refused)
{
    float x[] = {1, 0, 0, -1, 1};
    codec_form f = form_open("int2", NULL, 1, 5);
    form_pass(&f, x);
    CHECK_INT(8, f.len);
    form_refuses(&f, 4, 0x02, "code that int2 does not");
    form_refuses(&f, 5, 0x05, "after the last element");
    form_close(&f);
}

TEST_MAIN(values_above_half_of_the_largest_are_sent_as_the_largest,
          an_unused_code_and_filled_gaps_are_refused)
