/* outer_step_test.c - the fused pass against the formulas of docs/design.md section 2 applied one
 * element at a time, bit for bit: on every instruction set, at 1 to 3 threads, in place and
 * not, with views and with copies, with blocks that several tensors or rules share. */
#include "base/rng.h"
#include "outer/outer_step.h"

#include "check.h"
#include "sanitized.h"

enum { MAX_MEMBERS = 7 };

typedef struct world {
    dl_manifest manifest;
    dl_codec_form form;
    dl_fragment_shape shape;
    size_t n_f32;
    dl_arena arena;
    dl_fragment_state in, out;
    dl_outer_scratch *scratch;
    dl_pool *pool;
    float *g[MAX_MEMBERS]; /* what was encoded */
    unsigned char *payload[MAX_MEMBERS], *integers[MAX_MEMBERS], *booleans[MAX_MEMBERS];
    dl_contribution_data members[MAX_MEMBERS];
    float weight[MAX_MEMBERS];
    uint64_t raw[MAX_MEMBERS];
    dl_outer_step_args args;
    dl_outer_step_facts facts;
} world;

static void random_floats(float *x, size_t n, uint64_t seed)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 4), 0);
    for (size_t i = 0; i < n; i++)
        x[i] = dl_rng_f32(&rng) - 0.5f;
}

static void lay_out(world *w, dl_arena *arena)
{
    dl_state_layout(&w->in, arena, w->shape, w->args.outer);
    dl_state_layout(&w->out, arena, w->shape, w->args.outer);
    for (int m = 0; m < MAX_MEMBERS; m++) {
        w->g[m] = DL_ARENA_ARRAY(arena, float, w->n_f32);
        w->payload[m] = DL_ARENA_ARRAY(arena, unsigned char, 4 * w->n_f32 + 1);
        w->integers[m] = DL_ARENA_ARRAY(arena, unsigned char, 8 * w->shape.n_integers);
        w->booleans[m] = DL_ARENA_ARRAY(arena, unsigned char, w->shape.n_booleans);
    }
}

/* A fragment of these tensors with random contents; weights uniform. */
static void open_world_of(world *w, const diloco_tensor *tensors, size_t n, const char *outer,
                          int threads, const dl_combine_rule *rule)
{
    static dl_config config;
    dl_arena measure = {0};
    *w = (world){0};
    CHECK_OK(dl_manifest_init(&w->manifest, tensors, n, false));
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "combiner", rule->combiner->name, "test"));
    CHECK_OK(dl_config_set(&config, "server.diloco.outer_optimizer", outer, "test"));
    CHECK_OK(dl_codec_form_init(&w->form, &config, &w->manifest, 0));
    w->form.slices = dl_cut_count(w->form.n, rule->most_slices);
    w->shape = w->manifest.fragments[0];
    w->n_f32 = w->shape.n_trained + w->shape.n_averaged;
    w->args = (dl_outer_step_args){.manifest = &w->manifest,
                                   .form = &w->form,
                                   .outer = dl_outer_of(&config),
                                   .members = w->members,
                                   .weight = w->weight,
                                   .raw = w->raw};
    lay_out(w, &measure);
    CHECK_OK(dl_arena_init(&w->arena, measure.used));
    lay_out(w, &w->arena);
    CHECK_OK(dl_pool_create(&w->pool, threads));
    CHECK_OK(dl_outer_scratch_create(&w->scratch, &w->manifest, rule, MAX_MEMBERS, threads));
    random_floats(w->in.theta, w->n_f32, 1);
    for (int k = 0; k < w->args.outer->n_state; k++) {
        random_floats(w->in.outer[k], w->shape.n_trained, 2 + (uint64_t)k);
        for (size_t i = 0; i < w->shape.n_trained && k == 1; i++)
            w->in.outer[k][i] = fabsf(w->in.outer[k][i]); /* a second moment */
    }
    for (uint64_t m = 0; m < MAX_MEMBERS; m++)
        random_floats(w->g[m], w->n_f32, 10 + m);
    dl_outer_settings settings = {.lr = 0.7,
                                  .mu = 0.9,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .n_commits = 3};
    w->in.n_commits = 3;
    w->args.outer->scalars(w->args.scalars, &settings);
}

static void open_world(world *w, const diloco_tensor *tensors, size_t n, const char *outer,
                       int threads)
{
    dl_combine_rule mean = dl_combine_mean();
    open_world_of(w, tensors, n, outer, threads, &mean);
}

static void close_world(world *w)
{
    dl_outer_scratch_destroy(w->scratch);
    dl_pool_destroy(w->pool);
    dl_arena_deinit(&w->arena);
    dl_codec_form_deinit(&w->form);
    dl_manifest_deinit(&w->manifest);
}

/* Encode g of the first n members, whose raw weights are given; shift 1: not aligned. */
static void contribute(world *w, size_t n, const uint64_t *raw, size_t shift)
{
    double sum = 0;
    w->args.n_members = n;
    for (size_t m = 0; m < n; m++)
        sum += (double)raw[m];
    for (size_t m = 0; m < n; m++) {
        dl_contribution_data *c = &w->members[m];
        size_t index;
        *c = (dl_contribution_data){.payload = w->payload[m] + shift,
                                    .integers = w->integers[m],
                                    .booleans = w->booleans[m]};
        w->form.codec->encode(&w->form, w->payload[m] + shift, &c->len, w->g[m]);
        CHECK_OK(dl_codec_check(&w->form, c->payload, c->len, INFINITY, &index, &c->norm2));
        w->raw[m] = raw[m];
        w->weight[m] = (float)((double)raw[m] / sum);
    }
}

