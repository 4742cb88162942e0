/* exact_product_test.c - the blocked product against its definition, bit for bit: one chain of fma
 * for each element. Sizes straddle the pairs of rows, the four products and the blocks. */
#include "base/rng.h"
#include "check.h"
#include "outer/exact_product.h"

static void fill(float *x, size_t n, uint64_t seed)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 6), 0);
    for (size_t i = 0; i < n; i++) /* some denormal */
        x[i] = (dl_rng_f32(&rng) - 0.5f) * (dl_rng_u32(&rng) % 8 ? 1 : 1e-38f);
}

static void define(const dl_exact_product *p)
{
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->n; j++) {
            float c = 0;
            for (size_t l = 0; l < p->k; l++)
                c = fmaf(p->a[i * p->k + l], p->b[l * p->n + j], c);
            p->c[i * p->n + j] = c;
        }
}

/* Computes the rows in two calls, as two threads do, and compares all of C. */
static void check_product(size_t m, size_t n, size_t k)
{
    float workspace[DL_EXACT_WORKSPACE];
    float *a = malloc(m * k * sizeof *a), *b = malloc(k * n * sizeof *b);
    float *want = malloc(m * n * sizeof *want), *got = malloc(m * n * sizeof *got);
    const dl_exact_product p = {.c = got, .a = a, .b = b, .m = m, .n = n, .k = k};
    dl_exact_product definition = p;
    fill(a, m * k, 1), fill(b, k * n, 2);
    definition.c = want;
    define(&definition);
    for (size_t cut = 0; cut <= m; cut += 1 + m / 3) {
        memset(got, 0x7f, m * n * sizeof *got);
        dl_exact_product_rows(&p, 0, cut, workspace);
        dl_exact_product_rows(&p, cut, m, workspace);
        if (memcmp(want, got, m * n * sizeof *got) != 0)
            CHECK_FAIL("%zu x %zu by %zu x %zu, cut at row %zu, on %s", m, k, k, n, cut,
                       dl_isa_name(dl_isa_chosen()));
    }
    free(a), free(b), free(want), free(got);
}

TEST(a_product_of_any_size_has_the_bits_of_its_definition_on_every_instruction_set)
{
    static const size_t sizes[][3] = {{1, 1, 1},    {2, 3, 4},   {5, 17, 3},    {7, 16, 16},
                                      {12, 33, 17}, {9, 511, 5}, {4, 513, 33},  {3, 1025, 9},
                                      {64, 64, 64}, {31, 7, 70}, {33, 600, 100}};
    const dl_isa chosen = dl_isa_chosen();
    const dl_fp_state saved = dl_fp_enter();
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            check_product(sizes[i][0], sizes[i][1], sizes[i][2]);
    }
    dl_fp_leave(saved);
    dl_isa_use(chosen);
}

TEST_MAIN(a_product_of_any_size_has_the_bits_of_its_definition_on_every_instruction_set)
