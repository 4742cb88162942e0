/* muon_test.c - the row muon through the whole step. Hidden matrices are compared with Muon's
 * definition in float64 (tests/muon_definition.h), everything else with the row adamw. Bits are
 * compared over instruction sets and threads.
 *
 * That it trains as nn/inner_muon.c is in train/step_test.c. The iteration enlarges small singular
 * values about 3.4 times each of five times, so rounding of 1e-7 may grow to 1e-4 of an update. */
#include "muon_definition.h"
#include "outer/outer_rows.h"
#include "step_world.h"

enum { WIDE, BIAS, TALL, SQUARE, FLAT, ONE, N_SHAPES };
enum { FIRST = 1, N_TENSORS = FIRST + N_SHAPES + 2 };

/* An end, matrices of every shape with a vector among them, the other end, and a buffer. One matrix
 * straddles a block of 4096, and none but the first begins at one. */
static const diloco_tensor tensors[N_TENSORS] = {
    {.name = "in", .n_dims = 2, .shape = {9, 7}},
    [FIRST + WIDE] = {.name = "wide", .n_dims = 2, .shape = {33, 217}},
    [FIRST + BIAS] = {.name = "bias", .n_dims = 1, .shape = {33}},
    [FIRST + TALL] = {.name = "tall", .n_dims = 2, .shape = {70, 13}},
    [FIRST + SQUARE] = {.name = "square", .n_dims = 2, .shape = {17, 17}},
    [FIRST + FLAT] = {.name = "flat", .n_dims = 2, .shape = {1, 50}},
    [FIRST + ONE] = {.name = "one", .n_dims = 2, .shape = {1, 1}},
    {.name = "out", .n_dims = 2, .shape = {5, 31}},
    {.name = "buffer", .role = DILOCO_BUFFER, .n_dims = 2, .shape = {3, 3}},
};

static bool is_hidden(const dl_manifest_tensor *t)
{
    return t->n_dims == 2 && t->region == DL_TRAINED && strcmp(t->name, "in") != 0 &&
           strcmp(t->name, "out") != 0;
}

static dl_outer_settings settings_of(double momentum, bool nesterov, int64_t steps)
{
    return (dl_outer_settings){.lr = 0.01,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .weight_decay = 0.5,
                               .muon_momentum = momentum,
                               .muon_nesterov = nesterov,
                               .muon_steps = steps,
                               .n_commits = 3};
}

static void open_model(world *w, const char *outer, int threads)
{
    const dl_outer_settings settings = settings_of(0.95, true, 5);
    open_world(w, tensors, N_TENSORS, outer, threads);
    w->args.outer->scalars(w->args.scalars, &settings);
    contribute(w, 3, uneven, 0);
}

/* ---- the definition */

/* Steps a matrix of `in` by the definition, and compares `out`. */
static void check_matrix(const world *w, const dl_manifest_tensor *t, double momentum,
                         bool nesterov, int steps)
{
    const size_t n = t->count;
    double *p = malloc(n * sizeof *p), *m = malloc(n * sizeof *m), *g = malloc(n * sizeof *g);
    for (size_t i = 0; i < n; i++) {
        p[i] = (double)w->in.theta[t->offset + i];
        m[i] = (double)w->in.outer[0][t->offset + i];
        g[i] = (double)mean_at(w, t->offset + i);
    }
    muon_step(&(muon_matrix){t->shape[0], t->shape[1], p, m, momentum, nesterov, steps}, g, 0.01,
              0.5);
    for (size_t i = 0; i < n; i++) {
        CHECK_NEAR(p[i], w->out.theta[t->offset + i], 2e-5);
        CHECK_NEAR(m[i], w->out.outer[0][t->offset + i], 1e-6);
        CHECK(w->out.outer[1][t->offset + i] == w->in.outer[1][t->offset + i]);
    }
    free(p), free(m), free(g);
}

static void check_definition(double momentum, bool nesterov, int steps)
{
    world w;
    int n_hidden = 0;
    const dl_outer_settings settings = settings_of(momentum, nesterov, steps);
    open_model(&w, "muon", 2);
    w.args.outer->scalars(w.args.scalars, &settings);
    for (int again = 0; again < 3; again++) {
        CHECK_OK(step(&w, &w.out));
        for (size_t i = 0; i < w.manifest.n_tensors; i++)
            if (is_hidden(&w.manifest.tensors[i])) {
                check_matrix(&w, &w.manifest.tensors[i], momentum, nesterov, steps);
                n_hidden++;
            }
        CHECK_OK(step(&w, &w.in)); /* the next step is from this one's result */
    }
    CHECK_INT(3 * 5, n_hidden);
    close_world(&w);
}

TEST(hidden_matrices_of_any_shape_follow_the_definition)
{
    check_definition(0.95, true, 5);
}

TEST(momentum_nesterov_and_steps_are_options)
{
    check_definition(0.9, false, 3);
    check_definition(0, true, 1);
}

TEST(everything_else_has_the_bits_of_adamw)
{
    world muon, adamw;
    open_model(&muon, "muon", 2), open_model(&adamw, "adamw", 1);
    CHECK_OK(step(&muon, &muon.out));
    CHECK_OK(step(&adamw, &adamw.out));
    for (size_t i = 0; i < muon.manifest.n_tensors; i++) {
        const dl_manifest_tensor *t = &muon.manifest.tensors[i];
        const size_t bytes = t->count * sizeof(float);
        if (is_hidden(t)) {
            CHECK(memcmp(adamw.out.theta + t->offset, muon.out.theta + t->offset, bytes) != 0);
            continue;
        }
        CHECK_BYTES(adamw.out.theta + t->offset, muon.out.theta + t->offset, bytes);
        for (int k = 0; k < 2 && t->region == DL_TRAINED; k++)
            CHECK_BYTES(adamw.out.outer[k] + t->offset, muon.out.outer[k] + t->offset, bytes);
    }
    close_world(&muon), close_world(&adamw);
}