static diloco_status step(world *w, dl_fragment_state *out)
{
    return dl_outer_step(out, &w->in, &w->args, &w->facts, w->scratch, w->pool);
}

static float mean_at(const world *w, size_t i)
{
    float acc = 0;
    for (size_t m = 0; m < w->args.n_members; m++)
        acc = fmaf(w->weight[m], w->g[m][i] + 0.0f, acc);
    return acc;
}

/* out is the Nesterov step of in, its digest that of the memory at rest. */
static void check_nesterov(const world *w, const float *theta, const float *v)
{
    float lr = w->args.scalars[0], mu = w->args.scalars[1];
    for (size_t i = 0; i < w->n_f32; i++) {
        float G = mean_at(w, i), want = fmaf(-1, G, theta[i]);
        if (i < w->shape.n_trained) {
            float u = fmaf(mu, v[i], G);
            want = fmaf(-lr, fmaf(mu, u, G), theta[i]);
            CHECK_BYTES(&u, &w->out.outer[0][i], sizeof u);
        }
        CHECK_BYTES(&want, &w->out.theta[i], sizeof want);
    }
    dl_hash digest = dl_state_digest(&w->out, w->shape, w->args.outer, w->pool);
    CHECK_BYTES(digest.bytes, w->out.digest.bytes, sizeof digest.bytes);
}

static diloco_tensor vector_of(size_t n, diloco_role role, const char *name)
{
    return (diloco_tensor){.name = name, .role = role, .n_dims = 1, .shape = {n}};
}

static const uint64_t uneven[] = {3, 1, 7, 2, 5, 4, 6}, even[] = {1, 1, 1, 1, 1, 1, 1};

TEST(the_pass_has_the_bits_of_the_formulas_at_any_size_threads_and_instruction_set)
{
    static const size_t trained[] = {1, 17, 4095, 4096, 4097, 70001, 600000};
    static const size_t averaged[] = {0, 1, 100, 0, 4096, 300000, 3};
    dl_isa chosen = dl_isa_chosen();
    for (int k = 0; k < 7; k++)
        for (int threads = 1; threads <= 3; threads++) {
            world w;
            diloco_tensor t[] = {vector_of(trained[k], DILOCO_PARAMETER, "w"),
                                 vector_of(averaged[k], DILOCO_FROZEN, "f")};
            size_t n_members = (size_t)(k + threads) % MAX_MEMBERS + 1;
            open_world(&w, t, averaged[k] ? 2 : 1, "nesterov", threads);
            contribute(&w, n_members, uneven, (size_t)threads % 2);
            for (int isa = 0; isa < DL_N_ISA; isa++) {
                if (!dl_isa_available((dl_isa)isa)) continue;
                dl_isa_use((dl_isa)isa);
                memset(w.out.theta, 0x7f, w.n_f32 * sizeof(float));
                CHECK_OK(step(&w, &w.out));
                check_nesterov(&w, w.in.theta, w.in.outer[0]);
                CHECK_INT(4, w.out.n_commits);
            }
            dl_isa_use(chosen);
            close_world(&w);
        }
}

