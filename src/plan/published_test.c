/* published_test.c - the papers' tables from the papers' rules, and the same numbers from the
 * independent program tests/goldens/plan_published.py. */
#include "plan/published.h"

#include "check.h"
#include "goldens/plan_published.h"

static const double targets[] = {0.5, 0.8, 0.9, 0.95, 0.99};

static dl_published model_1b(dl_published_method method, uint32_t H, uint32_t tau, double bits)
{
    return (dl_published){.method = method,
                          .parameters = 1e9,
                          .step_s = 0.1,
                          .bits = bits,
                          .layers = 24,
                          .sync_every = H,
                          .fragment_layers = 3,
                          .tau = tau,
                          .replicas = 2};
}

static dl_published model_405b(uint32_t H)
{
    return (dl_published){.method = DL_PUBLISHED_DILOCO,
                          .parameters = 405e9,
                          .step_s = 26.9,
                          .bits = 16,
                          .layers = 126,
                          .sync_every = H,
                          .fragment_layers = 3,
                          .replicas = 2};
}

static int nearest_point(double gbit)
{
    int best = 0;
    for (int i = 1; i < DL_PUBLISHED_POINTS; i++)
        if (fabs(dl_published_point(i) - gbit) < fabs(dl_published_point(best) - gbit)) best = i;
    return best;
}

static int cell(const dl_published *p, double target)
{
    bool beyond;
    CHECK_OK(dl_published_check(p));
    return nearest_point(dl_published_link(&beyond, p, target));
}

/* Cells of the row that are exact; one further than a grid step fails. */
static int exact_cells(dl_published p, const double published[5])
{
    int exact = 0;
    for (int i = 0; i < 5; i++) {
        int off = cell(&p, targets[i]) - nearest_point(published[i]);
        if (off < -1 || off > 1)
            CHECK_FAIL("H=%u tau=%u bits=%g at %g: %d grid steps from %g", p.sync_every, p.tau,
                       p.bits, targets[i], off, published[i]);
        exact += off == 0;
    }
    return exact;
}

TEST(the_published_tables_come_out_within_a_grid_step_and_three_quarters_exactly)
{
    int small = 0, large = 0;
    small += exact_cells(model_1b(DL_PUBLISHED_DATA_PARALLEL, 1, 0, 16),
                         (double[]){86.8, 152.6, 184.2, 222.3, 569.0});
    small += exact_cells(model_1b(DL_PUBLISHED_DILOCO, 100, 0, 16),
                         (double[]){1.4, 6.2, 13.3, 23.3, 86.8});
    small += exact_cells(model_1b(DL_PUBLISHED_STREAMING, 100, 0, 16),
                         (double[]){1.4, 5.2, 9.1, 16.0, 28.1});
    small += exact_cells(model_1b(DL_PUBLISHED_STREAMING, 100, 1, 16),
                         (double[]){1.4, 4.3, 6.2, 9.1, 11.0});
    small += exact_cells(model_1b(DL_PUBLISHED_STREAMING, 100, 1, 4),
                         (double[]){0.4, 0.9, 1.7, 2.0, 3.0});
    large += exact_cells(model_405b(1), (double[]){126.5, 222.3, 268.3, 323.8, 323.8});
    large += exact_cells(model_405b(10), (double[]){19.3, 72.0, 126.5, 184.2, 268.3});
    large += exact_cells(model_405b(50), (double[]){3.6, 13.3, 28.1, 59.6, 184.2});
    large += exact_cells(model_405b(100), (double[]){2.0, 7.5, 16.0, 33.9, 126.5});
    large += exact_cells(model_405b(300), (double[]){0.7, 3.0, 6.2, 13.3, 59.6});
    CHECK_INT(21, small);
    CHECK_INT(18, large);
}

