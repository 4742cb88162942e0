/* bf16_test.c - the upper half of a float: all of them exact, the rest rounded to nearest even. */
#include "codec_form.h"

static float upper(unsigned bits)
{
    uint32_t word = bits << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

TEST(all_bf16_are_exact_and_ties_go_to_the_even_one)
{
    enum { N = 0x5d5e }; /* up to 1.1e18 */
    static float x[N], between[N];
    codec_form f = form_open("bf16", NULL, 1, N - 1);
    for (unsigned i = 0; i < N; i++)
        x[i] = upper(i);
    CHECK_BYTES(x, form_pass(&f, x), (N - 1) * sizeof *x);
    CHECK_INT(2 * (N - 1), f.len);
    for (unsigned i = 0; i < N - 1; i++)
        between[i] = -(float)(((double)x[i] + (double)x[i + 1]) / 2);
    const float *y = form_pass(&f, between);
    for (unsigned i = 0; i < N - 1; i++)
        CHECK(y[i] == -x[i + i % 2]);
    form_close(&f);
}

TEST(values_that_would_round_to_infinity_become_the_largest)
{
    float x[] = {0x1.fffffep127f, -0x1.fffffep127f};
    codec_form f = form_open("bf16", NULL, 1, 2);
    f.form.codec->encode(&f.form, f.payload, &f.len, x);
    dl_codec_round_trip(&f.form, f.decoded, f.payload, f.len);
    CHECK(f.decoded[0] == 0x1.fep127f && f.decoded[1] == -0x1.fep127f);
    form_close(&f);
}

TEST(an_untrusted_infinity_or_nan_is_refused_with_its_index)
{
    float x[] = {1, 2, 3};
    codec_form f = form_open("bf16", NULL, 1, 3);
    form_pass(&f, x);
    f.payload[3] = 0x7f;
    f.payload[2] = 0x80;
    CHECK_STATUS(DILOCO_ENUMERIC, form_check(&f));
    CHECK_INT(1, f.index);
    f.payload[2] = 0xc0;
    CHECK_STATUS(DILOCO_ENUMERIC, form_check(&f));
    form_close(&f);
}

TEST_MAIN(all_bf16_are_exact_and_ties_go_to_the_even_one,
          values_that_would_round_to_infinity_become_the_largest,
          an_untrusted_infinity_or_nan_is_refused_with_its_index)
