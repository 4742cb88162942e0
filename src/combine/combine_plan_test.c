/* combine_plan_test.c - every combiner on small vectors: hand-worked values, numbers of
 * tests/goldens/combiners.py (definitions written out naively), and one suite that all rows pass.
 * The walk over real fragments is outer/'s test. */
#include "base/rng.h"
#include "combine/combine_plan.h"
#include "combine/gram.h"
#include "combine/mean.h"
#include "combine/order.h"

#include "check.h"

enum { MAX_N = 70, MAX_D = 130 };

typedef struct scene {
    dl_combine_rule rule;
    float x[MAX_N][MAX_D], weight[MAX_N], G[MAX_D];
    float previous[MAX_D]; /* G of the commit before */
    size_t n, d, n_rejected;
    bool plain;
    uint64_t seed;
    dl_combine_plan plan; /* of the last combination; its memory is gone */
    size_t first_used;
} scene;

static dl_combine_rule rule_of(const char *combiner)
{
    dl_combine_rule rule = dl_combine_mean();
    rule.combiner = dl_combiner_find(combiner);
    CHECK(rule.combiner);
    rule.trim = 200000000;
    rule.byzantine = 1;
    rule.bucket_size = 2;
    rule.clip_radius = 1;
    return rule;
}

static void apply(scene *s, dl_combine_plan *plan, const double *norm2)
{
    static float mixed[MAX_N][MAX_D], room[(MAX_N + 1) * DL_SORT_LANES];
    const float *used[MAX_N], *inputs[MAX_N];
    for (size_t u = 0; u < plan->n_used; u++)
        used[u] = s->x[plan->used[u]];
    if (!plan->combiner->elements) {
        dl_weighted_sum(s->G, used, plan->coef, plan->n_used, s->d);
        for (size_t i = 0; i < s->d; i++)
            s->G[i] = fmaf(plan->previous_coef, s->previous[i], s->G[i]);
        return;
    }
    for (size_t i = 0; i < plan->n_inputs; i++) {
        inputs[i] = plan->mixed ? mixed[i] : used[i];
        if (plan->mixed)
            dl_weighted_sum(mixed[i], used, plan->coef + i * plan->n_used, plan->n_used, s->d);
    }
    plan->combiner->elements(s->G, inputs, plan->n_inputs, &plan->rule, room, s->d);
    if (s->rule.rescale && s->rule.combiner->ignores_weights)
        dl_combine_plan_rescale(plan, norm2, dl_norm2(s->G, s->d));
    for (size_t i = 0; i < s->d; i++)
        s->G[i] *= plan->scale;
}

static diloco_status combine(scene *s)
{
    double norm2[MAX_N];
    const float *x[MAX_N + 1];
    dl_arena measure = {0}, arena;
    dl_combine_plan plan;
    dl_combine_plan_layout(&plan, &measure, &s->rule, s->n, 1);
    CHECK_OK(dl_arena_init(&arena, measure.used));
    dl_combine_plan_layout(&plan, &arena, &s->rule, s->n, 1);
    for (size_t m = 0; m < s->n; m++) {
        x[m] = s->x[m];
        norm2[m] = dl_norm2(x[m], s->d);
    }
    x[s->n] = s->previous;
    diloco_status status = dl_combine_plan_begin(&plan, &s->rule, s->n, s->n_rejected);
    if (!status) {
        dl_combine_measured measured = {.weight = s->weight,
                                        .norm2 = norm2,
                                        .n_parts = 1,
                                        .plain = &s->plain,
                                        .bucket_seed = s->seed};
        if (plan.measure) dl_gram_block(plan.gram, x, plan.n_rows, s->d);
        dl_combine_plan_finish(&plan, &measured);
        apply(s, &plan, norm2);
        s->first_used = plan.used[0];
    }
    s->plan = plan;
    dl_arena_deinit(&arena);
    return status;
}