TEST(every_cell_equals_that_of_the_independent_program)
{
    for (size_t r = 0; r < sizeof paper_rows / sizeof paper_rows[0]; r++)
        for (int i = 0; i < 5; i++)
            CHECK_INT(paper_rows[r].cell[i], cell(&paper_rows[r].p, targets[i]));
}

/* A quarter of a million sums in another order: 1e-10 is three times their largest rounding. */
TEST(the_calculators_utilization_equals_that_of_the_independent_program)
{
    for (size_t r = 0; r < sizeof calculator_rows / sizeof calculator_rows[0]; r++) {
        CHECK_OK(dl_published_check(&calculator_rows[r].p));
        CHECK_NEAR(calculator_rows[r].utilization,
                   dl_published_utilization(&calculator_rows[r].p, calculator_rows[r].gbit), 1e-10);
    }
}

TEST(the_calculators_link_is_the_smallest_that_reaches_the_target)
{
    bool beyond;
    dl_published p = model_1b(DL_PUBLISHED_STREAMING, 100, 1, 4);
    p.rules = DL_RULES_CALCULATOR;
    double gbit = dl_published_link(&beyond, &p, 0.9);
    CHECK(!beyond);
    CHECK(dl_published_utilization(&p, gbit) >= 0.9);
    CHECK(dl_published_utilization(&p, gbit * 0.999) < 0.9);
}

TEST(utilization_never_falls_as_the_link_grows)
{
    dl_published p = model_1b(DL_PUBLISHED_STREAMING, 7, 3, 16);
    for (int rules = DL_RULES_PAPER; rules <= DL_RULES_CALCULATOR; rules++) {
        double before = 0;
        p.rules = (dl_published_rules)rules;
        for (int i = 0; i < DL_PUBLISHED_POINTS; i++) {
            double now = dl_published_utilization(&p, dl_published_point(i));
            CHECK(now >= before && now <= 1);
            before = now;
        }
    }
}

TEST(a_target_off_the_grid_is_said)
{
    bool beyond;
    dl_published p = model_1b(DL_PUBLISHED_DATA_PARALLEL, 1, 0, 16);
    p.parameters = 1e15;
    CHECK_NEAR(1000, dl_published_link(&beyond, &p, 0.5), 1e-9);
    CHECK(beyond);
    p.parameters = 1;
    CHECK_NEAR(0.1, dl_published_link(&beyond, &p, 0.5), 1e-12);
    CHECK(!beyond);
    p.parameters = 1e18, p.rules = DL_RULES_CALCULATOR;
    dl_published_link(&beyond, &p, 0.99);
    CHECK(beyond);
}

TEST(impossible_values_are_refused_with_their_flag)
{
    dl_published p = model_1b(DL_PUBLISHED_DILOCO, 100, 100, 16);
    CHECK_STATUS(DILOCO_EREFUSED, dl_published_check(&p));
    CHECK_CONTAINS("--tau 100", diloco_error_text());
    p.tau = 0, p.layers = 0;
    CHECK_STATUS(DILOCO_EINVAL, dl_published_check(&p));
    CHECK_CONTAINS("--layers", diloco_error_text());
    p.layers = 24, p.fragment_layers = 25;
    CHECK_STATUS(DILOCO_EINVAL, dl_published_check(&p));
    CHECK_CONTAINS("--fragment-layers", diloco_error_text());
    p.fragment_layers = 3, p.parameters = NAN;
    CHECK_STATUS(DILOCO_EINVAL, dl_published_check(&p));
    CHECK_CONTAINS("--params", diloco_error_text());
}

TEST_MAIN(the_published_tables_come_out_within_a_grid_step_and_three_quarters_exactly,
          every_cell_equals_that_of_the_independent_program,
          the_calculators_utilization_equals_that_of_the_independent_program,
          the_calculators_link_is_the_smallest_that_reaches_the_target,
          utilization_never_falls_as_the_link_grows, a_target_off_the_grid_is_said,
          impossible_values_are_refused_with_their_flag)