TEST(in_place_gives_the_same_state)
{
    world w;
    diloco_tensor t[] = {vector_of(300001, DILOCO_PARAMETER, "w"),
                         vector_of(5000, DILOCO_BUFFER, "f")};
    open_world(&w, t, 2, "nesterov", 2);
    contribute(&w, 3, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK_OK(step(&w, &w.in));
    CHECK_BYTES(w.out.theta, w.in.theta, w.n_f32 * sizeof(float));
    CHECK_BYTES(w.out.outer[0], w.in.outer[0], w.shape.n_trained * sizeof(float));
    CHECK_BYTES(w.out.digest.bytes, w.in.digest.bytes, 16);
    CHECK_INT(4, w.in.n_commits);
    close_world(&w);
}

TEST(sgd_of_lr_1_ends_at_the_weighted_mean_of_the_members)
{
    world w;
    diloco_tensor t = vector_of(1000, DILOCO_PARAMETER, "w");
    open_world(&w, &t, 1, "sgd", 1);
    w.args.scalars[0] = 1;
    contribute(&w, 3, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    for (size_t i = 0; i < w.n_f32; i++) {
        double mean = 0; /* of where the members went: theta - g */
        for (int m = 0; m < 3; m++)
            mean += (double)uneven[m] / 11 * ((double)w.in.theta[i] - (double)w.g[m][i]);
        CHECK_NEAR(mean, w.out.theta[i], 3e-7); /* a few roundings of numbers below 1 */
    }
    close_world(&w);
}

TEST(momentum_is_kept_for_trained_elements_only)
{
    world w;
    diloco_tensor t[] = {vector_of(10, DILOCO_PARAMETER, "w"), vector_of(10, DILOCO_FROZEN, "f")};
    dl_manifest all;
    open_world(&w, t, 2, "nesterov", 1);
    CHECK_INT(10, w.shape.n_trained);
    contribute(&w, 1, even, 0);
    CHECK_OK(step(&w, &w.out));
    for (size_t i = 10; i < 20; i++)
        CHECK(w.out.theta[i] == w.in.theta[i] - w.g[0][i]); /* the mean, whatever lr and mu */
    close_world(&w);
    CHECK_OK(dl_manifest_init(&all, t, 2, true)); /* apply_outer_optimizer_to = all_floating */
    CHECK_INT(20, all.fragments[0].n_trained);
    dl_manifest_deinit(&all);
}

TEST(adamw_decays_matrices_only_wherever_they_lie_in_a_block)
{
    world w, plain;
    diloco_tensor t[] = {vector_of(5, DILOCO_PARAMETER, "b1"),
                         {.name = "w1", .n_dims = 2, .shape = {70, 71}},
                         {.name = "w2", .n_dims = 2, .shape = {3, 5}},
                         vector_of(9000, DILOCO_PARAMETER, "b2"),
                         {.name = "w3", .n_dims = 3, .shape = {2, 3, 4}},
                         vector_of(50, DILOCO_BUFFER, "f")};
    open_world(&w, t, 6, "adamw", 2);
    open_world(&plain, t, 6, "adamw", 1);
    plain.args.scalars[4] = 0; /* no decay at all */
    contribute(&w, 2, uneven, 0);
    contribute(&plain, 2, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK_OK(step(&plain, &plain.out));
    float decay = w.args.scalars[0] * w.args.scalars[4];
    for (size_t i = 0; i < w.n_f32; i++) {
        bool matrix = (i >= 5 && i < 5 + 4970 + 15) || (i >= 13990 && i < 14014);
        double want = (double)plain.out.theta[i] - (matrix ? decay * (double)w.in.theta[i] : 0);
        CHECK_NEAR(want, w.out.theta[i], matrix ? 1e-6 : 0);
    }
    dl_hash digest = dl_state_digest(&w.out, w.shape, w.args.outer, w.pool);
    CHECK_BYTES(digest.bytes, w.out.digest.bytes, 16);
    close_world(&w);
    close_world(&plain);
}

TEST(integers_are_averaged_and_rounded_half_up)
{
    static const struct {
        int64_t x[3];
        uint64_t raw[3];
        int n;
        int64_t mean;
    } rows[] = {
        {{1, 2}, {1, 1}, 2, 2},
        {{-1, -2}, {1, 1}, 2, -1},
        {{-1, 2}, {1, 1}, 2, 1},
        {{-1, 0}, {1, 1}, 2, 0},
        {{0, 1}, {2, 1}, 2, 0},
        {{0, -1}, {2, 1}, 2, 0},
        {{0, -1}, {1, 2}, 2, -1},
        {{0, 1}, {1, 2}, 2, 1},
        {{7, 8, 8}, {1, 1, 1}, 3, 8},
        {{-7, -8, -8}, {1, 1, 1}, 3, -8},
        {{5, 100}, {1, 0}, 2, 5},
        {{INT64_MAX, INT64_MAX}, {1, 1}, 2, INT64_MAX},
        {{INT64_MIN, INT64_MIN}, {INT64_MAX / 2, INT64_MAX / 2}, 2, INT64_MIN},
        {{INT64_MIN, INT64_MAX}, {1, 1}, 2, 0},
    };
    diloco_tensor t = {.name = "n", .dtype = DILOCO_I64, .role = DILOCO_BUFFER};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        world w;
        open_world(&w, &t, 1, "nesterov", 2);
        contribute(&w, (size_t)rows[r].n, rows[r].raw, 0);
        for (int m = 0; m < rows[r].n; m++)
            memcpy(w.integers[m], &rows[r].x[m], 8);
        CHECK_OK(step(&w, &w.out));
        CHECK_INT(rows[r].mean, w.out.integers[0]);
        close_world(&w);
    }
}

TEST(integers_and_booleans_pass_through_a_combined_update_as_they_are)
{
    world w;
    diloco_tensor t[] = {
        vector_of(100, DILOCO_PARAMETER, "w"),
        {.name = "n", .dtype = DILOCO_I64, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {3}},
        {.name = "b", .dtype = DILOCO_BOOL, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {2}}};
    static const int64_t counts[2][3] = {{1, -7, INT64_MAX}, {4, 2, INT64_MAX - 5}};
    static const unsigned char flags[2][2] = {{1, 0}, {0, 0}};
    unsigned char room[1 + sizeof counts[0]], booleans[2];
    float g[100];
    open_world(&w, t, 3, "nesterov", 1);
    contribute(&w, 2, uneven, 0);
    for (int m = 0; m < 2; m++) {
        memcpy(w.integers[m], counts[m], sizeof counts[m]);
        memcpy(w.booleans[m], flags[m], sizeof flags[m]);
    }
    CHECK_OK(step(&w, &w.out));
    const dl_hash want = w.out.digest;
    dl_combined parts = {.g = g, .integers = room + 1, .booleans = booleans}; /* not aligned */
    CHECK_OK(dl_outer_combine(&parts, &w.in, &w.args, &w.facts, w.scratch, w.pool));
    memset(w.out.integers, 0, sizeof counts[0]);
    w.args.combined = &parts;
    CHECK_OK(step(&w, &w.out));
    CHECK_BYTES(want.bytes, w.out.digest.bytes, sizeof want.bytes);
    close_world(&w);
}

TEST(booleans_go_by_the_majority_of_weights_and_ties_are_true)
{
    world w;
    diloco_tensor t = {
        .name = "b", .dtype = DILOCO_BOOL, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {8}};
    open_world(&w, &t, 1, "sgd", 1);
    for (int pass = 0; pass < 2; pass++) {
        const uint64_t raw[] = {2, 1, pass ? 2 : 1}; /* 4 of votes, or 5 */
        contribute(&w, 3, raw, 0);
        for (int i = 0; i < 8; i++) { /* bit m of i: the vote of member m */
            uint64_t yes = 0, all = raw[0] + raw[1] + raw[2];
            for (int m = 0; m < 3; m++)
                w.booleans[m][i] = i >> m & 1;
            for (int m = 0; m < 3; m++)
                yes += i >> m & 1 ? raw[m] : 0;
            w.in.booleans[i] = 2 * yes >= all; /* what we expect, kept there */
        }
        CHECK_OK(step(&w, &w.out));
        CHECK_BYTES(w.in.booleans, w.out.booleans, 8);
    }
    CHECK_INT(1, w.out.booleans[5]);
    close_world(&w);
}

TEST(adoption_writes_the_local_tensors_and_nothing_else)
{
    world w;
    diloco_tensor t[] = {
        vector_of(100, DILOCO_PARAMETER, "a"),
        vector_of(9001, DILOCO_PARAMETER, "b"),
        vector_of(30, DILOCO_FROZEN, "f"),
        {.name = "n", .dtype = DILOCO_I64, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {2}},
        {.name = "m", .dtype = DILOCO_BOOL, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {3}}};
    static float a[102], b[9003], f[32], was[9003];
    int64_t n[4];
    uint8_t m[5];
    const float mixes[] = {0, 0.25f, 1};
    for (int k = 0; k < 3; k++) {
        open_world(&w, t, 5, "nesterov", 2);
        contribute(&w, 2, uneven, 0);
        w.integers[0][0] = w.integers[1][8] = 40;
        w.booleans[0][1] = 1;
        random_floats(was, 9003, 50);
        memcpy(a, was, sizeof a), memcpy(b, was, sizeof b), memcpy(f, was, sizeof f);
        memset(n, 9, sizeof n), memset(m, 9, sizeof m);
        dl_local_tensor local[] = {{a + 1, 0, 100, DL_TRAINED},
                                   {b + 1, 100, 9001, DL_TRAINED},
                                   {f + 1, 9101, 30, DL_AVERAGED},
                                   {n + 1, 0, 2, DL_INTEGERS},
                                   {m + 1, 0, 3, DL_BOOLEANS}};
        w.args.local = local, w.args.n_local = 5, w.args.local_mix = mixes[k];
        CHECK_OK(step(&w, &w.out));
        float *where[] = {a, b, f};
        for (int l = 0; l < 3; l++) {
            CHECK(where[l][0] == was[0] && where[l][local[l].count + 1] == was[local[l].count + 1]);
            for (size_t i = 0; i < local[l].count; i++) {
                float theta = w.out.theta[local[l].begin + i], old = was[i + 1];
                float want = k == 0 ? theta : k == 2 ? old : fmaf(0.25f, old - theta, theta);
                CHECK_BYTES(&want, &where[l][i + 1], sizeof want);
            }
        }
        CHECK_INT(k == 2 ? 0x0909090909090909 : w.out.integers[1], n[2]);
        CHECK_INT(k == 2 ? 9 : 1, m[2]);
        CHECK(m[0] == 9 && m[4] == 9 && n[0] == n[3]);
        close_world(&w);
    }
}

TEST(a_result_that_is_not_finite_fails_by_name_and_leaves_the_input)
{
    world w;
    diloco_tensor t[] = {vector_of(50, DILOCO_PARAMETER, "a"),
                         vector_of(600000, DILOCO_PARAMETER, "layer.w"),
                         vector_of(20, DILOCO_FROZEN, "f")};
    static const size_t places[] = {600069, 300000, 49};
    static const char *const texts[] = {"theta of tensor f, element 19",
                                        "theta of tensor layer.w, element 299950",
                                        "theta of tensor a, element 49"};
    static float local[600070];
    open_world(&w, t, 3, "nesterov", 2);
    dl_local_tensor where = {local, 0, 600070, DL_TRAINED};
    w.args.local = &where, w.args.n_local = 1;
    float *theta = test_malloc(w.n_f32 * sizeof *theta);
    for (int k = 0; k < 3; k++) { /* the first one is named, on whatever thread it was */
        w.in.theta[places[k]] = 3e38f;
        w.g[0][places[k]] = -3e38f;
        memcpy(theta, w.in.theta, w.n_f32 * sizeof *theta);
        contribute(&w, 1, even, 0);
        CHECK_STATUS(DILOCO_ENUMERIC, step(&w, &w.out));
        CHECK_CONTAINS(texts[k], diloco_error_text());
        CHECK_BYTES(theta, w.in.theta, w.n_f32 * sizeof *theta);
        CHECK_INT(3, w.in.n_commits);
        for (size_t i = 0; i < 600070; i++)
            CHECK(isfinite(local[i]));
    }
    test_free(theta);
    close_world(&w);
}

TEST(an_outer_vector_that_is_not_finite_is_named_too)
{
    world w;
    diloco_tensor t = vector_of(50, DILOCO_PARAMETER, "a");
    open_world(&w, &t, 1, "adamw", 1);
    w.g[0][7] = 3e30f;
    contribute(&w, 1, even, 0);
    CHECK_STATUS(DILOCO_ENUMERIC, step(&w, &w.out));
    CHECK_CONTAINS("exp_avg_sq of tensor a, element 7", diloco_error_text());
    close_world(&w);
}

static void check_facts(const uint64_t *raw)
{
    enum { N = 9000 };
    world w;
    diloco_tensor t = vector_of(N, DILOCO_PARAMETER, "w");
    open_world(&w, &t, 1, "nesterov", 2);
    contribute(&w, 4, raw, 0);
    CHECK_OK(step(&w, &w.out));
    double G2 = 0, cosines = 0, spread = 0;
    for (size_t i = 0; i < N; i++) {
        double mean = 0;
        G2 += (double)mean_at(&w, i) * (double)mean_at(&w, i);
        for (int m = 0; m < 4; m++)
            mean += (double)w.g[m][i] / 4;
        for (int m = 0; m < 4; m++)
            spread += ((double)w.g[m][i] - mean) * ((double)w.g[m][i] - mean) / 4;
    }
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            if (a != b)
                cosines += dl_dot(w.g[a], w.g[b], N) /
                           sqrt(dl_norm2(w.g[a], N) * dl_norm2(w.g[b], N)) / 12;
    CHECK_NEAR(sqrt(G2), w.facts.aggregated_norm, 1e-9 * sqrt(G2)); /* the sums' order only */
    CHECK_NEAR(cosines, w.facts.similarity, 1e-6);                  /* float32 unit vectors */
    CHECK_NEAR(sqrt(spread), w.facts.divergence, 1e-6 * sqrt(spread));
    close_world(&w);
}

TEST(the_facts_are_norm_cosine_and_divergence_by_any_weights)
{
    check_facts(even);
    check_facts(uneven);
}

TEST(the_facts_of_one_equal_opposite_and_unmoved_members)
{
    world w;
    diloco_tensor t = vector_of(100, DILOCO_PARAMETER, "w");
    open_world(&w, &t, 1, "sgd", 1);
    contribute(&w, 1, even, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK(isnan(w.facts.similarity) && w.facts.divergence == 0);
    memcpy(w.g[1], w.g[0], 400);
    contribute(&w, 2, even, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK_NEAR(1, w.facts.similarity, 1e-6);
    CHECK_NEAR(0, w.facts.divergence, 1e-6);
    memcpy(w.g[2], w.g[0], 400); /* thirds are not exact in float32 */
    contribute(&w, 3, even, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK_NEAR(0, w.facts.divergence, 1e-3 * sqrt(dl_norm2(w.g[0], 100)));
    for (int i = 0; i < 100; i++)
        w.g[1][i] = -w.g[0][i];
    contribute(&w, 2, even, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK_NEAR(-1, w.facts.similarity, 1e-6);
    CHECK(w.facts.aggregated_norm == 0);
    memset(w.g[1], 0, 400); /* it has no direction: counts as at a right angle */
    contribute(&w, 2, even, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK_NEAR(0, w.facts.similarity, 1e-6);
    memset(w.g[0], 0, 400);
    contribute(&w, 2, even, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK(w.facts.similarity == 0 && w.facts.divergence == 0);
    close_world(&w);
}

/* ---- combiners ------------------------------------------------------------------------------ */

static dl_combine_rule rule_of(const char *combiner, dl_mixing mixing)
{
    dl_combine_rule rule = {.combiner = dl_combiner_find(combiner),
                            .mixing = mixing,
                            .trim = 200000000,
                            .byzantine = 1,
                            .clip_radius = 1,
                            .bucket_size = 1,
                            .most_slices = 5};
    CHECK(rule.combiner);
    return rule;
}

/* Tensors that share blocks and leaves, one of them an embedding, one averaged. */
static const diloco_tensor many[] = {
    {.name = "model.embed_tokens.weight", .n_dims = 2, .shape = {30, 101}},
    {.name = "a", .n_dims = 1, .shape = {7}},
    {.name = "b", .n_dims = 2, .shape = {400, 701}},
    {.name = "c", .n_dims = 1, .shape = {5000}},
    {.name = "f", .role = DILOCO_FROZEN, .n_dims = 1, .shape = {4500}}};
enum { MANY = sizeof many / sizeof many[0] };

/* The first outcome of a rule stays in want and facts; later ones are held against it. */
static void check_same(world *w, dl_hash *want, dl_outer_step_facts *facts)
{
    CHECK_OK(step(w, &w->out));
    if (!facts->combiner) *want = w->out.digest, *facts = w->facts;
    CHECK_BYTES(want->bytes, w->out.digest.bytes, sizeof want->bytes);
    CHECK(facts->similarity == w->facts.similarity && facts->divergence == w->facts.divergence);
    CHECK(facts->aggregated_norm == w->facts.aggregated_norm);
}

/* What one combines for all is what each would have combined. */
static void check_in_two_halves(world *w, dl_hash want, const dl_outer_step_facts *facts)
{
    dl_combined parts = {.g = calloc(w->n_f32, sizeof(float))};
    CHECK_OK(dl_outer_combine(&parts, &w->in, &w->args, &w->facts, w->scratch, w->pool));
    CHECK(facts->similarity == w->facts.similarity && facts->divergence == w->facts.divergence);
    w->args.combined = &parts;
    CHECK_OK(step(w, &w->out));
    w->args.combined = NULL;
    CHECK_BYTES(want.bytes, w->out.digest.bytes, sizeof want.bytes);
    CHECK(facts->aggregated_norm == w->facts.aggregated_norm);
    CHECK(isnan(w->facts.similarity) && isnan(w->facts.divergence));
    free(parts.g);
}

static void look_at_slice(world *w, size_t i)
{
    size_t end;
    dl_cut_range(&w->args.first, &end, w->n_f32, w->form.slices, i);
    w->args.count = end - w->args.first;
    for (size_t m = 0; m < w->args.n_members; m++)
        CHECK_OK(dl_codec_check_part(&w->form, w->members[m].payload, INFINITY, w->args.first,
                                     w->args.count, &w->members[m].norm2));
}

/* What each makes of a slice, from what each has measured of one, is what one makes of all. */
static void check_in_slices(world *w, dl_hash want)
{
    dl_combined parts = {.g = calloc(w->n_f32, sizeof(float))};
    double norm2[MAX_MEMBERS], *measured = NULL, *at;
    size_t n = 0;
    for (size_t m = 0; m < w->args.n_members; m++)
        norm2[m] = w->members[m].norm2;
    for (size_t i = 0; i < w->form.slices; i++)
        n += dl_outer_n_measures(&w->args, w->scratch, i);
    at = measured = calloc(n, sizeof *measured);
    for (size_t i = 0; i < w->form.slices; i++) {
        look_at_slice(w, i);
        CHECK_OK(dl_outer_measure(at, &w->in, &w->args, w->scratch, w->pool));
        at += dl_outer_n_measures(&w->args, w->scratch, i);
    }
    CHECK_INT(n, at - measured);
    w->args.measured = measured;
    for (size_t i = 0; i < w->form.slices; i++) {
        look_at_slice(w, i);
        CHECK_OK(dl_outer_combine(&parts, &w->in, &w->args, &w->facts, w->scratch, w->pool));
    }
    w->args.measured = NULL;
    w->args.first = w->args.count = 0;
    w->args.combined = &parts;
    CHECK_OK(step(w, &w->out));
    w->args.combined = NULL;
    CHECK_BYTES(want.bytes, w->out.digest.bytes, sizeof want.bytes);
    for (size_t m = 0; m < w->args.n_members; m++)
        w->members[m].norm2 = norm2[m];
    free(parts.g);
    free(measured);
}

static void check_rule(const dl_combine_rule *rule, const dl_outer_step_facts *plain)
{
    dl_outer_step_facts facts = {.combiner = NULL};
    dl_hash want;
    dl_isa chosen = dl_isa_chosen();
    for (int threads = SANITIZED ? 2 : 1; threads <= 2; threads++) { /* of a minute it makes two */
        world w;
        open_world_of(&w, many, MANY, "nesterov", threads, rule);
        contribute(&w, 7, uneven, (size_t)threads - 1); /* views, then copies */
        check_same(&w, &want, &facts);
        for (int isa = 0; isa < DL_N_ISA && threads == 1; isa++) {
            if (!dl_isa_available((dl_isa)isa)) continue;
            dl_isa_use((dl_isa)isa);
            check_same(&w, &want, &facts);
            check_in_two_halves(&w, want, &facts);
        }
        dl_isa_use(chosen);
        check_in_two_halves(&w, want, &facts);
        check_in_slices(&w, want);
        dl_hash digest = dl_state_digest(&w.out, w.shape, w.args.outer, w.pool);
        CHECK_BYTES(want.bytes, digest.bytes, sizeof want.bytes);
        close_world(&w);
    }
    CHECK_STR(rule->combiner->name, facts.combiner);
    CHECK_NEAR(plain->similarity, facts.similarity, 1e-6); /* they are the members' */
    CHECK_NEAR(plain->divergence, facts.divergence, 1e-6 * plain->divergence);
}

TEST(every_combiner_gives_the_same_bits_at_any_threads_and_instruction_set_and_the_same_facts)
{
    world w;
    open_world(&w, many, MANY, "nesterov", 1);
    contribute(&w, 7, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    for (size_t k = 0; dl_combiner_at(k); k++)
        for (int mixing = DL_MIX_NONE; mixing <= DL_MIX_BUCKETING; mixing++) {
            dl_combine_rule rule = rule_of(dl_combiner_at(k)->name, (dl_mixing)mixing);
            if (!mixing || rule.combiner->ignores_weights) check_rule(&rule, &w.facts);
            rule.rescale = true;
            if (rule.combiner->ignores_weights && !rule.combiner->keeps)
                check_rule(&rule, &w.facts);
        }
    close_world(&w);
}

/* At lr 1, theta moves by what is kept; what is averaged by its members' mean. */
TEST(p1_centered_clipping_keeps_its_update_in_the_state_and_goes_on_from_it)
{
    dl_combine_rule rule = rule_of("centered_clip", DL_MIX_NONE);
    world w;
    open_world_of(&w, many, MANY, "sgd", 2, &rule);
    CHECK(w.args.outer->keeps && w.args.outer->n_state == 1);
    CHECK_STR("update", w.args.outer->state_names[0]);
    w.args.scalars[0] = 1;
    memset(w.in.outer[0], 0, w.shape.n_trained * sizeof(float));
    memset(w.in.theta, 0, w.n_f32 * sizeof(float));
    for (size_t m = 1; m < 5; m++)
        memcpy(w.g[m], w.g[0], w.n_f32 * sizeof(float));
    contribute(&w, 5, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    for (size_t i = 0; i < w.n_f32; i++) {
        CHECK_NEAR(w.g[0][i], -w.out.theta[i], 1e-6); /* all agree */
        if (i < w.shape.n_trained) CHECK(w.out.outer[0][i] == -w.out.theta[i]);
    }
    CHECK_INT(2, w.facts.tolerated);
    w.in = w.out; /* members of nothing: clipped at half of the way, three times */
    float *first = calloc(w.shape.n_trained, sizeof *first);
    memcpy(first, w.in.outer[0], w.shape.n_trained * sizeof *first);
    for (size_t m = 0; m < 5; m++)
        memset(w.g[m], 0, w.n_f32 * sizeof(float));
    dl_outer_scratch_destroy(w.scratch);
    rule.clip_radius = 0.5;
    CHECK_OK(dl_outer_scratch_create(&w.scratch, &w.manifest, &rule, MAX_MEMBERS, 2));
    contribute(&w, 5, uneven, 0);
    CHECK_OK(step(&w, &w.out)); /* in place */
    for (size_t i = 0; i < w.shape.n_trained; i++)
        CHECK_NEAR(first[i] / 8, w.out.outer[0][i], 1e-7);
    free(first);
    close_world(&w);
}

TEST(a_combiner_by_element_gives_the_bits_of_its_formula)
{
    dl_combine_rule rule = rule_of("median", DL_MIX_NONE);
    world w;
    open_world_of(&w, many, MANY, "sgd", 2, &rule);
    contribute(&w, 5, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    for (size_t i = 0; i < w.n_f32; i++) {
        float sorted[5];
        for (size_t m = 0, at; m < 5; m++) {
            for (at = m; at > 0 && sorted[at - 1] > w.g[m][i]; at--)
                sorted[at] = sorted[at - 1];
            sorted[at] = w.g[m][i];
        }
        float lr = i < w.shape.n_trained ? w.args.scalars[0] : 1;
        float want = fmaf(-lr, sorted[2], w.in.theta[i]);
        CHECK_BYTES(&want, &w.out.theta[i], sizeof want);
    }
    CHECK_INT(2, w.facts.tolerated);
    close_world(&w);
}

/* ||x|| of elements [begin, end) of what theta moved by, at lr 1. */
static double moved(const world *w, size_t begin, size_t end)
{
    double sum = 0;
    for (size_t i = begin; i < end; i++)
        sum += pow((double)w->in.theta[i] - (double)w->out.theta[i], 2);
    return sqrt(sum);
}

TEST(rda_keeps_each_tensors_mean_norm_and_embeddings_and_buffers_take_the_mean)
{
    static const size_t begin[] = {0, 3030, 3037, 283437, 288437, 292937};
    dl_combine_rule rule = rule_of("rda", DL_MIX_NONE);
    world w;
    open_world_of(&w, many, MANY, "sgd", 2, &rule);
    w.args.scalars[0] = 1;
    contribute(&w, 4, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK_INT(292937, w.n_f32);
    for (int t = 0; t < MANY; t++) {
        size_t n = begin[t + 1] - begin[t];
        double radius = 0, of_mean = 0;
        for (size_t m = 0; m < 4; m++)
            radius += (double)w.weight[m] * sqrt(dl_norm2(w.g[m] + begin[t], n));
        for (size_t i = begin[t]; i < begin[t + 1]; i++)
            of_mean += (double)mean_at(&w, i) * (double)mean_at(&w, i);
        bool plain = t == 0 || t == 4;
        /* theta - out is rounded: half a unit in the last place of 1 an element, at random */
        CHECK_NEAR(plain ? sqrt(of_mean) : radius, moved(&w, begin[t], begin[t + 1]),
                   1e-5 * radius);
        CHECK(plain || sqrt(of_mean) < 0.8 * radius); /* they are not the same by chance */
    }
    close_world(&w);
}

TEST(krum_reads_and_takes_one_member)
{
    dl_combine_rule rule = rule_of("krum", DL_MIX_NONE);
    world w;
    diloco_tensor t = vector_of(9000, DILOCO_PARAMETER, "w");
    open_world_of(&w, &t, 1, "sgd", 2, &rule);
    for (size_t m = 0; m < 5; m++) /* members 1 to 4 close together, 3 in their middle */
        for (size_t i = 0; m && i < 9000; i++)
            w.g[m][i] = 1 + (m == 3 ? 0 : 0.01f * w.g[m][i]);
    contribute(&w, 5, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    for (size_t i = 0; i < 9000; i++) {
        float want = fmaf(-w.args.scalars[0], 1, w.in.theta[i]);
        CHECK_BYTES(&want, &w.out.theta[i], sizeof want);
    }
    CHECK_NEAR(sqrt(9000), w.facts.aggregated_norm, 1e-9);
    close_world(&w);
}

TEST(swm19_too_few_members_refuse_the_entry_or_fall_back_to_the_mean)
{
    dl_combine_rule rule = rule_of("trimmed_mean", DL_MIX_NONE);
    world w, mean;
    open_world_of(&w, many, MANY, "nesterov", 1, &rule);
    contribute(&w, 4, uneven, 0);
    memset(w.out.theta, 0x7f, w.n_f32 * sizeof(float));
    CHECK_STATUS(DILOCO_ENUMERIC, step(&w, &w.out));
    CHECK_CONTAINS("trimmed_mean needs 5 members, here are 4", diloco_error_text());
    CHECK_INT(3, w.in.n_commits);
    contribute(&w, 5, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK(!w.facts.fell_back && w.facts.tolerated == 1);
    close_world(&w);

    rule.fall_back = true;
    open_world_of(&w, many, MANY, "nesterov", 1, &rule);
    open_world(&mean, many, MANY, "nesterov", 1);
    contribute(&w, 4, uneven, 0);
    contribute(&mean, 4, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK_OK(step(&mean, &mean.out));
    CHECK(w.facts.fell_back && w.facts.tolerated == 0 && !mean.facts.fell_back);
    CHECK_STR("mean", w.facts.combiner);
    CHECK_BYTES(mean.out.digest.bytes, w.out.digest.bytes, 16);
    close_world(&w);
    close_world(&mean);
}

TEST(robust_combiners_take_the_median_of_integers_and_the_heads_of_booleans)
{
    diloco_tensor t[] = {
        {.name = "n", .dtype = DILOCO_I64, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {3}},
        {.name = "m", .dtype = DILOCO_BOOL, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {2}}};
    static const int64_t values[5][3] = {
        {INT64_MAX, 4, -9}, {7, INT64_MIN, 2}, {3, 4, 2}, {-2, 5, 2}, {8, INT64_MAX, 9}};
    static const uint8_t truths[5][2] = {{1, 0}, {0, 1}, {0, 1}, {1, 0}, {0, 0}};
    const uint64_t heavy[] = {1000, 1, 1, 1, 1};
    dl_combine_rule rule = rule_of("median", DL_MIX_NONE);
    world w;
    open_world_of(&w, t, 2, "sgd", 1, &rule);
    contribute(&w, 5, heavy, 0);
    for (int m = 0; m < 5; m++) {
        memcpy(w.integers[m], values[m], sizeof values[m]);
        memcpy(w.booleans[m], truths[m], sizeof truths[m]);
    }
    CHECK_OK(step(&w, &w.out));
    CHECK_INT(7, w.out.integers[0]);
    CHECK_INT(4, w.out.integers[1]);
    CHECK_INT(2, w.out.integers[2]);
    CHECK(w.out.booleans[0] == 0 && w.out.booleans[1] == 0);
    contribute(&w, 4, heavy, 0); /* the middle two of -2, 3, 7, max; a tie of 2 and 2 */
    CHECK_OK(step(&w, &w.out));
    CHECK_INT(5, w.out.integers[0]);
    CHECK(w.out.booleans[0] == 1 && w.out.booleans[1] == 1);
    close_world(&w);
}

TEST(the_digest_covers_every_part_of_the_state)
{
    world w;
    diloco_tensor t[] = {
        vector_of(300000, DILOCO_PARAMETER, "a"),
        vector_of(30, DILOCO_FROZEN, "f"),
        {.name = "n", .dtype = DILOCO_I64, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {2}},
        {.name = "m", .dtype = DILOCO_BOOL, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {3}}};
    open_world(&w, t, 4, "nesterov", 3);
    dl_hash digest = dl_state_digest(&w.in, w.shape, w.args.outer, w.pool), other;
    other = dl_state_digest(&w.in, w.shape, w.args.outer, NULL);
    CHECK_BYTES(digest.bytes, other.bytes, 16);
    for (int k = 0; k < 6; k++) {
        dl_fragment_state changed = w.in;
        float *floats[] = {&w.in.theta[299999], &w.in.theta[300029], &w.in.outer[0][5]};
        if (k < 3) *floats[k] += 1;
        if (k == 3) changed.integers[1]++;
        if (k == 4) changed.booleans[2]++;
        if (k == 5) changed.n_commits++;
        other = dl_state_digest(&changed, w.shape, w.args.outer, w.pool);
        CHECK(!dl_hash_equal(digest, other));
        digest = dl_state_digest(&w.in, w.shape, w.args.outer, w.pool);
    }
    close_world(&w);
}

TEST(the_digest_has_the_form_the_header_gives)
{
    world w;
    diloco_tensor t[] = {vector_of(300000, DILOCO_PARAMETER, "a"),
                         vector_of(30, DILOCO_FROZEN, "f")};
    unsigned char bytes[4 * 16 + 8] = {0};
    open_world(&w, t, 2, "nesterov", 2);
    dl_hash parts[] = {dl_digest_bytes(w.in.theta, 300030 * 4),
                       dl_digest_bytes(w.in.outer[0], 300000 * 4), dl_digest_bytes(NULL, 0),
                       dl_digest_bytes(NULL, 0)};
    memcpy(bytes, parts, sizeof parts);
    bytes[64] = 3;
    dl_hash want = dl_hash_bytes(bytes, sizeof bytes);
    dl_hash got = dl_state_digest(&w.in, w.shape, w.args.outer, w.pool);
    CHECK_BYTES(want.bytes, got.bytes, 16);
    close_world(&w);
}

TEST(a_scratch_of_no_members_or_threads_is_refused)
{
    dl_combine_rule mean = dl_combine_mean();
    dl_outer_scratch *scratch;
    dl_manifest manifest;
    diloco_tensor t = vector_of(50, DILOCO_PARAMETER, "a");
    CHECK_OK(dl_manifest_init(&manifest, &t, 1, false));
    CHECK_STATUS(DILOCO_EINVAL, dl_outer_scratch_create(&scratch, &manifest, &mean, 0, 1));
    CHECK_STATUS(DILOCO_EINVAL,
                 dl_outer_scratch_create(&scratch, &manifest, &mean, DL_MAX_MEMBERS + 1, 1));
    CHECK_STATUS(DILOCO_EINVAL, dl_outer_scratch_create(&scratch, &manifest, &mean, 1, 0));
    CHECK(!scratch);
    dl_outer_scratch_destroy(NULL);
    dl_manifest_deinit(&manifest);
}

TEST_MAIN(the_pass_has_the_bits_of_the_formulas_at_any_size_threads_and_instruction_set,
          in_place_gives_the_same_state, sgd_of_lr_1_ends_at_the_weighted_mean_of_the_members,
          p1_centered_clipping_keeps_its_update_in_the_state_and_goes_on_from_it,
          momentum_is_kept_for_trained_elements_only,
          adamw_decays_matrices_only_wherever_they_lie_in_a_block,
          integers_are_averaged_and_rounded_half_up,
          integers_and_booleans_pass_through_a_combined_update_as_they_are,
          booleans_go_by_the_majority_of_weights_and_ties_are_true,
          adoption_writes_the_local_tensors_and_nothing_else,
          a_result_that_is_not_finite_fails_by_name_and_leaves_the_input,
          an_outer_vector_that_is_not_finite_is_named_too,
          the_facts_are_norm_cosine_and_divergence_by_any_weights,
          the_facts_of_one_equal_opposite_and_unmoved_members,
          every_combiner_gives_the_same_bits_at_any_threads_and_instruction_set_and_the_same_facts,
          a_combiner_by_element_gives_the_bits_of_its_formula,
          rda_keeps_each_tensors_mean_norm_and_embeddings_and_buffers_take_the_mean,
          krum_reads_and_takes_one_member,
          swm19_too_few_members_refuse_the_entry_or_fall_back_to_the_mean,
          robust_combiners_take_the_median_of_integers_and_the_heads_of_booleans,
          the_digest_covers_every_part_of_the_state, the_digest_has_the_form_the_header_gives,
          a_scratch_of_no_members_or_threads_is_refused)
