/* outer_test.c - the outer optimizers against hand-worked traces, the adaptive ones against
 * PyTorch and their paper (tests/goldens/outer_adamw.py, outer_adaptive.py); every instruction
 * set against plain C.
 *
 * Traces are worked in real numbers: 1e-5 leaves room for float32. */
#include "base/rng.h"
#include "base/run_kind.h"
#include "outer/outer.h"

#include "check.h"

#define SETTINGS                                                                                   \
    {                                                                                              \
        .lr = 0.7, .mu = 0.9, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,       \
        .outer_beta1 = 0.9, .outer_beta2 = 0.99, .outer_eps = 0.1, .outer_beta = 0.1,              \
        .outer_buffer = 4                                                                          \
    }
static dl_outer_settings settings = SETTINGS;

/* One step of one element by the row's own scalars, in place. */
static void step1(const dl_outer *row, float *theta, float *state, float g)
{
    float scalars[DL_OUTER_MAX_SCALARS], one = 1;
    const float *members[] = {&g};
    dl_outer_block b = {.theta_out = theta,
                        .theta = theta,
                        .g = members,
                        .weights = {&one},
                        .n_sums = 1,
                        .n_members = 1,
                        .n = 1,
                        .scalars = scalars,
                        .decay = true};
    for (int k = 0; k < row->n_state; k++)
        b.state_out[k] = &state[k], b.state[k] = &state[k];
    row->scalars(scalars, &settings);
    row->block(&b);
    CHECK(b.norm2[0] == (double)g * g && !b.bad);
}

/* theta before and after each step with these g. */
static void trace(const char *name, double lr, double mu, int n, const float *g,
                  const double *expected)
{
    const dl_outer *row = dl_outer_find(name);
    float theta = (float)expected[0], state[DL_OUTER_MAX_STATE] = {0};
    settings.lr = lr, settings.mu = mu;
    for (int i = 0; i < n; i++) {
        settings.n_commits = (uint64_t)i;
        step1(row, &theta, state, g[i]);
        CHECK_NEAR(expected[i + 1], theta, 1e-5);
    }
}

TEST(the_table_finds_by_name_and_ends)
{
    for (size_t i = 0; dl_outer_at(i); i++)
        CHECK(dl_outer_find(dl_outer_at(i)->name) == dl_outer_at(i));
    CHECK(!dl_outer_find("adam of eden") && !dl_outer_at(1000));
    for (size_t i = 0; dl_outer_at(i); i++) {
        const dl_outer *row = dl_outer_at(i);
        for (int k = 0; k < row->n_state; k++)
            CHECK(row->state_names[k]);
        for (int k = 0; k < row->n_scalars; k++)
            CHECK(row->scalar_names[k]);
        for (const char *const *option = row->options; *option; option++)
            CHECK(dl_option_find(dl_config_table, *option));
        CHECK(row->evaluated <= row->n_state && row->most_lr > 0);
    }
}

/* The names are a second list of these rows. */
TEST(the_rows_that_count_commits_are_known_by_name)
{
    static dl_config config;
    dl_config_init(&config);
    for (size_t i = 0; dl_outer_at(i); i++) {
        snprintf(config.outer_optimizer, sizeof config.outer_optimizer, "%s", dl_outer_at(i)->name);
        CHECK(dl_run_counts_commits(&config) == dl_outer_at(i)->counts);
    }
}

TEST(fed_13_nesterov_follows_its_golden_traces)
{
    trace("nesterov", 0.7, 0.9, 4, (float[]){1, 1, 1, 1},
          (double[]){0, -1.33, -3.227, -5.6343, -8.50087});
    trace("nesterov", 0.7, 0.9, 2, (float[]){0.5f, 0.5f}, (double[]){1, 0.335, -0.6135});
}

TEST(fed_13_heavy_ball_follows_its_hand_trace)
{
    /* v: 1, 1.9, 2.71; theta falls by .7 v */
    trace("momentum", 0.7, 0.9, 3, (float[]){1, 1, 1}, (double[]){0, -0.7, -2.03, -3.927});
    /* v: 2, -.9, .55 with mu .5, then g 0: v halves */
    trace("momentum", 0.1, 0.5, 3, (float[]){2, -1.9f, 1}, (double[]){1, 0.8, 0.89, 0.835});
}

TEST(fed_8_13_sgd_follows_its_hand_trace)
{
    trace("sgd", 0.25, 0.9, 3, (float[]){-4, 2, 0}, (double[]){0, 1, 0.5, 0.5});
}

