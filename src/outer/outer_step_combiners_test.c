/* outer_step_combiners_test.c - the fused pass with every combiner: the same bits however it is cut
 * and on whatever it runs, and those of the formulas; too few members; integers and booleans. */
#include "sanitized.h"
#include "step_world.h"

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
    CHECK(facts->own_cosine == w->facts.own_cosine || isnan(facts->own_cosine));
}

/* One replica's combined update for all equals the result that each would have combined. */
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

/* Slices combined by each owner, from each owner's measurements, equal the result of one that
 * combines all. */
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
        w.args.own = 4;
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

/* At lr 1, theta moves by the kept part; averaged elements move by their members' mean. */
TEST(p1_centered_clipping_resumes_from_its_update_in_the_state)
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

/* Only the members that sent nothing count. */
TEST(where_most_members_send_nothing_so_is_their_geometric_median)
{
    dl_combine_rule rule = rule_of("geometric_median", DL_MIX_NONE);
    world w;
    open_world_of(&w, many, MANY, "sgd", 2, &rule);
    for (size_t m = 1; m < 5; m++)
        memset(w.g[m], 0, w.n_f32 * sizeof(float));
    contribute(&w, 5, uneven, 0);
    CHECK_OK(step(&w, &w.out));
    CHECK_BYTES(w.in.theta, w.out.theta, w.n_f32 * sizeof(float));
    CHECK(w.facts.aggregated_norm == 0);
    close_world(&w);
}

TEST(krum_selects_and_reads_one_member)
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
    CHECK_CONTAINS("trimmed_mean needs 5 members, and only 4 contributed", diloco_error_text());
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

TEST_MAIN(every_combiner_gives_the_same_bits_at_any_threads_and_instruction_set_and_the_same_facts,
          p1_centered_clipping_resumes_from_its_update_in_the_state,
          a_combiner_by_element_gives_the_bits_of_its_formula,
          rda_keeps_each_tensors_mean_norm_and_embeddings_and_buffers_take_the_mean,
          where_most_members_send_nothing_so_is_their_geometric_median,
          krum_selects_and_reads_one_member,
          swm19_too_few_members_refuse_the_entry_or_fall_back_to_the_mean,
          robust_combiners_take_the_median_of_integers_and_the_heads_of_booleans)
