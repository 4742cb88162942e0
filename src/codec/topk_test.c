/* topk_test.c - topk's choice of values, their layout, and its refusals. */
#include "codec_form.h"

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define KEEP         "server.diloco.codec_keep"
#define VALUES       "server.diloco.codec_values"

static size_t count_kept(const float *y, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        kept += y[i] != 0;
    return kept;
}

/* Every chunk of height x width keeps its k largest exactly, and nothing else. */
static void check_chunks(const float *x, const float *y, size_t rows, size_t cols, size_t height,
                         size_t width, double keep)
{
    for (size_t row = 0; row < rows; row += height)
        for (size_t col = 0; col < cols; col += width) {
            size_t down = dl_size_min(height, rows - row), across = dl_size_min(width, cols - col);
            size_t k = dl_size_max(1, (size_t)lround(keep * (double)(down * across))), kept = 0;
            float least = INFINITY, most = 0; /* kept, and not */
            for (size_t i = 0; i < down * across; i++) {
                size_t at = (row + i / across) * cols + col + i % across;
                if (y[at] != 0) CHECK(y[at] == x[at]);
                if (y[at] != 0) least = fminf(least, fabsf(x[at])), kept++;
                if (y[at] == 0) most = fmaxf(most, fabsf(x[at]));
            }
            CHECK_INT(k, kept);
            CHECK(least >= most);
        }
}

TEST(a_matrix_keeps_the_largest_of_every_64_by_64_also_at_its_edges)
{
    enum { ROWS = 150, COLS = 200 };
    static float x[ROWS * COLS];
    codec_form f = form_open("topk", OPTIONS(KEEP, "0.1"), ROWS, COLS);
    fill_uniform(x, ROWS * COLS, 1);
    check_chunks(x, form_pass(&f, x), ROWS, COLS, 64, 64, 0.1);
    form_close(&f);
}

TEST(one_row_or_one_column_is_cut_into_runs_of_4096)
{
    enum { N = 9000 };
    static float x[N];
    codec_form row = form_open("topk", NULL, 1, N), column = form_open("topk", NULL, N, 1);
    fill_uniform(x, N, 1);
    check_chunks(x, form_pass(&row, x), 1, N, 1, 4096, 1.0 / 64);
    check_chunks(x, form_pass(&column, x), 1, N, 1, 4096, 1.0 / 64);
    CHECK_INT(row.len, column.len);
    CHECK_INT((64 + 64 + 13) * 4 + 64 + 64 + 14, row.len);
    form_close(&row), form_close(&column);
}

TEST(of_equal_ones_the_first_are_kept_and_all_zeros_is_no_trouble)
{
    static float x[4096];
    codec_form f = form_open("topk", NULL, 1, 4096);
    CHECK_INT(0, count_kept(form_pass(&f, x), 4096));
    for (size_t i = 0; i < 4096; i++)
        x[i] = i % 2 ? -5 : 5;
    const float *y = form_pass(&f, x);
    CHECK_INT(64, count_kept(y, 64));
    CHECK_INT(64, count_kept(y, 4096));
    form_close(&f);
}

TEST(sixty_four_of_4096_with_2_bits_are_a_sixth_of_a_bit_an_element)
{
    enum { N = 256 * 256 };
    static float x[N];
    codec_form f = form_open("topk", OPTIONS(VALUES, "2bit"), 256, 256);
    fill_uniform(x, N, 1);
    form_pass(&f, x);
    CHECK_INT(16 + 16 * (64 + 16), f.len);
    CHECK(N * sizeof *x > 202 * f.len); /* with plain indices of 12 bits, 146 in 2508.15706 */
    form_close(&f);
}

TEST(int8_values_are_within_half_a_step_of_their_chunks_largest)
{
    static float x[4096];
    codec_form f = form_open("topk", OPTIONS(VALUES, "int8"), 64, 64);
    fill_uniform(x, 4096, 2);
    x[77] = -2;
    const float *y = form_pass(&f, x);
    CHECK_INT(64, count_kept(y, 4096));
    for (size_t i = 0; i < 4096; i++)
        if (y[i] != 0) CHECK_NEAR(x[i], y[i], 0.5 * 2 / 127 * (1 + 1e-4));
    form_close(&f);
}