TEST(nesterov_without_momentum_is_sgd_and_heavy_ball_too)
{
    const double moved[] = {3, 2.3, 2.65};
    const float g[] = {1, -0.5f};
    trace("nesterov", 0.7, 0, 2, g, moved);
    trace("momentum", 0.7, 0, 2, g, moved);
    trace("sgd", 0.7, 0, 2, g, moved);
}

TEST(adamw_follows_pytorch)
{
    static const double expected[3][3] = {{0.9890000003, -1.9880000010, 0.4900000005},
                                          {0.9784311418, -1.9760120020, 0.4873163062},
                                          {0.9680076123, -1.9640359910, 0.4918245335}};
    const dl_outer *row = dl_outer_find("adamw");
    float theta[] = {1, -2, 0.5f}, m[3] = {0}, v[3] = {0}, scalars[DL_OUTER_MAX_SCALARS], one = 1;
    settings = (dl_outer_settings){
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    CHECK(row->needs_tensors);
    for (int t = 0; t < 3; t++) {
        float g[] = {0.3f * (float)(t + 1), -0.1f, 0.2f - 0.3f * (float)t};
        settings.n_commits = (uint64_t)t;
        row->scalars(scalars, &settings);
        for (int part = 0; part < 2; part++) { /* the matrix decays, the vector does not */
            size_t at = part ? 2 : 0;
            const float *members[] = {g + at};
            dl_outer_block b = {.theta_out = theta + at,
                                .state_out = {m + at, v + at},
                                .theta = theta + at,
                                .state = {m + at, v + at},
                                .g = members,
                                .weights = {&one},
                                .n_sums = 1,
                                .n_members = 1,
                                .n = part ? 1 : 2,
                                .scalars = scalars,
                                .decay = part == 0};
            row->block(&b);
        }
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(expected[t][i], theta[i], 1e-6); /* float32 at sizes about 1 */
    }
}

TEST(the_adaptive_rows_follow_pytorch_and_their_paper)
{
    const float g[] = {1, -0.5f, 2, 0.1f};
    settings = (dl_outer_settings)SETTINGS;
    trace("adam", 0.1, 0, 4, g,
          (double[]){0.5, 0.4090909091, 0.3854196891, 0.3243793912, 0.2725249346});
    trace("fedadam", 0.1, 0, 4, g,
          (double[]){0.5, 0.4500000000, 0.4310745212, 0.3592633017, 0.2913990559});
    trace("fedyogi", 0.1, 0, 4, g,
          (double[]){0.5, 0.4500000000, 0.4311145618, 0.3594101072, 0.2917929210});
    trace("fedadagrad", 0.1, 0, 4, g,
          (double[]){0.5, 0.4909090909, 0.4876251103, 0.4777559513, 0.4684639989});
}

TEST(fedyogi_moves_its_second_moment_towards_the_square_and_stays_at_it)
{
    const float v[] = {4, 0.25f, 1};
    const double expected[] = {4 - 0.01, 0.25 + 0.01, 1}; /* (1 - b2) g g = 0.01 */
    settings = (dl_outer_settings)SETTINGS;
    for (int i = 0; i < 3; i++) {
        float theta = 0, state[] = {0, v[i]};
        step1(dl_outer_find("fedyogi"), &theta, state, -1);
        CHECK_NEAR(expected[i], state[1], 1e-6);
    }
}

TEST(delayed_nesterov_follows_traces_computed_by_hand)
{
    settings = (dl_outer_settings)SETTINGS;
    /* N 4, c 0: .7 / 4 a push; push 4 adds .7 * .9 m, m = 1; push 8 with m = 1.9 */
    trace("delayed_nesterov", 0.7, 0.9, 8, (float[]){1, 1, 1, 1, 1, 1, 1, 1},
          (double[]){0, -0.175, -0.35, -0.525, -1.33, -1.505, -1.68, -1.855, -3.227});
    /* N 2, c .1: m is 0, 2, 2, 1.5; between it pulls c mu = .05, at the second push .45 */
    settings.outer_buffer = 2, settings.outer_c = 0.1;
    trace("delayed_nesterov", 1, 0.5, 4, (float[]){1, 3, 2, -1},
          (double[]){0, -0.5, -2.9, -4.0, -4.175});
}

TEST(n_pushes_of_delayed_nesterov_equal_one_nesterov_step_on_their_mean)
{
    const float g[] = {1, -2, 0.5f, 4, 3, 0.25f, -1, 2, 0, 1, 7, -3};
    settings = (dl_outer_settings)SETTINGS;
    settings.outer_buffer = 3;
    float pushed = 1, at_once = 1, D_and_m[2] = {0}, v = 0;
    for (int i = 0; i < 12; i++) {
        settings.n_commits = (uint64_t)i;
        step1(dl_outer_find("delayed_nesterov"), &pushed, D_and_m, g[i]);
        if (i % 3 < 2) continue;
        float mean = (g[i - 2] + g[i - 1] + g[i]) / 3;
        step1(dl_outer_find("nesterov"), &at_once, &v, mean);
        CHECK_NEAR(at_once, pushed, 1e-5);
        CHECK(D_and_m[0] == 0);
    }
}

TEST(nesterov_on_each_push_amplifies_and_delayed_nesterov_does_not)
{
    /* Section 3 of 2401.09135: four equal pushes g. Plain Nesterov moves theta by
     * lr (4 + 4 mu + 3 mu^2 + 2 mu^3 + mu^4) g / 4, delayed Nesterov by lr (1 + mu) g. */
    const float quarter[] = {0.25f, 0.25f, 0.25f, 0.25f};
    settings = (dl_outer_settings)SETTINGS;
    trace("nesterov", 0.7, 0.9, 4, quarter,
          (double[]){0, -0.3325, -0.80675, -1.408575, -2.1252175});
    const float one[] = {1, 1, 1, 1};
    trace("delayed_nesterov", 0.7, 0.9, 4, one, (double[]){0, -0.175, -0.35, -0.525, -1.33});
}

TEST(schedule_free_follows_its_hand_trace)
{
    /* z: 0, -.5, 1.5; x, their mean: 0, -.25, 1/3; y = .9 z + .1 x */
    const float g[] = {0.5f, 0.25f, -1};
    const double y[] = {0, -0.475, 1.3833333}, x[] = {0, -0.25, 1.0 / 3};
    const dl_outer *row = dl_outer_find("schedule_free");
    float theta = 1, state[DL_OUTER_MAX_STATE] = {0};
    settings = (dl_outer_settings)SETTINGS;
    settings.lr = 2;
    CHECK_STR("x", row->state_names[row->evaluated - 1]);
    for (int i = 0; i < 3; i++) {
        settings.n_commits = (uint64_t)i;
        step1(row, &theta, state, g[i]);
        CHECK_NEAR(y[i], theta, 1e-6);
        CHECK_NEAR(x[i], state[1], 1e-6);
    }
}

TEST(schedule_free_with_b_0_and_one_entry_is_sgd)
{
    settings = (dl_outer_settings)SETTINGS;
    trace("schedule_free", 0.25, 0, 1, (float[]){-4}, (double[]){0, 1});
}

TEST(the_outer_learning_rate_is_constant_or_a_cosine_over_the_entries)
{
    static dl_config config;
    dl_config_init(&config);
    config.outer_lr = 0.8, config.rounds = 5, config.outer_min_ratio = 0.25;
    CHECK(dl_outer_lr(&config, 0) == 0.8 && dl_outer_lr(&config, 4) == 0.8);
    CHECK_OK(dl_config_set(&config, "outer_lr_schedule", "cosine", "test"));
    const double expected[] = {0.8, 0.712132034, 0.5, 0.287867966, 0.2, 0.2}; /* .2 + .3 (1+cos) */
    for (uint64_t e = 0; e < 6; e++)
        CHECK_NEAR(expected[e], dl_outer_lr(&config, e), 1e-9);
    config.rounds = 1; /* the first entry is the last */
    CHECK(dl_outer_lr(&config, 0) == 0.8);
}

TEST(settings_come_from_their_options)
{
    static dl_config config;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "server.diloco.outer_buffer", "7", "test"));
    CHECK_OK(dl_config_set(&config, "server.diloco.outer_c", "0.2", "test"));
    dl_outer_settings s = dl_outer_settings_of(&config);
    CHECK(s.lr == 0.7 && s.mu == 0.9 && s.beta2 == config.beta2 && s.eps == config.eps);
    CHECK(s.outer_beta1 == 0.9 && s.outer_beta2 == 0.99 && s.outer_eps == 0.1);
    CHECK(s.outer_buffer == 7 && s.outer_c == 0.2 && s.outer_beta == 0.1);
    CHECK_OK(dl_outer_check(&config)); /* of another row */
    CHECK_OK(dl_config_set(&config, "server.diloco.outer_optimizer", "delayed_nesterov", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_outer_check(&config));
    CHECK_CONTAINS("leave it 0", diloco_error_text());
    CHECK_OK(dl_config_set(&config, "server.diloco.outer_c", "0.125", "test"));
    CHECK_OK(dl_outer_check(&config));
    CHECK_OK(dl_config_set(&config, "server.diloco.outer_optimizer", "nobody", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_outer_check(&config));
    CHECK_CONTAINS("nobody", diloco_error_text());
}

TEST(scalars_are_those_of_the_settings_rounded_once)
{
    float s[DL_OUTER_MAX_SCALARS];
    settings = (dl_outer_settings){
        .lr = 0.1, .mu = 0.2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.3};
    dl_outer_find("sgd")->scalars(s, &settings);
    CHECK(s[0] == 0.1f);
    dl_outer_find("nesterov")->scalars(s, &settings);
    CHECK(s[0] == 0.1f && s[1] == 0.2f);
    dl_outer_find("adamw")->scalars(s, &settings);
    CHECK(s[0] == 0.1f && s[1] == 0.9f && s[2] == 0.999f && s[3] == 1e-8f && s[4] == 0.3f);
    CHECK(s[5] == 1 - 0.9f && s[6] == 1 - 0.999f); /* t = 1 */
    settings.n_commits = 9;
    dl_outer_find("adamw")->scalars(s, &settings);
    CHECK_NEAR(1 - pow(0.9f, 10), s[5], 1e-7);
    settings.n_commits = 1000000;
    dl_outer_find("adamw")->scalars(s, &settings);
    CHECK(s[5] == 1 && s[6] == 1);
}

/* ---- instruction sets */

enum { MEMBERS = 3, ROOM = DL_BLOCK + 16 };

typedef struct outcome {
    float theta[ROOM], state[DL_OUTER_MAX_STATE][ROOM], local[ROOM];
    double norm2[DL_OUTER_MAX_SUMS];
    dl_hash hash[1 + DL_OUTER_MAX_STATE];
} outcome;

/* Finite floats, a quarter of them denormal. */
static void floats(float *x, size_t n, uint64_t seed)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 3), 0);
    for (size_t i = 0; i < n; i++)
        x[i] = (dl_rng_f32(&rng) - 0.5f) * (dl_rng_u32(&rng) % 4 ? 1 : 1e-38f);
}

