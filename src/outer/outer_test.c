/* outer_test.c - the outer optimizers against hand-worked traces, and AdamW against PyTorch
 * (tests/goldens/outer_adamw.py); every instruction set against plain C.
 *
 * Traces are worked in real numbers: 1e-5 leaves room for float32. */
#include "base/rng.h"
#include "outer/outer.h"

#include "check.h"

static dl_outer_settings settings = {.lr = 0.7, .mu = 0.9};

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
        step1(row, &theta, state, g[i]);
        CHECK_NEAR(expected[i + 1], theta, 1e-5);
    }
}

TEST(the_table_finds_by_name_and_ends)
{
    static const char *const names[] = {"sgd", "momentum", "nesterov", "adamw"};
    for (int i = 0; i < 4; i++)
        CHECK_STR(names[i], dl_outer_find(names[i])->name);
    CHECK(!dl_outer_find("adam of eden") && !dl_outer_at(1000));
    for (size_t i = 0; dl_outer_at(i); i++) {
        const dl_outer *row = dl_outer_at(i);
        for (int k = 0; k < row->n_state; k++)
            CHECK(row->state_names[k]);
        for (int k = 0; k < row->n_scalars; k++)
            CHECK(row->scalar_names[k]);
    }
}

TEST(nesterov_follows_its_golden_traces)
{
    trace("nesterov", 0.7, 0.9, 4, (float[]){1, 1, 1, 1},
          (double[]){0, -1.33, -3.227, -5.6343, -8.50087});
    trace("nesterov", 0.7, 0.9, 2, (float[]){0.5f, 0.5f}, (double[]){1, 0.335, -0.6135});
}

TEST(heavy_ball_follows_its_hand_trace)
{
    /* v: 1, 1.9, 2.71; theta falls by .7 v */
    trace("momentum", 0.7, 0.9, 3, (float[]){1, 1, 1}, (double[]){0, -0.7, -2.03, -3.927});
    /* v: 2, -.9, .55 with mu .5, then g 0: v halves */
    trace("momentum", 0.1, 0.5, 3, (float[]){2, -1.9f, 1}, (double[]){1, 0.8, 0.89, 0.835});
}

TEST(sgd_follows_its_hand_trace)
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
    float theta[ROOM], state[DL_OUTER_MAX_STATE][ROOM];
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
    settings = (dl_outer_settings){.lr = 0.7,
                                   .mu = 0.9,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .n_commits = 4};
    row->scalars(scalars, &settings);
    memset(o, 0, sizeof *o);
    dl_outer_block b = {.g = members,
                        .weights = {weight, ones, weight},
                        .n_sums = 3,
                        .n_members = MEMBERS,
                        .n = n,
                        .scalars = scalars,
                        .decay = true,
                        .hash = hash};
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

TEST_MAIN(the_table_finds_by_name_and_ends, nesterov_follows_its_golden_traces,
          heavy_ball_follows_its_hand_trace, sgd_follows_its_hand_trace,
          nesterov_without_momentum_is_sgd_and_heavy_ball_too, adamw_follows_pytorch,
          scalars_are_those_of_the_settings_rounded_once,
          every_instruction_set_gives_the_bits_of_plain_c,
          a_result_that_is_not_finite_is_noticed_in_theta_and_in_state)
