/* draw_test.c - the series beside the math library's functions, moments of the draws beside those
 * of their distributions, and the first draws as bits, which are the same on every machine. */
#include "base/draw.h"

#include "check.h"

#include <inttypes.h>
#include <math.h>

TEST(log_and_exp_are_those_of_the_math_library_to_a_few_units_of_the_last_place)
{
    dl_rng rng;
    dl_rng_init(&rng, 1, DL_STREAM(DL_STREAM_TEST, 1), 0);
    for (int i = 0; i < 100000; i++) {
        double x = ldexp(0.5 + dl_rng_f64(&rng), (int)dl_rng_below(&rng, 2000) - 1000);
        double y = 1390 * dl_rng_f64(&rng) - 695;
        CHECK_NEAR(dl_draw_log(x), log(x), 4e-16 * fmax(1, fabs(log(x))));
        CHECK_NEAR(dl_draw_exp(y), exp(y), 4e-16 * exp(y));
    }
    CHECK_NEAR(dl_draw_log(0x1p-1074), log(0x1p-1074), 1e-12);
    CHECK(dl_draw_log(1) == 0);
    CHECK(dl_draw_exp(0) == 1);
    CHECK(dl_draw_exp(-1e9) == 0);
}

/* Of n draws the mean is within 5 of its deviations in all but one of 10^6 seeds. */
TEST(a_normal_draw_has_mean_0_and_variance_1)
{
    enum { N = 200000 };
    dl_rng rng;
    double sum = 0, squares = 0, fourth = 0;
    dl_rng_init(&rng, 2, DL_STREAM(DL_STREAM_TEST, 2), 0);
    for (int i = 0; i < N; i++) {
        double x = dl_draw_normal(&rng);
        sum += x, squares += x * x, fourth += x * x * x * x;
    }
    CHECK_NEAR(sum / N, 0, 5 / sqrt(N));
    CHECK_NEAR(squares / N, 1, 5 * sqrt(2.0 / N));
    CHECK_NEAR(fourth / N, 3, 5 * sqrt(96.0 / N));
}

static void check_gamma(double shape)
{
    enum { N = 100000 };
    dl_rng rng;
    double sum = 0;
    dl_rng_init(&rng, 3, DL_STREAM(DL_STREAM_TEST, 3), 0);
    for (int i = 0; i < N; i++)
        sum += dl_draw_exp(dl_draw_log_gamma(&rng, shape));
    CHECK_NEAR(sum / N, shape, 5 * sqrt(shape / N));
}

TEST(a_gamma_draw_has_the_mean_of_its_shape)
{
    static const double shapes[] = {0.1, 0.5, 1, 2.5, 40};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_gamma(shapes[i]);
}

/* Variance of a part: (1/n)(1 - 1/n) / (n a + 1). */
static void check_dirichlet(double concentration)
{
    enum { N = 20000, PARTS = 10 };
    dl_rng rng;
    double part[PARTS], squares = 0, want = 0.09 / (PARTS * concentration + 1);
    dl_rng_init(&rng, 4, DL_STREAM(DL_STREAM_TEST, 4), 0);
    for (int i = 0; i < N; i++) {
        double sum = 0;
        dl_draw_dirichlet(part, PARTS, concentration, &rng);
        for (int k = 0; k < PARTS; k++)
            sum += part[k];
        CHECK_NEAR(sum, 1, 1e-12);
        squares += (part[0] - 0.1) * (part[0] - 0.1);
    }
    CHECK_NEAR(squares / N, want, 0.1 * want);
}

TEST(parts_of_a_dirichlet_draw_sum_to_1_and_vary_as_its_concentration_says)
{
    check_dirichlet(0.1);
    check_dirichlet(1);
    check_dirichlet(100);
}

TEST(a_concentration_of_a_thousandth_gives_one_class_and_no_nan)
{
    dl_rng rng;
    double part[10];
    dl_rng_init(&rng, 5, DL_STREAM(DL_STREAM_TEST, 5), 0);
    for (int i = 0; i < 1000; i++) {
        double largest = 0;
        dl_draw_dirichlet(part, 10, 1e-3, &rng);
        for (int k = 0; k < 10; k++) {
            CHECK(part[k] >= 0);
            largest = fmax(largest, part[k]);
        }
        CHECK(largest > 0.1);
    }
}

/* Taken from this program: they hold on every machine or clients' data differ between machines. */
TEST(draws_have_the_same_bits_everywhere)
{
    static const double want[] = {0x1.695f087910024p-6, 0x1.4ea6af27c396dp-2, 0x1.1427d56cd4be2p-2,
                                  0x1.869b8ae3d6aafp-2};
    dl_rng rng;
    double part[4];
    dl_rng_init(&rng, 7, DL_STREAM(DL_STREAM_TEST, 7), 0);
    dl_draw_dirichlet(part, 4, 0.3, &rng);
    for (int i = 0; i < 4; i++) {
        CHECK(part[i] == want[i]);
    }
}

TEST_MAIN(log_and_exp_are_those_of_the_math_library_to_a_few_units_of_the_last_place,
          a_normal_draw_has_mean_0_and_variance_1, a_gamma_draw_has_the_mean_of_its_shape,
          parts_of_a_dirichlet_draw_sum_to_1_and_vary_as_its_concentration_says,
          a_concentration_of_a_thousandth_gives_one_class_and_no_nan,
          draws_have_the_same_bits_everywhere)
