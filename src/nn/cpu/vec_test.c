/* vec_test.c - the branchless exponential and logistic function against libm in float64, and the
 * maximum of a row, on every instruction set. */
#include "check.h"
#include "nn/cpu/tile.h"
#include "nn/cpu/vec.h"

static inline DL_BODY void exp_body(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = dl_exp_negative(x[i]);
}
DL_KERNEL(exp_all, (float *y, const float *x, size_t n), exp_body(y, x, n))

static inline DL_BODY void sigmoid_body(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = dl_sigmoid(x[i]);
}
DL_KERNEL(sigmoid_all, (float *y, const float *x, size_t n), sigmoid_body(y, x, n))

static inline DL_BODY void max_body(float *top, const float *x, size_t n, int lanes)
{
    *top = dl_row_max(x, n, lanes);
}
DL_TILE_KERNEL(max_all, (float *top, const float *x, size_t n), max_body(top, x, n, lanes))

/* Distance in units of the last place of the float32 nearest to `want`. */
static double ulps(double want, float got)
{
    float near = (float)want;
    return fabs((double)got - want) / (double)(nextafterf(near, INFINITY) - near);
}

enum { N = 40001 };
static float x[N], y[N];

static void check_exp(dl_isa isa)
{
    double worst = 0;
    for (int i = 0; i < N; i++)
        x[i] = -87.3f * (float)i / (N - 1);
    exp_all[isa](y, x, N);
    for (int i = 0; i < N; i++)
        worst = fmax(worst, ulps(exp((double)x[i]), y[i]));
    if (worst > 2) CHECK_FAIL("%s: exp is %g ulp off", dl_isa_name(isa), worst);
    const float odd[4] = {-87.4f, -1e30f, -INFINITY, NAN};
    exp_all[isa](y, odd, 4);
    CHECK(y[0] == 0 && y[1] == 0 && y[2] == 0 && isnan(y[3]));
}

static void check_sigmoid(dl_isa isa)
{
    double worst = 0;
    for (int i = 0; i < N; i++)
        x[i] = -80.0f + 167.0f * (float)i / (N - 1);
    sigmoid_all[isa](y, x, N);
    for (int i = 0; i < N; i++)
        worst = fmax(worst, ulps(1 / (1 + exp(-(double)x[i])), y[i]));
    if (worst > 4) CHECK_FAIL("%s: sigmoid is %g ulp off", dl_isa_name(isa), worst);
    const float odd[4] = {1e30f, INFINITY, -INFINITY, NAN};
    sigmoid_all[isa](y, odd, 4);
    CHECK(y[0] == 1 && y[1] == 1 && y[2] >= 0 && y[2] < 1e-37f && isnan(y[3]));
}

static void check_max(dl_isa isa)
{
    float top;
    for (size_t n = 0; n < 70; n++)
        for (size_t at = 0; at < n; at++) {
            for (size_t i = 0; i < n; i++)
                x[i] = i == at ? -0.5f : -1.0f - (float)i;
            max_all[isa](&top, x, n);
            CHECK_NEAR(-0.5, top, 0);
        }
    max_all[isa](&top, x, 0);
    CHECK(top == -INFINITY);
}

static void on_each(void (*check)(dl_isa))
{
    for (int isa = 0; isa < DL_N_ISA; isa++)
        if (dl_isa_available((dl_isa)isa)) check((dl_isa)isa);
}

TEST(exp_is_within_two_ulp)
{
    on_each(check_exp);
}
TEST(sigmoid_is_within_four_ulp)
{
    on_each(check_sigmoid);
}
TEST(the_largest_is_found_wherever_it_is)
{
    on_each(check_max);
}

TEST_MAIN(exp_is_within_two_ulp, sigmoid_is_within_four_ulp, the_largest_is_found_wherever_it_is)