/* n members of d elements each, row by row; weights all the same. */
static scene *scene_of(const char *combiner, size_t n, size_t d, const float *values)
{
    static scene s;
    memset(&s, 0, sizeof s);
    s.rule = rule_of(combiner);
    s.n = n, s.d = d;
    for (size_t m = 0; m < n; m++) {
        s.weight[m] = (float)(1 / (double)n);
        memcpy(s.x[m], values + m * d, d * sizeof(float));
    }
    return &s;
}

static void gives(scene *s, const double *expected, double tolerance)
{
    CHECK_OK(combine(s));
    for (size_t i = 0; i < s->d; i++)
        CHECK_NEAR(expected[i], s->G[i], tolerance);
}

static void gives1(const char *combiner, size_t n, const float *values, double expected)
{
    gives(scene_of(combiner, n, 1, values), &expected, 1e-6);
}

/* ---- by element */

TEST(swm18_trimming_a_fifth_of_five_drops_one_at_either_end)
{
    gives1("trimmed_mean", 5, (float[]){1, 2, 3, 4, 100}, 3);
    gives1("trimmed_mean", 5, (float[]){100, 4, 3, 2, 1}, 3);
    gives1("trimmed_mean", 10, (float[]){1, 2, 3, 4, 5, 6, 7, 8, 1000, -1000}, 4.5);
}

TEST(d19_trim_counts_are_found_in_decimal_integers)
{
    /* floor(.29 * 100) is 28 in binary */
    static dl_config config;
    dl_combine_rule rule;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "combiner", "trimmed_mean", "test"));
    CHECK_OK(dl_config_set(&config, "trim", "0.29", "test"));
    CHECK_OK(dl_combine_rule_of(&rule, &config));
    CHECK_INT(29, dl_combine_tolerated(&rule, 100));
    CHECK_INT(28, dl_combine_tolerated(&rule, 99));
    CHECK_INT(4, dl_combine_needed(&rule)); /* .29 * 3 = .87, .29 * 4 = 1.16 */
    CHECK_OK(dl_config_set(&config, "trim", "0.2", "test"));
    CHECK_OK(dl_combine_rule_of(&rule, &config));
    CHECK_INT(5, dl_combine_needed(&rule));
    CHECK_INT(0, dl_combine_tolerated(&rule, 4));
    CHECK_INT(1, dl_combine_tolerated(&rule, 9));
    CHECK_INT(2, dl_combine_tolerated(&rule, 10));
    CHECK_OK(dl_config_set(&config, "trim", "0", "test"));
    CHECK_OK(dl_combine_rule_of(&rule, &config));
    CHECK_INT(1, dl_combine_needed(&rule));
    CHECK_INT(0, dl_combine_tolerated(&rule, 100));
}

TEST(a_trim_of_0_is_the_mean)
{
    scene *s = scene_of("trimmed_mean", 4, 1, (float[]){1, 2, 3, 100});
    s->rule.trim = 0;
    gives(s, (double[]){26.5}, 1e-6);
}

TEST(the_median_of_an_even_number_is_the_mean_of_the_middle_two)
{
    gives1("median", 5, (float[]){9, -1, 2, 100, -50}, 2);
    gives1("median", 4, (float[]){1, 100, 3, 2}, 2.5);
    gives1("median", 3, (float[]){1e18f, 1e18f, -1e18f}, 1e18f);
}

TEST(the_network_sorts_any_number_of_members)
{
    dl_rng rng;
    dl_rng_init(&rng, 3, DL_STREAM(DL_STREAM_TEST, 7), 0);
    for (size_t n = 3; n <= MAX_N; n++) {
        static float values[MAX_N * MAX_D];
        for (size_t i = 0; i < n * MAX_D; i++)
            values[i] = (float)(dl_rng_u32(&rng) % 9) - 4; /* many ties */
        scene *s = scene_of("median", n, MAX_D, values);
        CHECK_OK(combine(s));
        for (size_t i = 0; i < MAX_D; i++) {
            double column[MAX_N];
            size_t order[MAX_N];
            for (size_t m = 0; m < n; m++)
                column[m] = (double)s->x[m][i];
            CHECK(dl_median(order, column, n) == (double)s->G[i]);
        }
    }
}