/* The definition once more, over the values that the f32 variant keeps. */
TEST(two_bit_values_are_the_means_of_their_bins)
{
    enum { ROWS = 100, COLS = 130, N = ROWS * COLS };
    static float x[N];
    codec_form exact = form_open("topk", NULL, ROWS, COLS);
    codec_form f = form_open("topk", OPTIONS(VALUES, "2bit"), ROWS, COLS);
    fill_uniform(x, N, 1);
    for (size_t i = 0; i < N; i++)
        x[i] *= x[i] * x[i]; /* with a tail, so that all bins have members */
    const float *kept = form_pass(&exact, x), *y = form_pass(&f, x);
    double n = 0, mean = 0, squares = 0, sum[4] = {0}, count[4] = {0};
    for (size_t i = 0; i < N; i++)
        if (kept[i] != 0) n++, mean += (double)kept[i];
    mean /= n;
    for (size_t i = 0; i < N; i++)
        if (kept[i] != 0) squares += ((double)kept[i] - mean) * ((double)kept[i] - mean);
    double scale = 6 * sqrt(squares / (n - 1)) / 4;
    int code[N];
    for (size_t i = 0; i < N; i++) {
        double place = nearbyint(((double)kept[i] - mean) / scale + 2);
        code[i] = (int)fmin(fmax(place, 0), 3);
        if (kept[i] != 0) count[code[i]]++, sum[code[i]] += (double)kept[i];
    }
    for (size_t i = 0; i < N; i++)
        CHECK_NEAR(kept[i] != 0 ? sum[code[i]] / count[code[i]] : 0, y[i], 1e-6);
    form_close(&exact), form_close(&f);
}

TEST(four_values_with_2_bits_are_exact)
{
    static float x[4096];
    codec_form f = form_open("topk", OPTIONS(VALUES, "2bit"), 64, 64);
    static const float four[] = {-4, -1, 1.5f, 0.125f};
    for (size_t i = 0; i < 64; i++)
        x[61 * i + 3] = four[i < 2 ? 0 : i % 2 + 1]; /* mean near 0, -4 far out: three bins */
    CHECK_BYTES(x, form_pass(&f, x), sizeof x);
    form_close(&f);
}

/* The next n bits from *at on, low first. */
static size_t bits_from(const unsigned char *p, size_t *at, size_t n)
{
    size_t x = 0;
    for (size_t i = 0; i < n; i++, (*at)++)
        x |= (size_t)(p[*at / 8] >> *at % 8 & 1) << i;
    return x;
}

static size_t code_bits(size_t m, size_t k, size_t low)
{
    size_t above = (m - 1) >> low;
    return k * low + (above ? k + above : 0);
}

/* The index part as docs/formats.md has it, read bit by bit, is where x is not zero. */
static void check_code(const codec_form *f, const float *x, size_t m, size_t k)
{
    size_t low = 0, at = 0, above = 0, least = 0, lows[4096];
    for (size_t l = 1; l <= 12; l++)
        if (code_bits(m, k, l) <= code_bits(m, k, low) && (m - 1) >> (l - 1)) low = l;
    for (size_t i = 0; i < k; i++)
        lows[i] = bits_from(f->payload, &at, low);
    const bool has_unary = (m - 1) >> low;
    at = dl_size_round_up(at, 8);
    for (size_t i = 0; i < k; i++) {
        while (has_unary && !bits_from(f->payload, &at, 1))
            above++;
        const size_t index = above << low | lows[i];
        CHECK(index >= least && index < m && x[index] != 0);
        least = index + 1;
    }
    CHECK_INT(dl_size_round_up(k * low, 8) / 8 +
                  dl_size_round_up(has_unary ? k + ((m - 1) >> low) : 0, 8) / 8 + 4 * k,
              f->len);
}

TEST(indices_are_in_the_shortest_code_of_elias_and_fano)
{
    static const size_t sizes[] = {1, 2, 3, 4, 5, 17, 64, 100, 127, 1000, 4095, 4096};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t k = 1, m = sizes[s]; k <= m; k += k < 70 ? 1 : k / 2) {
            float x[4096] = {0};
            char keep[32];
            snprintf(keep, sizeof keep, "%.17g", (double)k / (double)m);
            codec_form f = form_open("topk", OPTIONS(KEEP, keep), 1, m);
            for (size_t i = 0; i < k; i++) /* the last among them */
                x[m - 1 - (i * i % 7 + i * 977 % m) % m] = 1;
            size_t n = count_kept(x, m);
            for (size_t i = 0; n < k; i++)
                if (x[i] == 0) x[i] = 1, n++;
            CHECK_BYTES(x, form_pass(&f, x), m * sizeof *x);
            check_code(&f, x, m, k);
            form_close(&f);
        }
}

