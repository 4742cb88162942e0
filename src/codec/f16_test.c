/* f16_test.c - halves against a slow definition: the nearest of all 2^16 by arithmetic in double.
 */
#include "codec_form.h"

static double half_value(unsigned bits)
{
    int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
    double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -size : size;
}

TEST(all_halves_are_exact)
{
    enum { N = 2 * 0x7c00 };
    static float x[N];
    codec_form f = form_open("f16", NULL, 1, N);
    for (unsigned i = 0; i < N; i++)
        x[i] = (float)half_value(i < N / 2 ? i : i - N / 2 + 0x8000) + 0.0f;
    const float *y = form_pass(&f, x);
    CHECK_INT(2 * N, f.len);
    CHECK_BYTES(x, y, sizeof x);
    for (unsigned i = 0; i < N / 2; i++)
        CHECK_INT(i, f.payload[2 * i] | f.payload[2 * i + 1] << 8);
    form_close(&f);
}

TEST(between_two_halves_the_nearest_and_at_a_tie_the_even_one)
{
    enum { EACH = 3, N = (0x7c00 - 1) * EACH };
    static float x[N];
    codec_form f = form_open("f16", NULL, 1, N);
    for (unsigned i = 0; i < N / EACH; i++) {
        double low = half_value(i), high = half_value(i + 1), middle = (low + high) / 2;
        x[EACH * i] = (float)middle;
        x[EACH * i + 1] = nextafterf((float)middle, 0);
        x[EACH * i + 2] = -nextafterf((float)middle, INFINITY);
    }
    const float *y = form_pass(&f, x);
    for (unsigned i = 0; i < N / EACH; i++) {
        CHECK((double)y[EACH * i] == half_value(i + i % 2));
        CHECK((double)y[EACH * i + 1] == half_value(i));
        CHECK((double)y[EACH * i + 2] == -half_value(i + 1));
    }
    form_close(&f);
}

TEST(values_that_are_too_large_become_the_largest)
{
    float x[] = {65504, 65520, 1e18f, -1e18f, 65519.9f};
    static const float want[] = {65504, 65504, 65504, -65504, 65504};
    codec_form f = form_open("f16", NULL, 1, 5);
    CHECK_BYTES(want, form_pass(&f, x), sizeof want);
    form_close(&f);
}

TEST(an_untrusted_infinity_or_nan_is_refused_with_its_index)
{
    static const unsigned char bad[] = {0x7c, 0xfc, 0x7e, 0xff};
    float x[] = {1, 2, 3};
    codec_form f = form_open("f16", NULL, 1, 3);
    form_pass(&f, x);
    for (int i = 0; i < 4; i++) {
        f.payload[5] = bad[i];
        CHECK_STATUS(DILOCO_ENUMERIC, form_check(&f));
        CHECK_INT(2, f.index);
    }
    form_close(&f);
}

TEST_MAIN(all_halves_are_exact, between_two_halves_the_nearest_and_at_a_tie_the_even_one,
          values_that_are_too_large_become_the_largest,
          an_untrusted_infinity_or_nan_is_refused_with_its_index)
