/* gemm_test.c - the product against one written out in float64, on every instruction set that
 * this machine has, for sizes on both sides of every block border.
 *
 * Tolerance: a sum of k products of numbers below 1, each rounded to float32, is within
 * k * 6e-8 of the exact one, and so of ours. */
#include "base/rng.h"
#include "check.h"
#include "nn/gemm.h"
#include "tensor/isa.h"

#include <stdlib.h>

static float *random_floats(size_t n, uint64_t stream)
{
    float *x = malloc((n + 1) * sizeof *x);
    dl_rng rng;
    dl_rng_init(&rng, 7, stream, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = 2 * dl_rng_f32(&rng) - 1;
    x[n] = 12345; /* no function may read or write here */
    return x;
}

static double exact(const dl_gemm_args *g, size_t i, size_t j)
{
    double sum = 0;
    for (size_t l = 0; l < g->k; l++)
        sum += (double)g->a[g->trans_a == 'T' ? l * g->m + i : i * g->k + l] *
               (double)g->b[g->trans_b == 'T' ? j * g->k + l : l * g->n + j];
    return sum;
}

static float workspace[3 * DL_GEMM_WORKSPACE];

static void check_product(char trans_a, char trans_b, size_t m, size_t n, size_t k)
{
    float *a = random_floats(m * k, 1), *b = random_floats(k * n, 2), *c = random_floats(m * n, 3);
    float *before = random_floats(m * n, 3);
    dl_gemm_args g = {trans_a, trans_b, m, n, k, c, a, b, false};
    for (int add = 0; add < 2; add++) {
        memcpy(c, before, m * n * sizeof *c);
        g.add = add;
        for (int part = 0; part < 3; part++) /* as three threads would */
            dl_gemm_part(&g, part, 3, workspace);
        for (size_t i = 0; i < m * n; i++) {
            double want = exact(&g, i / n, i % n) + (add ? (double)before[i] : 0);
            if (!(fabs(want - (double)c[i]) <= (double)k * 6e-8 + 1e-6))
                CHECK_FAIL("%s %c%c %zu x %zu x %zu: element %zu is %g, not %g",
                           dl_isa_name(dl_isa_chosen()), trans_a, trans_b, m, n, k, i, (double)c[i],
                           want);
        }
        CHECK(c[m * n] == 12345);
    }
    free(a), free(b), free(c), free(before);
}

static const size_t sizes[][3] = {{1, 1, 1},      {2, 3, 5},     {12, 32, 16},
                                  {13, 33, 17},   {11, 31, 64},  {24, 385, 40},
                                  {37, 400, 385}, {5, 16, 1024}, {25, 20, 800}};

static void check_all_sizes(void)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int way = 0; way < 4; way++)
            check_product(way & 1 ? 'T' : 'N', way & 2 ? 'T' : 'N', sizes[i][0], sizes[i][1],
                          sizes[i][2]);
}

TEST(products_are_right_on_every_instruction_set)
{
    dl_isa chosen = dl_isa_chosen();
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        check_all_sizes();
    }
    dl_isa_use(chosen);
}

static void check_splits(const float *a, const float *b)
{
    enum { M = 100, N = 70, K = 500 };
    float *whole = random_floats(M * N, 3), *split = random_floats(M * N, 3);
    for (int way = 0; way < 4; way++) {
        dl_gemm_args g = {way & 1 ? 'T' : 'N', way & 2 ? 'T' : 'N', M, N, K, whole, a, b, true};
        dl_gemm(&g, 0, M, workspace);
        g.c = split;
        dl_gemm(&g, 0, 7, workspace);
        dl_gemm(&g, 7, 7, workspace); /* none */
        dl_gemm(&g, 7, 62, workspace);
        dl_gemm(&g, 62, M, workspace);
        CHECK_BYTES(whole, split, M * N * sizeof *whole);
    }
    free(whole), free(split);
}

TEST(an_element_is_the_same_however_the_rows_are_split)
{
    float *a = random_floats(100 * 500, 1), *b = random_floats(500 * 70, 2);
    const dl_isa chosen = dl_isa_chosen();
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        check_splits(a, b);
    }
    dl_isa_use(chosen);
    free(a), free(b);
}

TEST(infinity_and_nan_come_through)
{
    float a[4] = {1, 2, 3, 4}, b[4] = {INFINITY, 1, NAN, 1}, c[4];
    dl_gemm_args g = {'N', 'N', 2, 2, 2, c, a, b, false};
    dl_gemm(&g, 0, 2, workspace);
    CHECK(isnan(c[0]) && isnan(c[2]));
    CHECK_NEAR(3, c[1], 0);
    CHECK_NEAR(7, c[3], 0);
}

TEST_MAIN(products_are_right_on_every_instruction_set,
          an_element_is_the_same_however_the_rows_are_split, infinity_and_nan_come_through)
