/* sign_test.c - signs and the mean of their block. */
#include "codec_form.h"

TEST(a_block_becomes_its_signs_times_its_mean_size)
{
    enum { N = 256 + 5 };
    static float x[N];
    codec_form f = form_open("sign", NULL, 1, N);
    fill_uniform(x, N, 1);
    x[3] = -0.0f;
    const float *y = form_pass(&f, x);
    CHECK_INT(2 * 4 + 256 / 8 + 4, f.len);
    for (size_t begin = 0; begin < N; begin += 256) {
        double mean = 0;
        size_t end = dl_size_min(begin + 256, N);
        for (size_t i = begin; i < end; i++)
            mean += fabs((double)x[i]) / (double)(end - begin);
        for (size_t i = begin; i < end; i++)
            CHECK_NEAR(x[i] < 0 ? -mean : mean, y[i], 1e-7); /* of the other order of summing */
    }
    form_close(&f);
}

TEST(vectors_of_one_size_are_exact)
{
    float x[] = {0.1f, -0.1f, -0.1f, 0.1f, 0.1f, 0.1f, -0.1f, 0.1f, -0.1f};
    codec_form f = form_open("sign", NULL, 1, 9);
    CHECK_BYTES(x, form_pass(&f, x), sizeof x);
    CHECK_INT(0x46, f.payload[4]); /* one word: bit i is element i */
    CHECK_INT(0x01, f.payload[5]);
    form_refuses(&f, 5, 0x03, "after the last element");
    form_refuses(&f, 3, 0xbd, "scales");
    form_close(&f);
}

TEST_MAIN(a_block_becomes_its_signs_times_its_mean_size, vectors_of_one_size_are_exact)