/* Zeros of both signs among them: the mean of nothing but zeros is 0, never -0. */
TEST(few_members_are_trimmed_by_any_number_to_the_bits_of_the_formula)
{
    dl_rng rng;
    dl_rng_init(&rng, 3, DL_STREAM(DL_STREAM_TEST, 8), 0);
    for (size_t n = 1; n <= 10; n++)
        for (uint32_t drop = 0; 2 * drop < n; drop++) {
            static float values[10 * MAX_D];
            for (size_t i = 0; i < n * MAX_D; i++) {
                values[i] = (float)((double)dl_rng_u32(&rng) * 1e-9 - 2);
                if (dl_rng_u32(&rng) % 3 == 0) values[i] = dl_rng_u32(&rng) % 2 ? 0.0f : -0.0f;
            }
            scene *s = scene_of("trimmed_mean", n, MAX_D, values);
            s->rule.trim = (uint32_t)((1000000000 * (uint64_t)drop + n - 1) / n);
            CHECK_OK(combine(s));
            for (size_t i = 0; i < MAX_D; i++) {
                double column[MAX_N];
                size_t order[MAX_N];
                float sum = 0;
                for (size_t m = 0; m < n; m++)
                    column[m] = (double)s->x[m][i];
                dl_order(order, column, n);
                for (size_t k = drop; k < n - drop; k++)
                    sum += s->x[order[k]][i];
                sum /= (float)(n - 2 * drop);
                CHECK_BYTES(&sum, &s->G[i], sizeof sum);
            }
        }
}

TEST(an_order_is_stable_and_complete)
{
    const double key[] = {3, 1, 2, 1, 3, 0, 1};
    const size_t expected[] = {5, 1, 3, 6, 2, 0, 4};
    size_t order[7];
    dl_order(order, key, 7);
    CHECK_BYTES(expected, order, sizeof order);
    CHECK(dl_median(order, key, 7) == 1 && dl_median(order, key, 2) == 2);
}

TEST(each_rule_states_the_members_it_needs_and_tolerates)
{
    static const struct {
        const char *name;
        size_t f, needed, of_11, nnm_of_11;
    } rows[] = {{"mean", 1, 1, 0, 0},         {"clipped_mean", 1, 1, 0, 0},
                {"rda", 1, 1, 0, 0},          {"median", 2, 5, 5, 2},
                {"trimmed_mean", 2, 5, 2, 2}, {"krum", 2, 7, 2, 2},
                {"multi_krum", 2, 7, 2, 2},   {"bulyan", 2, 11, 2, 2},
                {"krum", 4, 11, 4, 4},        {"geometric_median", 2, 5, 5, 2},
                {"bulyan", 3, 15, 0, 0},      {"median", 0, 1, 5, 0},
                {"centered_clip", 2, 5, 5, 2}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        dl_combine_rule rule = rule_of(rows[k].name);
        rule.byzantine = rows[k].f;
        CHECK_INT(rows[k].needed, dl_combine_needed(&rule));
        CHECK_INT(rows[k].of_11, dl_combine_tolerated(&rule, 11));
        if (!rule.combiner->ignores_weights) continue;
        rule.mixing = DL_MIX_NNM;
        CHECK_INT(rows[k].nnm_of_11, dl_combine_tolerated(&rule, 11));
        rule.mixing = DL_MIX_BUCKETING;
        rule.bucket_size = 3; /* 3 times as many, less two that may fill the last bucket */
        CHECK_INT(3 * (rows[k].needed - 1) + 1, dl_combine_needed(&rule));
        CHECK_INT(dl_combine_inputs(&rule, dl_combine_needed(&rule)), rows[k].needed);
    }
}