static void run_row(outcome *o, const dl_outer *row, size_t n, size_t shift)
{
    static float g[MEMBERS][ROOM];
    static const float weight[] = {0.2f, 0.5f, 0.3f}, ones[] = {1, 1, 1};
    float scalars[DL_OUTER_MAX_SCALARS];
    const float *members[MEMBERS];
    dl_leaf_hash hash[1 + DL_OUTER_MAX_STATE];
    settings = (dl_outer_settings)SETTINGS;
    settings.n_commits = shift; /* the fourth and others: delayed Nesterov's two kinds */
    row->scalars(scalars, &settings);
    memset(o, 0, sizeof *o);
    dl_outer_block b = {.g = members,
                        .weights = {weight, ones, weight},
                        .n_sums = 3,
                        .n_members = MEMBERS,
                        .n = n,
                        .scalars = scalars,
                        .decay = true,
                        .hash = hash,
                        .adopt = o->local + shift};
    floats(o->theta, ROOM, 1);
    b.theta = b.theta_out = o->theta + shift;
    for (int k = 0; k < row->n_state; k++) {
        floats(o->state[k], ROOM, 2 + (uint64_t)k);
        for (size_t i = 0; i < ROOM && k == 1; i++) /* a second moment is not negative */
            o->state[k][i] = fabsf(o->state[k][i]);
        b.state[k] = b.state_out[k] = o->state[k] + shift;
    }
    for (size_t m = 0; m < MEMBERS; m++) {
        floats(g[m], ROOM, 10 + m);
        members[m] = g[m] + shift;
    }
    dl_fp_state saved = dl_fp_enter();
    for (int k = 0; k <= row->n_state; k++)
        dl_leaf_begin(&hash[k]);
    row->block(&b);
    for (int k = 0; k <= row->n_state; k++)
        o->hash[k] = dl_leaf_end(&hash[k]);
    dl_fp_leave(saved);
    memcpy(o->norm2, b.norm2, sizeof b.norm2);
    CHECK(!b.bad);
    CHECK_BYTES(b.theta_out, b.adopt, n * sizeof(float));
    for (size_t i = 0; i < ROOM; i++)
        CHECK((shift <= i && i < shift + n) || o->local[i] == 0);
}

