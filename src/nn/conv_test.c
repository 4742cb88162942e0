/* conv_test.c - the three products against convolutions written out in float64, on every
 * instruction set that this machine has, as one part and as three.
 *
 * Tolerance: a sum of n products of numbers below 1, each rounded to float32, is within n * 6e-8
 * of the exact one. */
#include "base/rng.h"
#include "check.h"
#include "nn/conv.h"
#include "tensor/isa.h"

#include <stdlib.h>

typedef struct shape {
    size_t high, wide, in, out, size, stride, pad, rows;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 0, 1},     {4, 4, 1, 6, 3, 1, 1, 5},    {5, 6, 3, 16, 3, 1, 1, 12},
    {7, 5, 33, 31, 3, 2, 1, 13},  {4, 3, 6, 40, 5, 1, 2, 25},  {9, 9, 2, 3, 7, 2, 3, 4},
    {2, 2, 400, 500, 3, 1, 1, 3}, {3, 3, 96, 64, 1, 2, 0, 24}, {11, 11, 1, 2, 11, 1, 0, 2},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct arrays {
    shape s;
    dl_window w;
    size_t n_x, n_y, n_w;
    float *x, *y, *weight, *bias, *packed, *workspace;
} arrays;

static float *floats(size_t n, uint64_t stream)
{
    float *x = malloc((n + 1) * sizeof *x);
    dl_rng rng;
    dl_rng_init(&rng, 7, stream, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = 2 * dl_rng_f32(&rng) - 1;
    x[n] = 12345; /* no function may write here */
    return x;
}

static void open_arrays(arrays *a, const shape *s)
{
    *a = (arrays){.s = *s};
    a->w =
        dl_window_over((dl_planes){0, s->high, s->wide, s->in}, s->out, s->size, s->stride, s->pad);
    a->n_x = s->high * s->wide * s->rows * s->in;
    a->n_y = dl_window_out_places(&a->w) * s->rows * s->out;
    a->n_w = s->out * s->in * s->size * s->size;
    a->x = floats(a->n_x, 1), a->y = floats(a->n_y, 2);
    a->weight = floats(a->n_w, 3), a->bias = floats(s->out, 4);
    size_t packed = dl_size_max(dl_conv_packed(&a->w, false), dl_conv_packed(&a->w, true));
    a->packed = floats(packed, 5);
    a->workspace = floats(dl_conv_workspace(&a->w, s->rows) + DL_CONV_BESIDE, 6);
}

static void close_arrays(arrays *a)
{
    CHECK(a->x[a->n_x] == 12345 && a->y[a->n_y] == 12345 && a->weight[a->n_w] == 12345);
    free(a->x), free(a->y), free(a->weight), free(a->bias), free(a->packed), free(a->workspace);
}

/* Call fn for every product x[in] * weight[w] that y[out] is a sum of. */
static void each_product(const arrays *a,
                         void (*fn)(void *user, size_t out, size_t in, size_t weight), void *user)
{
    const shape *s = &a->s;
    for (size_t y = 0; y < a->w.out_height; y++)
        for (size_t x = 0; x < a->w.out_width; x++)
            for (size_t i = 0; i < s->size; i++)
                for (size_t j = 0; j < s->size; j++) {
                    size_t row = y * s->stride + i, column = x * s->stride + j;
                    if (row < s->pad || row - s->pad >= s->high) continue;
                    if (column < s->pad || column - s->pad >= s->wide) continue;
                    size_t to = y * a->w.out_width + x;
                    size_t from = (row - s->pad) * s->wide + column - s->pad;
                    for (size_t r = 0; r < s->rows; r++)
                        for (size_t o = 0; o < s->out; o++)
                            for (size_t c = 0; c < s->in; c++)
                                fn(user, (to * s->rows + r) * s->out + o,
                                   (from * s->rows + r) * s->in + c,
                                   ((o * s->in + c) * s->size + i) * s->size + j);
                }
}

typedef struct sums {
    const arrays *a;
    double *sum;
} sums;

static void add_y(void *user, size_t out, size_t in, size_t weight)
{
    const sums *s = user;
    s->sum[out] += (double)s->a->x[in] * (double)s->a->weight[weight];
}
static void add_dx(void *user, size_t out, size_t in, size_t weight)
{
    const sums *s = user;
    s->sum[in] += (double)s->a->y[out] * (double)s->a->weight[weight];
}
static void add_dw(void *user, size_t out, size_t in, size_t weight)
{
    const sums *s = user;
    s->sum[weight] += (double)s->a->x[in] * (double)s->a->y[out];
}

static void check_sums(const arrays *a, const double *want, const float *got, size_t n,
                       size_t terms, const char *what)
{
    const shape *s = &a->s;
    for (size_t i = 0; i < n; i++)
        if (!(fabs(want[i] - (double)got[i]) <= (double)terms * 6e-8 + 1e-6))
            CHECK_FAIL("%s, %s: %zu x %zu x %zu -> %zu, %zu/%zu+%zu, %zu rows: %zu is %g, not %g",
                       dl_isa_name(dl_isa_chosen()), what, s->high, s->wide, s->in, s->out, s->size,
                       s->stride, s->pad, s->rows, i, (double)got[i], want[i]);
}

static void check_y(arrays *a, int n_parts)
{
    const dl_conv c = {&a->w, a->s.rows, false};
    double *want = calloc(a->n_y, sizeof *want);
    for (size_t i = 0; i < a->n_y; i++)
        want[i] = (double)a->bias[i % a->s.out];
    each_product(a, add_y, &(sums){a, want});
    for (int part = 0; part < n_parts; part++)
        dl_conv_pack(a->packed, a->weight, &c, part, n_parts);
    for (int part = 0; part < n_parts; part++)
        dl_conv_product(a->y, a->x, a->packed, a->bias, &c, a->workspace, part, n_parts);
    check_sums(a, want, a->y, a->n_y, a->s.in * a->s.size * a->s.size, "y");
    free(want);
}

static void check_dx(arrays *a, int n_parts)
{
    const dl_conv c = {&a->w, a->s.rows, true};
    double *want = calloc(a->n_x, sizeof *want);
    float *dx = floats(a->n_x, 8);
    each_product(a, add_dx, &(sums){a, want});
    for (int part = 0; part < n_parts; part++)
        dl_conv_pack(a->packed, a->weight, &c, part, n_parts);
    for (int part = 0; part < n_parts; part++)
        dl_conv_product(dx, a->y, a->packed, NULL, &c, a->workspace, part, n_parts);
    check_sums(a, want, dx, a->n_x, 4 * a->s.out * a->s.size * a->s.size, "dx");
    CHECK(dx[a->n_x] == 12345);
    free(want), free(dx);
}

static void check_dw(arrays *a, int n_parts)
{
    const dl_conv c = {&a->w, a->s.rows, true};
    double *want = calloc(a->n_w, sizeof *want);
    float *dw = floats(a->n_w, 9);
    each_product(a, add_dw, &(sums){a, want});
    for (size_t i = 0; i < a->n_w; i++)
        want[i] *= 2;
    for (int add = 0; add < 2; add++) {
        for (int part = 0; part < n_parts; part++)
            dl_conv_weights(a->packed, a->x, a->y, &c, a->workspace, part, n_parts);
        for (int part = 0; part < n_parts; part++)
            dl_conv_unpack(dw, a->packed, &c, add, part, n_parts);
    }
    size_t terms = 8 * dl_window_out_places(&a->w) * a->s.rows * a->s.in;
    check_sums(a, want, dw, a->n_w, terms, "dw");
    CHECK(dw[a->n_w] == 12345);
    free(want), free(dw);
}

static void on_each(void (*check)(arrays *a, int n_parts))
{
    dl_isa before = dl_isa_chosen();
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        for (int i = 0; i < N_SHAPES; i++)
            for (int n_parts = 1; n_parts <= 3; n_parts += 2) {
                arrays a;
                open_arrays(&a, &shapes[i]);
                check(&a, n_parts);
                close_arrays(&a);
            }
    }
    dl_isa_use(before);
}