/* The rule of f for n members of which one was rejected is that of f - 1 for the others. */
TEST(a_rejected_member_counts_against_f_where_too_few_are_left)
{
    const struct {
        const char *name;
        size_t f, left, rejected; /* left: fewer than f needs */
        double expected;
    } rows[] = {{"krum", 1, 4, 1, 2},     {"multi_krum", 1, 4, 1, 2.5},
                {"bulyan", 1, 6, 1, 3.5}, {"trimmed_mean", 1, 4, 1, 2.5},
                {"median", 1, 2, 1, 1.5}, {"geometric_median", 1, 2, 1, 1.5},
                {"krum", 2, 5, 2, 2},     {"median", 2, 3, 2, 2}};
    const float line[] = {1, 2, 3, 4, 5, 6};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        scene *s = scene_of(rows[k].name, rows[k].left, 1, line);
        s->rule.byzantine = rows[k].f;
        CHECK_STATUS(DILOCO_ENUMERIC, combine(s));
        s->n_rejected = rows[k].rejected;
        gives(s, &rows[k].expected, 1e-6);
        CHECK(!s->plan.fell_back);
    }
    scene *s = scene_of("krum", 6, 1, line); /* enough for f: nothing changes */
    s->n_rejected = 1;
    CHECK_OK(combine(s));
    CHECK_INT(1, s->plan.rule.byzantine);
    s = scene_of("krum", 2, 1, line); /* too few for f = 0, too */
    s->n_rejected = 5;
    CHECK_STATUS(DILOCO_ENUMERIC, combine(s));
}

/* ---- whole vectors: tests/goldens/combiners.py */

static const float X[8 * 3] = {5, -3, -2, 2,  -5, 6, 0,  6,  -5, -3, 5,  5,
                               4, 5,  4,  -5, 0,  6, -9, -4, 1,  6,  -3, 6};

static void golden(const char *combiner, dl_mixing mixing, double a, double b, double c)
{
    scene *s = scene_of(combiner, 8, 3, X);
    s->rule.mixing = mixing;
    gives(s, (double[]){a, b, c}, 2e-6); /* a few roundings of numbers up to 9 */
    CHECK(!s->plan.fell_back);
}

TEST(swm20_robust_rules_give_the_values_of_their_definitions)
{
    golden("median", DL_MIX_NONE, 1, -1.5, 4.5);
    golden("trimmed_mean", DL_MIX_NONE, 0.5, 0, 3.33333333);
    golden("multi_krum", DL_MIX_NONE, 1.28571429, 0.714285714, 2.85714286);
    golden("bulyan", DL_MIX_NONE, 2.75, -2.75, 5.5);
    golden("geometric_median", DL_MIX_NONE, 0.215051873, 0.210238683, 3.25030554);
}

TEST(krum_takes_whole_vectors_squared_distances_and_n_f_2_neighbours)
{
    /* plain distances would choose (2, -5, 6), n - f - 1 neighbours (4, 5, 4), the first two and
     * the last element by themselves (5, -3, 5) */
    golden("krum", DL_MIX_NONE, -5, 0, 6);
    scene *s = scene_of("krum", 8, 3, X);
    CHECK_OK(combine(s));
    CHECK_INT(1, s->plan.n_used);
    CHECK_INT(5, s->first_used); /* the others are not read */
}

TEST(krum_breaks_ties_by_the_order_of_members)
{
    scene *s = scene_of("krum", 5, 1, (float[]){-2, -1, 0, 1, 2});
    CHECK_OK(combine(s));
    CHECK(s->G[0] == -1 || s->G[0] == 0); /* scores 5, 2, 2, 2, 5 */
    CHECK_INT(1, s->first_used);
}

TEST(nearest_neighbour_mixing_goes_before_any_robust_rule)
{
    golden("krum", DL_MIX_NNM, 1.28571429, 0.714285714, 2.85714286);
    golden("median", DL_MIX_NNM, 0, 0.642857143, 2.85714286);
    golden("bulyan", DL_MIX_NNM, -0.392857143, 0.714285714, 2.85714286);
    golden("geometric_median", DL_MIX_NNM, 0.342100659, 0.241281418, 2.97844249);
}