TEST(every_instruction_set_gives_the_bits_of_plain_c)
{
    static const size_t sizes[] = {1, 15, 16, 17, 63, 64, 65, 255, 257, 1000, DL_BLOCK};
    static outcome want, got;
    dl_isa chosen = dl_isa_chosen();
    for (size_t r = 0; dl_outer_at(r); r++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            for (int isa = 0; isa < DL_N_ISA; isa++) {
                if (!dl_isa_available((dl_isa)isa)) continue;
                dl_isa_use((dl_isa)isa);
                run_row(isa ? &got : &want, dl_outer_at(r), sizes[k], k % 16);
                if (isa && memcmp(&want, &got, sizeof want) != 0)
                    CHECK_FAIL("%s on %s differs from c at %zu elements", dl_outer_at(r)->name,
                               dl_isa_name((dl_isa)isa), sizes[k]);
            }
    dl_isa_use(chosen);
}

TEST(a_result_that_is_not_finite_is_noticed_in_theta_and_in_state)
{
    const dl_outer *row = dl_outer_find("adamw");
    float theta = 0, m = 0, v = 3e38f, g = 3e38f, one = 1; /* v overflows; theta does not */
    float scalars[] = {0.1f, 0.9f, 0.9f, 1e-8f, 0, 1, 1};
    const float *members[] = {&g};
    dl_outer_block b = {.theta_out = &theta,
                        .state_out = {&m, &v},
                        .theta = &theta,
                        .state = {&m, &v},
                        .g = members,
                        .weights = {&one},
                        .n_sums = 1,
                        .n_members = 1,
                        .n = 1,
                        .scalars = scalars};
    row->block(&b);
    CHECK(b.bad && isinf(v) && isfinite(theta));
    theta = -3e38f;
    b.state[0] = b.state_out[0] = NULL;
    scalars[0] = 2;
    dl_outer_find("sgd")->block(&b);
    CHECK(b.bad && isinf(theta));
}

TEST(a_non_finite_fragment_is_not_adopted_nor_are_later_ones)
{
    enum { BAD = 700 };
    static float theta[DL_BLOCK], local[DL_BLOCK], g[DL_BLOCK];
    const float scalars[] = {1};
    const float *G = g;
    floats(g, DL_BLOCK, 1);
    g[BAD] = INFINITY;
    dl_outer_block b = {.theta_out = theta,
                        .theta = theta,
                        .g = &G,
                        .n = DL_BLOCK,
                        .scalars = scalars,
                        .adopt = local};
    dl_outer_find("sgd")->block(&b);
    CHECK(b.bad && isinf(theta[BAD]) && local[0] == theta[0] && local[0] != 0);
    for (int i = BAD; i < DL_BLOCK; i++)
        CHECK(local[i] == 0);
}

TEST_MAIN(the_table_finds_by_name_and_ends, the_rows_that_count_commits_are_known_by_name,
          fed_13_nesterov_follows_its_golden_traces, fed_13_heavy_ball_follows_its_hand_trace,
          fed_8_13_sgd_follows_its_hand_trace, the_adaptive_rows_follow_pytorch_and_their_paper,
          fedyogi_moves_its_second_moment_towards_the_square_and_stays_at_it,
          delayed_nesterov_follows_traces_computed_by_hand,
          n_pushes_of_delayed_nesterov_equal_one_nesterov_step_on_their_mean,
          nesterov_on_each_push_amplifies_and_delayed_nesterov_does_not,
          schedule_free_follows_its_hand_trace, schedule_free_with_b_0_and_one_entry_is_sgd,
          the_outer_learning_rate_is_constant_or_a_cosine_over_the_entries,
          settings_come_from_their_options, nesterov_without_momentum_is_sgd_and_heavy_ball_too,
          adamw_follows_pytorch, scalars_are_those_of_the_settings_rounded_once,
          every_instruction_set_gives_the_bits_of_plain_c,
          a_result_that_is_not_finite_is_noticed_in_theta_and_in_state,
          a_non_finite_fragment_is_not_adopted_nor_are_later_ones)