TEST(a_convolution_is_its_sum_over_the_taps)
{
    on_each(check_y);
}
TEST(the_input_gradient_is_the_sum_seen_from_the_other_side)
{
    on_each(check_dx);
}
TEST(the_weight_gradient_is_the_sum_over_places_and_rows)
{
    on_each(check_dw);
}

/* The taps inside the image, and the taps on a place, are the same pairs. */
TEST(both_lists_of_taps_agree)
{
    for (int i = 0; i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        dl_window w =
            dl_window_over((dl_planes){0, s->high, s->wide, 1}, 1, s->size, s->stride, s->pad);
        dl_tap taps[DL_WINDOW_MAX_TAPS], back[DL_WINDOW_MAX_TAPS];
        size_t n_pairs = 0, n_back = 0;
        for (size_t out = 0; out < dl_window_out_places(&w); out++) {
            size_t n = dl_window_list(taps, &w, out);
            n_pairs += n;
            for (size_t k = 0; k < n; k++) {
                size_t m = dl_window_list_back(back, &w, taps[k].place), found = 0;
                for (size_t b = 0; b < m; b++)
                    found += back[b].tap == taps[k].tap && back[b].place == out;
                CHECK_INT(1, found);
            }
        }
        for (size_t in = 0; in < dl_window_in_places(&w); in++)
            n_back += dl_window_list_back(back, &w, in);
        CHECK_INT(n_pairs, n_back);
    }
}

TEST_MAIN(a_convolution_is_its_sum_over_the_taps,
          the_input_gradient_is_the_sum_seen_from_the_other_side,
          the_weight_gradient_is_the_sum_over_places_and_rows, both_lists_of_taps_agree)