TEST(buckets_are_means_of_a_shuffle_that_the_seed_decides)
{
    float values[9];
    bool differs = false;
    for (int m = 0; m < 9; m++)
        values[m] = (float)(1 << m);
    for (uint64_t seed = 0; seed < 20; seed++) {
        scene *s = scene_of("trimmed_mean", 9, 1, values);
        s->rule.mixing = DL_MIX_BUCKETING;
        s->seed = seed;
        CHECK_OK(combine(s));
        CHECK_INT(5, s->plan.n_inputs); /* 2, 2, 2, 2, 1 members */
        CHECK_INT(1, s->plan.tolerated);
        float first = s->G[0];
        CHECK_OK(combine(s));
        CHECK(first == s->G[0]);
        s->rule.trim = 0; /* the mean of the buckets: 511 in all, the last bucket whole */
        CHECK_OK(combine(s));
        double last = 10 * (double)s->G[0] - 511;
        CHECK_NEAR(round(log2(last)), log2(last), 1e-4);
        differs |= seed > 0 && last > 1;
    }
    CHECK(differs);
}

TEST(the_geometric_median_is_near_an_honest_majority)
{
    const float values[] = {1, 2, 1, 2, 1, 2, 1e6f, -1e6f, 5e8f, 7};
    scene *s = scene_of("geometric_median", 5, 2, values);
    gives(s, (double[]){1, 2}, 1e-6);
    memset(s->x, 0, 3 * sizeof s->x[0]); /* unmoved */
    gives(s, (double[]){0, 0}, 0);
}

/* ---- weighted rules */

static scene *weighted(const char *combiner)
{
    static const float weight[] = {3, 1, 7, 2, 5, 1, 1, 4};
    scene *s = scene_of(combiner, 8, 3, X);
    for (size_t m = 0; m < 8; m++)
        s->weight[m] = weight[m] / 24;
    return s;
}

/* By its definition, vector by vector; norms are found in float64. */
static void clip_by_definition(double *v, const scene *s, int steps)
{
    for (int step = 0; step < steps; step++) {
        double distance[MAX_N], next[MAX_D];
        size_t order[MAX_N];
        memcpy(next, v, s->d * sizeof *v);
        for (size_t m = 0; m < s->n; m++) {
            distance[m] = 0;
            for (size_t i = 0; i < s->d; i++)
                distance[m] += ((double)s->x[m][i] - v[i]) * ((double)s->x[m][i] - v[i]);
            distance[m] = sqrt(distance[m]);
        }
        double r = s->rule.clip_radius * dl_median(order, distance, s->n);
        for (size_t m = 0; m < s->n; m++)
            for (size_t i = 0; i < s->d; i++)
                next[i] += ((double)s->x[m][i] - v[i]) * fmin(1, r / distance[m]) / (double)s->n;
        memcpy(v, next, s->d * sizeof *v);
    }
}

TEST(centered_clipping_begins_at_the_last_update_and_has_the_values_of_its_definition)
{
    for (int seed = 0; seed < 4; seed++) {
        scene *s = scene_of("centered_clip", 8, 3, X);
        double v[3];
        s->rule.clip_radius = seed < 2 ? 1 : 0.5;
        for (size_t i = 0; i < 3; i++)
            s->previous[i] = seed % 2 ? X[3 * seed + i] + 2 : 0, v[i] = (double)s->previous[i];
        clip_by_definition(v, s, 3);
        gives(s, v, 2e-6);
    }
}

TEST(centered_clipping_follows_mixing)
{
    scene *s = scene_of("centered_clip", 8, 3, X);
    double v[3] = {1, -2, 4};
    static scene mixed;
    s->rule.mixing = DL_MIX_BUCKETING;
    s->rule.bucket_size = 1; /* a shuffle: the order of inputs changes nothing */
    for (size_t i = 0; i < 3; i++)
        s->previous[i] = (float)v[i];
    mixed = *s;
    clip_by_definition(v, &mixed, 3);
    gives(s, v, 2e-6);
}

