/* geometric_median_test.c - the geometric median against numpy's of 10,000 random cases
 * (tests/goldens/geometric_median.py), and where its hostile inputs may not move it. */
#include "combine/combine_rows.h"
#include "combine/gram.h"

#include "check.h"
#include "goldens/geometric_median.h"

#include <math.h>

enum { MAX_N = 11, MAX_D = 5, CASES = 10000 };

typedef struct scene {
    size_t n, d;
    float x[MAX_N][MAX_D];
    double z[MAX_D];
} scene;

static void solve(scene *s)
{
    double gram[MAX_N * MAX_N] = {0}, norm2[MAX_N], room[6 * MAX_N], c[MAX_N + 1];
    size_t order[MAX_N];
    const float *rows[MAX_N];
    for (size_t i = 0; i < s->n; i++)
        rows[i] = s->x[i];
    dl_gram_block(gram, rows, s->n, s->d);
    for (size_t a = 0; a < s->n; a++)
        for (size_t b = 0; b < a; b++)
            gram[b * s->n + a] = gram[a * s->n + b];
    for (size_t i = 0; i < s->n; i++)
        norm2[i] = gram[i * s->n + i];
    const dl_combine_rule rule = {.combiner = &dl_combiner_geometric_median};
    const dl_combine_view view = {
        .rule = &rule, .n = s->n, .norm2 = norm2, .gram = gram, .room = room, .order = order};
    rule.combiner->coefficients(c, &view);
    for (size_t j = 0; j < s->d; j++) {
        s->z[j] = 0;
        for (size_t i = 0; i < s->n; i++)
            s->z[j] += c[i] * (double)s->x[i][j];
    }
}

/* ---- the cases of geometric_median.py */

static uint64_t below(uint64_t *state, uint64_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % n;
}

static void draw(scene *s, uint64_t *state)
{
    const uint64_t kind = below(state, 6);
    s->n = 1 + (size_t)below(state, 11);
    s->d = kind == 5 ? 1 : 1 + (size_t)below(state, 5);
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->d; j++) {
            double value = ((double)below(state, 2001) - 1000) / 256;
            if (kind == 1) value = nearbyint(value);
            if (kind == 3) value = value / 16 + 3;
            s->x[i][j] = (float)value;
        }
    for (size_t i = 0; i < (s->n - 1) / 2 && (kind == 2 || kind == 4); i++) {
        const double times = kind == 2 ? 0 : ldexp(1, 10 + (int)below(state, 21));
        for (size_t j = 0; j < s->d; j++)
            s->x[i][j] = (float)((double)s->x[i][j] * times);
    }
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median distance from the last input, or 1. */
static double unit_of(const scene *s)
{
    double distance[MAX_N] = {0};
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->d; j++)
            distance[i] = hypot(distance[i], (double)s->x[i][j] - (double)s->x[s->n - 1][j]);
    qsort(distance, s->n, sizeof *distance, ascending);
    return distance[s->n / 2] > 0 ? distance[s->n / 2] : 1;
}

/* A coordinate may differ by about 1e-6 of its case's unit. The weights add to at most 25. The
 * largest difference is 3.2e-6, in case 4440. */
TEST(each_of_ten_thousand_random_cases_gives_the_median_that_numpy_finds)
{
    uint64_t state = 1;
    CHECK_INT(CASES, sizeof medians / sizeof medians[0]);
    for (size_t i = 0; i < CASES; i++) {
        scene s;
        double sum = 0;
        draw(&s, &state);
        solve(&s);
        for (size_t j = 0; j < s.d; j++)
            sum += (double)(1 + (i + 3 * j) % 7) * s.z[j];
        CHECK_NEAR(medians[i], sum / unit_of(&s), 2e-5);
    }
}

/* ---- hostile inputs */

static void check_line(size_t n, const float *x, double expected)
{
    scene s = {.n = n, .d = 1};
    for (size_t i = 0; i < n; i++)
        s.x[i][0] = x[i];
    solve(&s);
    CHECK_NEAR(expected, s.z[0], 1e-6);
}

TEST(senders_of_zeros_within_the_bound_do_not_shorten_the_median)
{
    check_line(5, (float[]){0, 0, 1, 1.1f, .9f}, .9);
    check_line(5, (float[]){1, 0, 1.1f, .9f, 0}, .9); /* in any order */
    check_line(3, (float[]){0, 1, 1}, 1);
}

TEST(an_even_number_on_a_line_gives_the_middle_of_the_middle_two)
{
    check_line(2, (float[]){1, 2}, 1.5);
    check_line(4, (float[]){7, 1, 2, -5}, 1.5);
}

/* Of the largest size that a contribution may have. */
TEST(inputs_of_any_size_within_the_bound_leave_the_median_among_the_others)
{
    for (int places = 0; places < 4; places++) {
        scene s = {.n = 7, .d = 2};
        const float honest[4][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1.5f}};
        for (size_t i = 0; i < 4; i++)
            memcpy(s.x[i + 3 * (places & 1)], honest[i], sizeof honest[i]);
        for (size_t i = 0; i < 3; i++) {
            float *x = s.x[places & 1 ? i : 4 + i];
            x[0] = places & 2 ? 1e18f : 1e9f * (float)(i + 1);
            x[1] = places & 2 ? 1e17f * (float)i : -1e9f;
        }
        solve(&s);
        CHECK(hypot(s.z[0], s.z[1]) < 1.5);
    }
}

TEST_MAIN(each_of_ten_thousand_random_cases_gives_the_median_that_numpy_finds,
          senders_of_zeros_within_the_bound_do_not_shorten_the_median,
          an_even_number_on_a_line_gives_the_middle_of_the_middle_two,
          inputs_of_any_size_within_the_bound_leave_the_median_among_the_others)
