/* e3m0_test.c - e3m0 against its definition, by a search for the nearest of the sixteen values. */
#include "codec_form.h"

/* The nearest of 0 and s/64 … s; of two the larger, as at a boundary. */
static float nearest(float x, float s)
{
    float best = 0;
    for (int c = 1; c <= 7; c++) {
        float value = ldexpf(s, c - 7);
        if (fabs(fabs((double)x) - (double)value) <= fabs(fabs((double)x) - (double)best))
            best = value;
    }
    return x < 0 ? -best + 0.0f : best;
}

TEST(every_value_becomes_the_nearest_of_zero_and_seven_powers)
{
    enum { N = 256 };
    static float x[N];
    codec_form f = form_open("e3m0", NULL, 1, N);
    fill_uniform(x, N, 1);
    for (size_t i = 0; i < N; i += 2)
        x[i] = ldexpf(x[i], -(int)(i % 10)); /* small ones, too */
    x[17] = -1.25f;
    const float *y = form_pass(&f, x);
    CHECK_INT(4 + N / 2, f.len);
    for (size_t i = 0; i < N; i++)
        if (y[i] != nearest(x[i], 1.25f))
            CHECK_FAIL("%.9g: expected %.9g, got %.9g", (double)x[i], (double)nearest(x[i], 1.25f),
                       (double)y[i]);
    form_close(&f);
}

TEST(the_sixteen_values_are_exact)
{
    float x[15];
    codec_form f = form_open("e3m0", NULL, 1, 15);
    for (int i = 0; i < 15; i++)
        x[i] = i == 7 ? 0 : copysignf(ldexpf(0.3f, abs(i - 7) - 7), (float)(i - 7));
    CHECK_BYTES(x, form_pass(&f, x), sizeof x);
    form_close(&f);
}

TEST(a_boundary_belongs_to_the_larger_value)
{
    /* 3/4 of the scale and its halves are between two values, 1/128 between 0 and 1/64. */
    float x[] = {1, 0.75f, 0x0.ffffffp0f * 0.75f, -0.375f, 0x1p-7f, 0x1.fffffep-8f, -0x1p-7f};
    static const float want[] = {1, 1, 0.5f, -0.5f, 0x1p-6f, 0, -0x1p-6f};
    codec_form f = form_open("e3m0", NULL, 1, 7);
    CHECK_BYTES(want, form_pass(&f, x), sizeof want);
    form_close(&f);
}

TEST(a_block_too_small_for_a_scale_is_zero)
{
    float x[] = {1e-39f, -1e-40f};
    static const float zeros[2];
    codec_form f = form_open("e3m0", NULL, 1, 2);
    CHECK_BYTES(zeros, form_pass(&f, x), sizeof zeros);
    form_close(&f);
}

TEST(an_unused_code_and_a_bad_scale_are_refused)
{
    float x[] = {1, -0.5f, 0.25f};
    codec_form f = form_open("e3m0", NULL, 1, 3);
    form_pass(&f, x);
    static const unsigned char want[] = {0, 0, 0x80, 0x3f, 0xa7, 0x05, 0, 0};
    CHECK_BYTES(want, f.payload, sizeof want);
    form_refuses(&f, 4, 0xa8, "code that e3m0 does not"); /* a negative zero */
    form_refuses(&f, 3, 0x7f, "scales");
    form_close(&f);
}

TEST_MAIN(every_value_becomes_the_nearest_of_zero_and_seven_powers, the_sixteen_values_are_exact,
          a_boundary_belongs_to_the_larger_value, a_block_too_small_for_a_scale_is_zero,
          an_unused_code_and_a_bad_scale_are_refused)