TEST(a_rescaled_rule_has_the_direction_it_had_and_the_median_norm)
{
    static const char *const names[] = {"median",     "trimmed_mean", "krum",
                                        "multi_krum", "bulyan",       "geometric_median"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        scene *s = scene_of(names[k], 8, 3, X);
        float G[3];
        double norm2[8];
        size_t order[8];
        CHECK_OK(combine(s));
        memcpy(G, s->G, sizeof G);
        for (size_t m = 0; m < 8; m++)
            norm2[m] = dl_norm2(s->x[m], 3);
        const double scale = sqrt(dl_median(order, norm2, 8) / dl_norm2(G, 3));
        s->rule.rescale = true;
        gives(s, (double[]){scale * G[0], scale * G[1], scale * G[2]}, 1e-5);
        memset(s->x, 0, sizeof s->x);
        gives(s, (double[]){0, 0, 0}, 0); /* nothing is nothing */
    }
}

TEST(alg1_the_mean_of_three_is_their_mean_and_weights_count)
{
    gives1("mean", 3, (float[]){1, 2, 6}, 3);
    scene *s = scene_of("mean", 2, 1, (float[]){4, 8});
    s->weight[0] = 0.75f, s->weight[1] = 0.25f;
    gives(s, (double[]){5}, 0);
}

TEST(clipped_mean_scales_the_longer_half_to_the_median_norm)
{
    gives(weighted("clipped_mean"), (double[]){1.65267616, 2.06611688, 0.934530846}, 1e-6);
    /* norms 1, 2, 3, 10, the median 2.5 */
    scene *s = scene_of("clipped_mean", 4, 1, (float[]){1, -2, 3, 10});
    gives(s, (double[]){(1 - 2 + 2.5 + 2.5) / 4}, 1e-6);
}

TEST(rda_is_the_mean_norm_times_the_mean_direction)
{
    gives(weighted("rda"), (double[]){5.029661, 5.47926041, 2.46433797}, 2e-6);
    scene *s = weighted("rda");
    s->plain = true; /* an embedding */
    CHECK_OK(combine(s));
    scene mean = *s;
    mean.rule = rule_of("mean");
    CHECK_OK(combine(&mean));
    CHECK_BYTES(mean.G, s->G, 3 * sizeof(float));
}

TEST(rda_of_members_that_cancel_is_their_mean)
{
    gives1("rda", 2, (float[]){3, -3}, 0);
    gives1("rda", 2, (float[]){3, -1}, 1); /* the directions cancel, the mean does not */
    gives1("rda", 3, (float[]){0, 0, 0}, 0);
    gives1("rda", 3, (float[]){0, 4, 2}, 2); /* a member that did not move has no direction */
    gives1("rda", 2, (float[]){1e-38f, 2}, 1);
}

TEST(claim20_the_norm_of_rda_does_not_depend_on_how_many_there_are)
{
    for (size_t n = 1; n <= 16; n *= 2) { /* at right angles: the mean shrinks as 1 / sqrt(n) */
        static float values[16 * 16];
        memset(values, 0, sizeof values);
        for (size_t m = 0; m < n; m++)
            values[m * 16 + m] = 3;
        scene *s = scene_of("rda", n, 16, values);
        CHECK_OK(combine(s));
        CHECK_NEAR(3, sqrt(dl_norm2(s->G, 16)), 1e-6);
        s->rule = rule_of("mean");
        CHECK_OK(combine(s));
        CHECK_NEAR(3 / sqrt((double)n), sqrt(dl_norm2(s->G, 16)), 1e-6);
    }
}

/* ---- the suite: every combiner, with every mixing it may have */

enum { N = 11, D = 100, BAD = 1 };

static void random_members(scene *s, uint64_t seed)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 8), 0);
    for (size_t m = 0; m < s->n; m++)
        for (size_t i = 0; i < s->d; i++)
            s->x[m][i] = 1 + dl_rng_f32(&rng) - 0.5f; /* their mean is about 1 */
}

