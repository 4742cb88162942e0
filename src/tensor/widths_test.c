/* widths_test.c - every two-byte value goes to four bytes and back; values between two of them go
 * to the nearer, ties to the even one. */
#include "tensor/widths.h"

#include "base/rng.h"

#include "check.h"

static void check_round_trip(const char *dtype, uint16_t exponent)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        unsigned char in[2] = {(unsigned char)bits, (unsigned char)(bits >> 8)}, out[2];
        float x;
        dl_widen(&x, in, 1, dtype);
        bool nan = (bits & exponent) == exponent && (bits & ~(exponent | 0x8000U)) != 0;
        CHECK(isnan(x) == nan);
        dl_narrow(out, &x, 1, dtype);
        if (!nan) CHECK_BYTES(in, out, 2);
    }
}

TEST(every_value_of_two_bytes_comes_back)
{
    check_round_trip("F16", 0x7c00);
    check_round_trip("BF16", 0x7f80);
}

static float widened(uint16_t bits, const char *dtype)
{
    unsigned char in[2] = {(unsigned char)bits, (unsigned char)(bits >> 8)};
    float x;
    dl_widen(&x, in, 1, dtype);
    return x;
}

static uint16_t narrowed(float x, const char *dtype)
{
    unsigned char out[2];
    dl_narrow(out, &x, 1, dtype);
    return (uint16_t)(out[0] | out[1] << 8);
}

TEST(values_follow_ieee_754)
{
    CHECK(widened(0x3c00, "F16") == 1.0f && widened(0xc000, "F16") == -2.0f);
    CHECK(widened(0x0001, "F16") == 0x1p-24f && widened(0x03ff, "F16") == 1023 * 0x1p-24f);
    CHECK(widened(0x0400, "F16") == 0x1p-14f && widened(0x7bff, "F16") == 65504.0f);
    CHECK(isinf(widened(0x7c00, "F16")) && signbit(widened(0x8000, "F16")));
    CHECK(widened(0x3f80, "BF16") == 1.0f && widened(0x0001, "BF16") == 0x1p-133f);
}

static void check_between(const char *dtype, uint16_t largest)
{
    for (uint16_t bits = 0; bits < largest; bits++) {
        float low = widened(bits, dtype), high = widened((uint16_t)(bits + 1), dtype);
        float middle = low + (high - low) / 2; /* exact: f32 has more bits */
        CHECK_INT(bits % 2 ? bits + 1 : bits, narrowed(middle, dtype));
        CHECK_INT(bits, narrowed(nextafterf(middle, low), dtype));
        CHECK_INT(bits + 1, narrowed(nextafterf(middle, high), dtype));
    }
}

TEST(values_between_two_round_to_the_nearest_ties_to_even)
{
    check_between("F16", 0x7bff);
    check_between("BF16", 0x7f7f);
    CHECK_INT(0x7bff, narrowed(65519.99f, "F16"));
    CHECK_INT(0x7c00, narrowed(65520.0f, "F16"));
    CHECK_INT(0x7c00, narrowed(1e30f, "F16"));
}

/* Vectors of every length and place give what one value at a time gives. */
TEST(many_values_go_as_each_of_them_does)
{
    enum { MANY = 1000 };
    static const char *const types[] = {"F16", "BF16"};
    static float x[MANY], wide[MANY + 1];
    static unsigned char narrow[2 * MANY + 1];
    dl_rng rng;
    dl_rng_init(&rng, 7, DL_STREAM(DL_STREAM_TEST, 1), 0);
    for (size_t i = 0; i < MANY; i++) {
        uint32_t bits = dl_rng_u32(&rng);
        if (i % 2) bits = (bits & 0x87ffffff) | 0x38000000; /* about the smallest halves */
        memcpy(&x[i], &bits, sizeof bits);
    }
    for (size_t k = 0; k < 2; k++)
        for (size_t n = 1; n <= MANY; n += 37) {
            dl_narrow(narrow + 1, x + MANY - n, n, types[k]);
            dl_widen(wide + 1, narrow + 1, n, types[k]);
            for (size_t i = 0; i < n; i++) {
                float one;
                unsigned char two[2];
                dl_narrow(two, &x[MANY - n + i], 1, types[k]);
                CHECK_BYTES(two, narrow + 1 + 2 * i, 2);
                dl_widen(&one, two, 1, types[k]);
                CHECK_BYTES(&one, &wide[1 + i], sizeof one);
                dl_round_to(&one, &x[MANY - n + i], 1, types[k]);
                CHECK_BYTES(&one, &wide[1 + i], sizeof one);
            }
        }
}

TEST(only_these_types_are_known)
{
    CHECK(dl_width_known("F32") && dl_width_known("BF16") && dl_width_known("F16"));
    CHECK(!dl_width_known("F64") && !dl_width_known("I64") && !dl_width_known(""));
}

TEST_MAIN(every_value_of_two_bytes_comes_back, values_follow_ieee_754,
          values_between_two_round_to_the_nearest_ties_to_even, many_values_go_as_each_of_them_does,
          only_these_types_are_known)
