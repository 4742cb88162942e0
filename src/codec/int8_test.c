/* int8_test.c - int8 against its definition in int8.c. Values that are exact multiples of the scale
 * come back as they are; others within half a step. */
#include "codec_form.h"

enum { N = 3 * 256 + 77 };

static float largest_of(const float *x, size_t begin, size_t end)
{
    float largest = 0;
    for (size_t i = begin; i < end; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    return largest;
}

TEST(a_value_is_within_half_a_step_where_a_step_is_the_largest_over_127)
{
    static float x[N];
    codec_form f = form_open("int8", NULL, 1, N);
    fill_uniform(x, N, 3);
    const float *y = form_pass(&f, x);
    CHECK_INT(4 * 4 + 3 * 256 + 80, f.len);
    for (size_t i = 0; i < N; i++) {
        size_t begin = i / 256 * 256;
        float step = largest_of(x, begin, dl_size_min(N, begin + 256)) / 127;
        CHECK_NEAR(x[i], y[i], 0.5 * (double)step * (1 + 1e-4)); /* s is rounded up by 2^-15 */
    }
    form_close(&f);
}

TEST(multiples_of_a_scale_are_exact)
{
    float x[255];
    codec_form f = form_open("int8", NULL, 1, 255);
    for (int i = 0; i < 255; i++)
        x[i] = (float)(i - 127) * 0x1.8p-20f;
    const float *y = form_pass(&f, x);
    CHECK_BYTES(x, y, sizeof x);
    form_close(&f);
}

TEST(ties_go_to_the_even_integer)
{
    float x[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -126.5f};
    static const float want[] = {127, 0, 2, 2, 0, -2, -126};
    codec_form f = form_open("int8", NULL, 1, 7);
    const float *y = form_pass(&f, x);
    CHECK_BYTES(want, y, sizeof want);
    form_close(&f);
}

TEST(a_block_too_small_for_a_scale_is_zero)
{
    float x[] = {1e-37f, -1e-40f, 1e-45f, -0.0f};
    static const float zeros[4];
    codec_form f = form_open("int8", NULL, 1, 4);
    CHECK_BYTES(zeros, form_pass(&f, x), sizeof zeros);
    form_close(&f);
}

TEST(elements_are_in_the_bytes_that_the_format_says)
{
    float x[] = {1, 2, 3, 4, 5, -6, 127};
    codec_form f = form_open("int8", NULL, 1, 7);
    form_pass(&f, x);
    static const unsigned char words[] = {0, 0, 0x80, 0x3f, /* scale 1 */
                                          1, 3, 5,    127,  2, 4, 0xfa, 0};
    CHECK_INT(sizeof words, f.len);
    CHECK_BYTES(words, f.payload, sizeof words);
    form_close(&f);
}

TEST(a_bad_scale_an_unused_code_and_filled_gaps_are_refused)
{
    float x[] = {1, 2, 3, 4, 5, -6, 127};
    codec_form f = form_open("int8", NULL, 1, 7);
    form_pass(&f, x);
    form_refuses(&f, 3, 0xbf, "scales");                  /* -1 */
    form_refuses(&f, 3, 0xff, "scales");                  /* NaN */
    form_refuses(&f, 8, 0x80, "code that int8 does not"); /* -128 */
    form_refuses(&f, 11, 1, "after the last element");
    put_float(f.payload, 1e38f); /* sound, but 127 of it are not */
    CHECK_STATUS(DILOCO_ENUMERIC, form_check(&f));
    CHECK_INT(0, f.index);
    form_close(&f);
}

TEST_MAIN(a_value_is_within_half_a_step_where_a_step_is_the_largest_over_127,
          multiples_of_a_scale_are_exact, ties_go_to_the_even_integer,
          a_block_too_small_for_a_scale_is_zero, elements_are_in_the_bytes_that_the_format_says,
          a_bad_scale_an_unused_code_and_filled_gaps_are_refused)