/* Calls check for each combination; the scene has N members of D elements. */
static void every(void (*check)(scene *s))
{
    static float values[N * D];
    for (size_t k = 0; dl_combiner_at(k); k++)
        for (int mixing = DL_MIX_NONE; mixing <= DL_MIX_BUCKETING; mixing++) {
            scene *s = scene_of(dl_combiner_at(k)->name, N, D, values);
            s->rule.mixing = (dl_mixing)mixing;
            if (mixing && !s->rule.combiner->ignores_weights) continue;
            if (mixing == DL_MIX_BUCKETING) s->rule.bucket_size = 1; /* bulyan needs 7 */
            random_members(s, 17);
            check(s);
        }
}

static void is_near(const scene *s, const float *expected, double tolerance)
{
    for (size_t i = 0; i < s->d; i++)
        if (fabs((double)s->G[i] - (double)expected[i]) > tolerance)
            CHECK_FAIL("%s, mixing %d, element %zu: %g, not %g", s->rule.combiner->name,
                       s->rule.mixing, i, (double)s->G[i], (double)expected[i]);
}

static void check_order(scene *s)
{
    float G[D], turned[N][MAX_D];
    if (s->rule.combiner->choose) return; /* bulyan's last choices are of mutual neighbours: ties */
    CHECK_OK(combine(s));
    memcpy(G, s->G, sizeof G);
    for (size_t m = 0; m < N; m++)
        memcpy(turned[m], s->x[(m * 4 + 3) % N], sizeof turned[m]);
    memcpy(s->x, turned, sizeof turned);
    CHECK_OK(combine(s));
    is_near(s, G, s->rule.combiner->elements && !s->rule.mixing ? 0 : 1e-5);
}
TEST(the_order_of_members_changes_nothing)
{
    every(check_order);
}

static void check_equal(scene *s)
{
    for (size_t m = 1; m < s->n; m++)
        memcpy(s->x[m], s->x[0], sizeof s->x[0]);
    CHECK_OK(combine(s));
    is_near(s, s->x[0], 1e-6);
}
TEST(equal_members_give_themselves)
{
    every(check_equal);
}

static void check_one(scene *s)
{
    size_t needed = dl_combine_needed(&s->rule);
    s->n = 1;
    s->weight[0] = 1;
    if (needed > 1) {
        CHECK_STATUS(DILOCO_ENUMERIC, combine(s));
        CHECK_CONTAINS(s->rule.combiner->name, diloco_error_text());
        CHECK_CONTAINS("only 1 contributed", diloco_error_text());
    }
    s->rule.fall_back = true;
    CHECK_OK(combine(s));
    is_near(s, s->x[0], 1e-6);
    CHECK(s->plan.fell_back == (needed > 1) && s->plan.tolerated == 0);
    CHECK_STR(needed > 1 ? "mean" : s->rule.combiner->name, s->plan.combiner->name);
    s->n = needed; /* exactly enough */
    s->rule.fall_back = false;
    CHECK_OK(combine(s));
    CHECK(!s->plan.fell_back);
    CHECK(s->plan.tolerated == (s->rule.combiner->ignores_weights ? 1 : 0));
}
TEST(swm19_one_member_is_itself_or_too_few)
{
    every(check_one);
}

static void check_scale(scene *s)
{
    float G[D];
    CHECK_OK(combine(s));
    memcpy(G, s->G, sizeof G);
    for (size_t m = 0; m < s->n; m++)
        for (size_t i = 0; i < D; i++)
            s->x[m][i] *= 0x1p-20f;
    CHECK_OK(combine(s));
    for (size_t i = 0; i < D; i++)
        s->G[i] *= 0x1p20f;
    is_near(s, G, 0); /* a power of two: the same bits */
}
TEST(a_scale_of_all_members_is_a_scale_of_the_result)
{
    every(check_scale);
}

/* Attacks by one member. Honest elements are within .5 to 1.5, and so are the results of robust
 * rules. */