TEST(indices_out_of_order_repeated_outside_too_many_and_too_few_are_refused)
{
    float x[100] = {[5] = 3, [70] = -2, [71] = 4, [99] = 1};
    codec_form f = form_open("topk", OPTIONS(KEEP, "0.04"), 1, 100);
    form_pass(&f, x);
    CHECK_INT(4 + 16, f.len);
    /* Of 4 low bits 5, 6, 7 and 3; above them 0, 4, 4 and 6: 1 0000 11 00 1. */
    static const unsigned char indices[] = {0x65, 0x37, 0x61, 0x02};
    CHECK_BYTES(indices, f.payload, sizeof indices);
    form_refuses(&f, 1, 0x47, "index 3, 100, of a chunk of 100 is outside");
    form_refuses(&f, 1, 0x36, "index 2, 70, of a chunk of 100 is not above");
    form_refuses(&f, 1, 0x35, "index 2, 69, of a chunk of 100 is not above");
    form_refuses(&f, 3, 0x06, "after a chunk's indices");
    form_refuses(&f, 2, 0x63, "5 ones for 4 indices");
    form_refuses(&f, 3, 0, "3 ones for 4 indices");
    form_close(&f);
}

TEST(plain_indices_are_refused_out_of_order_out_of_range_and_with_bits_after_the_end)
{
    float x[100] = {[5] = 3, [70] = -2};
    codec_form f = form_open("topk", OPTIONS(KEEP, "0.02"), 1, 100);
    form_pass(&f, x);
    CHECK_INT(2 + 8, f.len);
    CHECK_INT(5 | 70 << 7, f.payload[0] | f.payload[1] << 8);
    form_refuses(&f, 0, 100, "is outside");
    form_refuses(&f, 1, 4 >> 1, "index 1, 4, of a chunk of 100 is not above");
    form_refuses(&f, 1, 100 >> 1, "index 1, 100, of a chunk of 100 is outside");
    form_refuses(&f, 1, 0x40 | 70 >> 1, "after a chunk's indices");
    form_close(&f);
}

TEST(values_that_are_not_sound_are_refused)
{
    float x[100] = {[5] = 3, [70] = -2, [99] = 1};
    codec_form f = form_open("topk", OPTIONS(KEEP, "0.03", VALUES, "int8"), 1, 100);
    form_pass(&f, x);
    CHECK_INT(3 + 4 + 3, f.len);
    form_refuses(&f, 6, 0xff, "a scale");
    form_refuses(&f, 8, 0x80, "-128");
    form_close(&f);
    f = form_open("topk", OPTIONS(KEEP, "0.03", VALUES, "2bit"), 1, 100);
    form_pass(&f, x);
    CHECK_INT(16 + 3 + 1, f.len);
    form_refuses(&f, 19, 0xff, "after a chunk's last value");
    f.payload[2] = 0x80, f.payload[3] = 0x7f; /* infinity in the codebook */
    CHECK_STATUS(DILOCO_EPROTO, form_check(&f));
    CHECK_CONTAINS("codebook", diloco_error_text());
    form_close(&f);
    f = form_open("topk", OPTIONS(KEEP, "0.03"), 1, 100);
    form_pass(&f, x);
    put_float(f.payload + 7, NAN);
    CHECK_STATUS(DILOCO_ENUMERIC, form_check(&f));
    CHECK_INT(70, f.index);
    form_close(&f);
}

/* SWM-25: with the residual added, what is always too small to be chosen is sent in the end. */
TEST(a_small_constant_component_is_sent_only_with_error_feedback)
{
    enum { N = 64, ENTRIES = 200 };
    for (int feedback = 0; feedback < 2; feedback++) {
        float a[N], residual[N] = {0}, sent = 0;
        codec_form f = form_open("topk", OPTIONS(KEEP, "0.03"), 1, N);
        for (int e = 0; e < ENTRIES; e++) {
            for (size_t i = 0; i < N; i++)
                a[i] = (i < 2 ? 1 : 0.02f) + (feedback ? residual[i] : 0);
            const float *y = form_pass(&f, a);
            sent += y[40];
            for (size_t i = 0; i < N; i++)
                residual[i] = a[i] - y[i];
        }
        CHECK(feedback ? sent > 0.02f * ENTRIES / 2 : sent == 0);
        form_close(&f);
    }
}

TEST_MAIN(a_matrix_keeps_the_largest_of_every_64_by_64_also_at_its_edges,
          one_row_or_one_column_is_cut_into_runs_of_4096,
          of_equal_ones_the_first_are_kept_and_all_zeros_is_no_trouble,
          sixty_four_of_4096_with_2_bits_are_a_sixth_of_a_bit_an_element,
          int8_values_are_within_half_a_step_of_their_chunks_largest,
          two_bit_values_are_the_means_of_their_bins, four_values_with_2_bits_are_exact,
          indices_are_in_the_shortest_code_of_elias_and_fano,
          indices_out_of_order_repeated_outside_too_many_and_too_few_are_refused,
          plain_indices_are_refused_out_of_order_out_of_range_and_with_bits_after_the_end,
          values_that_are_not_sound_are_refused,
          a_small_constant_component_is_sent_only_with_error_feedback)
