/* select_test.c - the k largest against sorting, with many ties, for every k. */
#include "codec/select.h"

#include "codec_form.h"

enum { MOST = 300 };

/* Is x[i] among the k largest when ties go to the lowest index? */
static bool among(const float *x, size_t n, size_t k, size_t i, dl_order order)
{
    size_t before = 0;
    for (size_t j = 0; j < n; j++) {
        int32_t a = dl_key(x[j], order), b = dl_key(x[i], order);
        before += a > b || (a == b && j < i);
    }
    return before < k;
}

static void check_all(const float *x, size_t n, dl_order order)
{
    unsigned char marks[MOST];
    for (size_t k = 1; k <= n; k += 1 + k / 8) {
        dl_selection s = dl_select(x, n, k, order);
        dl_select_marks(marks, x, n, order, s.least);
        CHECK(dl_select_bound(x, n, k, order) <= s.least);
        for (size_t i = 0; i < n; i++) {
            bool selected = marks[i] && dl_selected(&s, x[i]);
            if (selected != among(x, n, k, i, order))
                CHECK_FAIL("%zu of %zu: element %zu, %g", k, n, i, (double)x[i]);
        }
    }
}

TEST(the_selection_is_that_of_sorting_with_ties_to_the_lowest_index)
{
    static const dl_order orders[] = {{0x7fffffff, 0}, {0xffffffff, 0x80000000}};
    static const float few[] = {0, -0.0f, 1, -1, 0x1p-149f, 3e38f, -3e38f, 1};
    static float x[MOST];
    for (size_t n = 1; n <= MOST; n += 1 + n / 3)
        for (int o = 0; o < 2; o++) {
            fill_uniform(x, n, 1);
            check_all(x, n, orders[o]);
            for (size_t i = 0; i < n; i++)
                x[i] = few[(i * i + i / 3) % 8];
            check_all(x, n, orders[o]);
            for (size_t i = 0; i < n; i++)
                x[i] = -0.0f;
            check_all(x, n, orders[o]);
        }
}

TEST(few_more_than_k_reach_the_bound)
{
    static const dl_order by_size = {0x7fffffff, 0};
    enum { N = 4096, K = 64 };
    static float x[N];
    size_t n_reach = 0;
    fill_uniform(x, N, 1);
    int32_t bound = dl_select_bound(x, N, K, by_size);
    for (size_t i = 0; i < N; i++)
        n_reach += dl_key(x[i], by_size) >= bound;
    CHECK(n_reach >= K && n_reach < 2 * K);
}

TEST_MAIN(few_more_than_k_reach_the_bound,
          the_selection_is_that_of_sorting_with_ties_to_the_lowest_index)