static void check_attacks(scene *s)
{
    static const float factors[] = {1000, -1, -1000, 1e18f, -1e18f, 0};
    if (!s->rule.combiner->ignores_weights) return;
    for (size_t k = 0; k < sizeof factors / sizeof factors[0]; k++)
        for (size_t who = 0; who < N; who += 5) {
            random_members(s, 17);
            for (size_t i = 0; i < D; i++)
                s->x[who][i] *= factors[k] / (fabsf(factors[k]) > 1e17f ? 1.5f : 1);
            CHECK_OK(combine(s));
            CHECK(s->plan.tolerated >= BAD);
            for (size_t i = 0; i < D; i++)
                if (!(s->G[i] > 0.4f && s->G[i] < 1.6f))
                    CHECK_FAIL("%s, mixing %d, times %g: element %zu is %g", s->rule.combiner->name,
                               s->rule.mixing, (double)factors[k], i, (double)s->G[i]);
        }
}
TEST(swm21_a_hostile_member_moves_no_robust_rule_out_of_the_honest_range)
{
    every(check_attacks);
}

static void check_isa(scene *s)
{
    float G[D];
    dl_isa chosen = dl_isa_chosen();
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        CHECK_OK(combine(s));
        if (isa == 0) memcpy(G, s->G, sizeof G);
        is_near(s, G, 0);
    }
    dl_isa_use(chosen);
}
TEST(every_instruction_set_gives_the_bits_of_plain_c)
{
    every(check_isa);
}

TEST(dot_products_of_all_pairs_have_the_bits_of_one_at_a_time)
{
    static const size_t sizes[] = {1, 15, 16, 17, 100};
    static double sums[N * N];
    float values[N * D] = {0};
    const float *x[N];
    scene *s = scene_of("krum", N, D, values);
    random_members(s, 5);
    for (size_t m = 0; m < N; m++)
        x[m] = s->x[m];
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        memset(sums, 0, sizeof sums);
        dl_gram_block(sums, x, N, sizes[k]);
        for (size_t a = 0; a < N; a++)
            for (size_t b = 0; b <= a; b++)
                CHECK(sums[a * N + b] == dl_block_dot(x[a], x[b], sizes[k]));
    }
}

TEST_MAIN(a_rejected_member_counts_against_f_where_too_few_are_left,
          swm18_trimming_a_fifth_of_five_drops_one_at_either_end,
          d19_trim_counts_are_found_in_decimal_integers, a_trim_of_0_is_the_mean,
          the_median_of_an_even_number_is_the_mean_of_the_middle_two,
          the_network_sorts_any_number_of_members,
          few_members_are_trimmed_by_any_number_to_the_bits_of_the_formula,
          an_order_is_stable_and_complete, each_rule_states_the_members_it_needs_and_tolerates,
          swm20_robust_rules_give_the_values_of_their_definitions,
          krum_takes_whole_vectors_squared_distances_and_n_f_2_neighbours,
          krum_breaks_ties_by_the_order_of_members,
          nearest_neighbour_mixing_goes_before_any_robust_rule,
          buckets_are_means_of_a_shuffle_that_the_seed_decides,
          the_geometric_median_is_near_an_honest_majority,
          centered_clipping_begins_at_the_last_update_and_has_the_values_of_its_definition,
          centered_clipping_follows_mixing,
          a_rescaled_rule_has_the_direction_it_had_and_the_median_norm,
          alg1_the_mean_of_three_is_their_mean_and_weights_count,
          clipped_mean_scales_the_longer_half_to_the_median_norm,
          rda_is_the_mean_norm_times_the_mean_direction, rda_of_members_that_cancel_is_their_mean,
          claim20_the_norm_of_rda_does_not_depend_on_how_many_there_are,
          the_order_of_members_changes_nothing, equal_members_give_themselves,
          swm19_one_member_is_itself_or_too_few, a_scale_of_all_members_is_a_scale_of_the_result,
          swm21_a_hostile_member_moves_no_robust_rule_out_of_the_honest_range,
          every_instruction_set_gives_the_bits_of_plain_c,
          dot_products_of_all_pairs_have_the_bits_of_one_at_a_time)
