/* outer_step_test.c - the fused pass against the formulas of docs/architecture.md section 2 applied
 * one element at a time, bit for bit. It runs on every instruction set, at 1 to 3 threads, in place
 * and not, with views and with copies, with blocks that several tensors or rules share. */
#include "step_world.h"

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

TEST(the_fused_pass_has_the_bits_of_the_formulas_at_any_size_threads_and_instruction_set)
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

TEST(fed_39_momentum_is_kept_for_trained_elements_only)
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

TEST(adamw_decays_matrices_only_at_any_place_in_a_block)
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

TEST(fed_41_integers_are_averaged_and_rounded_half_up)
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

TEST(fed_41_booleans_take_the_majority_by_weight_and_ties_are_true)
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
            w.in.booleans[i] = 2 * yes >= all; /* the expected values, kept there */
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
    w.args.own = 3;
    CHECK_OK(step(&w, &w.out));
    double G2 = 0, cosines = 0, spread = 0, own = 0;
    for (size_t i = 0; i < N; i++) {
        double mean = 0;
        own += (double)w.g[2][i] * (double)mean_at(&w, i);
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
    CHECK_NEAR(own / sqrt(G2 * dl_norm2(w.g[2], N)), w.facts.own_cosine, 1e-6);
    w.args.own = 0;
    CHECK_OK(step(&w, &w.out));
    CHECK(isnan(w.facts.own_cosine));
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

TEST_MAIN(the_fused_pass_has_the_bits_of_the_formulas_at_any_size_threads_and_instruction_set,
          in_place_gives_the_same_state, sgd_of_lr_1_ends_at_the_weighted_mean_of_the_members,
          fed_39_momentum_is_kept_for_trained_elements_only,
          adamw_decays_matrices_only_at_any_place_in_a_block,
          fed_41_integers_are_averaged_and_rounded_half_up,
          integers_and_booleans_pass_through_a_combined_update_as_they_are,
          fed_41_booleans_take_the_majority_by_weight_and_ties_are_true,
          adoption_writes_the_local_tensors_and_nothing_else,
          a_result_that_is_not_finite_fails_by_name_and_leaves_the_input,
          an_outer_vector_that_is_not_finite_is_named_too,
          the_facts_are_norm_cosine_and_divergence_by_any_weights,
          the_facts_of_one_equal_opposite_and_unmoved_members,
          the_digest_covers_every_part_of_the_state, the_digest_has_the_form_the_header_gives,
          a_scratch_of_no_members_or_threads_is_refused)
