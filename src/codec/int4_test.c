/* int4_test.c - int4 against its definition: int8's with 7, in nibbles. */
#include "codec_form.h"

TEST(a_value_is_within_half_a_step_where_a_step_is_the_largest_over_7)
{
    enum { N = 256 };
    static float x[N];
    codec_form f = form_open("int4", NULL, 1, N);
    fill_uniform(x, N, 3);
    x[100] = -3;
    const float *y = form_pass(&f, x);
    CHECK_INT(4 + N / 2, f.len);
    for (size_t i = 0; i < N; i++)
        CHECK_NEAR(x[i], y[i], 0.5 * 3.0 / 7 * (1 + 1e-4)); /* s is rounded up by 2^-15 */
    form_close(&f);
}

TEST(multiples_of_a_scale_are_exact_and_where_the_format_says)
{
    float x[15];
    codec_form f = form_open("int4", NULL, 1, 15);
    for (int i = 0; i < 15; i++)
        x[i] = (float)(i - 7) * 0.25f;
    const float *y = form_pass(&f, x);
    CHECK_BYTES(x, y, sizeof x);
    /* two words: even elements in the first, odd ones in the second */
    static const unsigned char want[] = {0,    0,    0x80, 0x3e, 0xb9, 0xfd,
                                         0x31, 0x75, 0xca, 0x0e, 0x42, 0x06};
    CHECK_INT(sizeof want, f.len);
    CHECK_BYTES(want, f.payload, sizeof want);
    form_close(&f);
}

TEST(an_unused_code_and_filled_gaps_are_refused)
{
    float x[] = {7, 1, 0, -7, 3};
    codec_form f = form_open("int4", NULL, 1, 5);
    form_pass(&f, x);
    CHECK_INT(8, f.len);
    form_refuses(&f, 4, 0x18, "code that int4 does not");
    form_refuses(&f, 5, 0x80, "code that int4 does not");
    form_refuses(&f, 6, 0x13, "after the last element");
    form_refuses(&f, 7, 0x10, "after the last element");
    form_close(&f);
}

TEST_MAIN(a_value_is_within_half_a_step_where_a_step_is_the_largest_over_7,
          multiples_of_a_scale_are_exact_and_where_the_format_says,
          an_unused_code_and_filled_gaps_are_refused)