/* The rest is stepped by that row with muon's scalars, so they are in its order. */
TEST(the_first_scalars_are_adamws)
{
    float scalars[DL_OUTER_MAX_SCALARS], adamw[DL_OUTER_MAX_SCALARS];
    const dl_outer *row = &dl_outer_muon;
    dl_outer_settings settings = settings_of(0.95, true, 5);
    row->scalars(scalars, &settings);
    dl_outer_adamw.scalars(adamw, &settings);
    CHECK_INT(7, dl_outer_adamw.n_scalars);
    CHECK_BYTES(adamw, scalars, 7 * sizeof *adamw);
    for (int i = 0; i < 7; i++)
        CHECK_STR(dl_outer_adamw.scalar_names[i], row->scalar_names[i]);
    CHECK(scalars[7] == 0.01f && scalars[8] == 0.95f && scalars[9] == 1 && scalars[10] == 5);
    settings.muon_lr = 0.1, settings.inner_lr = 0.02; /* lr is half of its peak */
    row->scalars(scalars, &settings);
    CHECK(scalars[0] == 0.01f && scalars[7] == 0.05f);
    settings.inner_lr = 0, settings.lr = 0;
    row->scalars(scalars, &settings);
    CHECK(scalars[7] == 0);
}

/* ---- bits */

TEST(every_instruction_set_and_number_of_threads_gives_the_same_bits)
{
    dl_hash want = {{0}};
    const dl_isa chosen = dl_isa_chosen();
    for (int threads = 1; threads <= 3; threads++)
        for (int isa = 0; isa < DL_N_ISA; isa++) {
            world w;
            if (!dl_isa_available((dl_isa)isa)) continue;
            dl_isa_use((dl_isa)isa);
            open_model(&w, "muon", threads);
            CHECK_OK(step(&w, &w.out));
            if (threads == 1 && isa == 0) want = w.out.digest;
            if (!dl_hash_equal(want, w.out.digest))
                CHECK_FAIL("%s with %d threads differs", dl_isa_name((dl_isa)isa), threads);
            const dl_hash digest = dl_state_digest(&w.out, w.shape, w.args.outer, w.pool);
            CHECK_BYTES(want.bytes, digest.bytes, sizeof want.bytes);
            close_world(&w);
        }
    dl_isa_use(chosen);
}

TEST(a_step_in_place_gives_the_same_state_and_leaves_the_other_intact)
{
    world w, kept;
    open_model(&w, "muon", 2), open_model(&kept, "muon", 1);
    CHECK_OK(step(&w, &w.out));
    CHECK_BYTES(kept.in.theta, w.in.theta, w.n_f32 * sizeof(float));
    for (int k = 0; k < 2; k++)
        CHECK_BYTES(kept.in.outer[k], w.in.outer[k], w.shape.n_trained * sizeof(float));
    CHECK_OK(step(&w, &w.in));
    CHECK_BYTES(w.out.theta, w.in.theta, w.n_f32 * sizeof(float));
    CHECK_BYTES(w.out.digest.bytes, w.in.digest.bytes, sizeof w.in.digest.bytes);
    close_world(&w), close_world(&kept);
}

/* ---- numbers that are wrong */

TEST(no_gradient_and_no_momentum_is_decay_alone)
{
    world w;
    open_model(&w, "muon", 1);
    memset(w.in.outer[0], 0, w.shape.n_trained * sizeof(float));
    for (int m = 0; m < 3; m++)
        memset(w.g[m], 0, w.n_f32 * sizeof(float));
    contribute(&w, 3, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    for (size_t i = 0; i < w.shape.n_trained; i++) {
        size_t index;
        const dl_manifest_tensor *t = dl_manifest_locate(&w.manifest, 0, i, &index);
        const float kept = fmaf(-0.01f * 0.5f, w.in.theta[i], w.in.theta[i]);
        if (is_hidden(t)) CHECK(w.out.theta[i] == kept);
    }
    close_world(&w);
}

TEST(a_result_that_is_not_finite_is_an_error_that_names_the_matrix)
{
    world w;
    open_model(&w, "muon", 2);
    w.args.scalars[7] = 3e38f;
    CHECK_STATUS(DILOCO_ENUMERIC, step(&w, &w.out));
    CHECK_CONTAINS("theta of tensor wide, element 0, not finite", diloco_error_text());
    close_world(&w);
}

/* An entry may be forged, and iterations cost time. */
TEST(iterations_that_no_option_gives_are_refused)
{
    static const float wrong[] = {0, -1, 0.5f, 100, 1e30f, NAN};
    world w;
    open_model(&w, "muon", 1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        w.args.scalars[10] = wrong[i];
        CHECK_STATUS(DILOCO_ENUMERIC, step(&w, &w.out));
        CHECK_CONTAINS("a whole number from 1 to 99", diloco_error_text());
    }
    close_world(&w);
}

TEST_MAIN(hidden_matrices_of_any_shape_follow_the_definition,
          momentum_nesterov_and_steps_are_options, everything_else_has_the_bits_of_adamw,
          the_first_scalars_are_adamws,
          every_instruction_set_and_number_of_threads_gives_the_same_bits,
          a_step_in_place_gives_the_same_state_and_leaves_the_other_intact,
          no_gradient_and_no_momentum_is_decay_alone,
          a_result_that_is_not_finite_is_an_error_that_names_the_matrix,
          iterations_that_no_option_gives_are_refused)
