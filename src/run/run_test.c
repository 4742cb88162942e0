/* run_test.c - whole runs with the public API, replicas as threads with mem://: the results are
 * those of the arithmetic in docs/architecture.md section 2. */
#include "base/safetensors.h"

#include "toy_run.h"

#include <stdatomic.h>

/* ---- goldens ---------------------------------------------------------------------------- */

/* w moves by -1 in every interval, so g = 1. */
static double fall_by_one(toy *t, const diloco_run_info *now)
{
    (void)now;
    for (int i = 0; i < TOY_N; i++)
        t->w[i] -= 1;
    return 0;
}

/* Records w at the beginning of each interval. */
static double fall_and_look(toy *t, const diloco_run_info *now)
{
    double *seen = t->user;
    if (now->entry) seen[now->entry - 1] = (double)t->w[0];
    return fall_by_one(t, now);
}

TEST(outer_nesterov_follows_the_worked_trace_through_real_commits)
{
    const double expected[] = {-1.33, -3.227, -5.6343, -8.50087};
    double seen[4];
    toy t = toy_of("r0", "mem://nesterov");
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "trainer.local_steps_per_round", "1");
    t.step = fall_and_look;
    t.user = seen;
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(4, t.end.entry);
    seen[3] = (double)t.w[0];
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(expected[i], seen[i], 2e-6);
}

/* One replica moves by 1 in each of four intervals; seen[] gets w at the entries. */
static toy fall_alone(const char *store, double *seen, const char *outer, const char *lr)
{
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "trainer.local_steps_per_round", "1");
    toy_set(&t, "server.diloco.outer_optimizer", outer);
    toy_set(&t, "server.diloco.outer_learning_rate", lr);
    t.step = fall_and_look;
    t.user = seen;
    return t;
}

TEST(a_cosine_of_the_outer_learning_rate_goes_through_the_log)
{
    const double expected[] = {-1, -1.775, -2.1, -2.2}; /* lr: 1, .1 + .9 * .75, .1 + .9 / 4, .1 */
    double seen[4];
    toy t = fall_alone("mem://cosine", seen, "sgd", "1");
    toy_set(&t, "server.diloco.outer_lr_schedule", "cosine");
    toy_live(&t);
    TOY_OK(t);
    seen[3] = (double)t.w[0];
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(expected[i], seen[i], 1e-6);
}

TEST(schedule_free_trains_from_y_and_shows_x)
{
    /* z: -2, -4, -6, -8; x: -2, -3, -4, -5; y = .9 z + .1 x */
    const double expected[] = {-2, -3.9, -5.8, -7.7};
    double seen[4];
    void *bytes;
    size_t len;
    uint64_t entry;
    dl_st image;
    toy_keep("mem://free");
    toy t = fall_alone("mem://free", seen, "schedule_free", "2");
    toy_live(&t);
    TOY_OK(t);
    seen[3] = (double)t.w[0];
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(expected[i], seen[i], 1e-5);
    CHECK_NEAR(-5, (double)t.theta[0], 1e-5);

    for (uint64_t entries = 0; entries <= 4; entries += 2) { /* before any commit x is theta(0) */
        CHECK_OK(diloco_theta_read(&bytes, &len, &entry, "mem://free", entries));
        CHECK_OK(dl_st_open(&image, bytes, len));
        const dl_st_tensor *w = dl_st_find(&image, "w");
        float first;
        memcpy(&first, image.data + w->begin, sizeof first);
        CHECK_NEAR(entries == 4 ? -5 : entries == 2 ? -3 : 0, (double)first, 1e-5);
        dl_st_close(&image);
        diloco_free(bytes);
    }
}

TEST(one_replica_with_outer_sgd_of_lr_1_is_plain_training)
{
    toy plain = toy_of("r0", "mem://plain"), t = plain;
    for (uint64_t k = 0; k < 12; k++)
        toy_step(&plain, &(diloco_run_info){.sample = k});
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "server.diloco.outer_optimizer", "sgd");
    toy_set(&t, "server.diloco.outer_learning_rate", "1");
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(12, t.end.step);
    for (int i = 0; i < TOY_N; i++)
        CHECK_NEAR((double)plain.w[i], (double)t.w[i], 1e-6);
}

/* One entry: r0 ends at 1 after 2 samples a step, r1 at 5 after 6. */
static double go_to(toy *t, const diloco_run_info *now)
{
    (void)now;
    for (int i = 0; i < TOY_N; i++)
        t->w[i] = t->name[1] == '0' ? 1 : 5;
    return 0;
}

static void check_mean(const char *weighting, const char *store, double expected)
{
    toy all[2];
    toy_crew(all, 2, store, "none");
    toy_set_all(all, 2, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, 2, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, 2, "server.diloco.aggregation_weighting", weighting);
    toy_set_all(all, 2, "trainer.rounds", "1");
    for (int r = 0; r < 2; r++) {
        all[r].step = go_to;
        all[r].samples = r ? 6 : 2;
    }
    toy_live_all(all, 2);
    for (int r = 0; r < 2; r++) {
        TOY_OK(all[r]);
        for (int i = 0; i < TOY_N; i++)
            CHECK_NEAR(expected, (double)all[r].w[i], 1e-6);
    }
}

TEST(outer_sgd_of_lr_1_ends_at_the_weighted_mean_of_the_members)
{
    check_mean("uniform", "mem://uniform", 3);
    check_mean("num_samples", "mem://samples", 0.25 * 1 + 0.75 * 5);
    check_mean("steps", "mem://steps", 3);
}

/* Replica 2 moves a thousand times as far in the opposite direction. */
static double fall_or_pull_away(toy *t, const diloco_run_info *now)
{
    (void)now;
    for (int i = 0; i < TOY_N; i++)
        t->w[i] += t->name[1] == '2' ? 1000 : -1;
    return 0;
}

static void check_with_malicious(const char *combiner, const char *store, double expected,
                                 double tolerance)
{
    toy all[3];
    char codes[64] = "";
    toy_crew(all, 3, store, "none");
    toy_set_all(all, 3, "run.min_replicas", "3");
    toy_set_all(all, 3, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, 3, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, 3, "server.diloco.combiner", combiner);
    toy_set_all(all, 3, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 3, "trainer.rounds", "2");
    for (int r = 0; r < 3; r++)
        all[r].step = fall_or_pull_away;
    toy_keep_record(&all[0]);
    toy_live_all(all, 3);
    for (int r = 0; r < 3; r++) {
        TOY_OK(all[r]);
        CHECK_NEAR(expected, (double)all[r].w[0], tolerance);
    }
    snprintf(codes, sizeof codes,
             "\"combiner\":\"%s\",\"combiner_fallback\":false,\"tolerated\":%d", combiner,
             strcmp(combiner, "mean") != 0);
    CHECK_CONTAINS(codes, all[0].record);
    free(all[0].record);
}

TEST(swm21_one_byzantine_member_of_three_moves_the_mean_and_no_robust_rule)
{
    check_with_malicious("mean", "mem://mean", 2.0 * 998 / 3, 1e-3);
    check_with_malicious("median", "mem://median", -2, 1e-6);
    check_with_malicious("geometric_median", "mem://geomedian", -2, 1e-6);
    /* two thirds of the distance remain after each of three steps, and the second entry begins from
     * the update of the first */
    check_with_malicious("centered_clip", "mem://centered", -2 + 8.0 / 27 + 64.0 / 729, 1e-4);
}

/* r0 and r1 move towards opposite ends. */
static double pull_apart(toy *t, const diloco_run_info *now)
{
    (void)now;
    for (int i = 0; i < TOY_N; i++)
        t->w[i] += t->name[1] == '0' ? 1 : -2;
    return 0;
}

TEST(swm31_members_that_point_apart_are_named_once_with_their_data)
{
    toy all[2];
    toy_crew(all, 2, "mem://apart", "none");
    toy_set_all(all, 2, "trainer.rounds", "3");
    for (int r = 0; r < 2; r++)
        all[r].step = pull_apart;
    toy_keep_record(&all[0]);
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_CONTAINS(
        "its members point apart (mean cosine -1.000); samples since their base: r0 3 r1 3",
        all[0].record);
    const char *first = strstr(all[0].record, "\"similarity\"");
    CHECK(first && !strstr(first + 1, "\"similarity\""));
    free(all[0].record);
}

static double step_with_an_infinite_loss(toy *t, const diloco_run_info *now)
{
    const double loss = toy_step(t, now);
    return now->position == 1 ? INFINITY : loss;
}

/* Such as one step in float16. Readers refuse a contribution with an infinite loss, and the replica
 * would wait for its own entry. */
TEST(an_entry_with_an_infinite_loss_has_no_loss)
{
    toy t = toy_of("r0", scratch_path("infinite"));
    t.step = step_with_an_infinite_loss;
    toy_keep_record(&t);
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(t.end.entries, t.end.entry);
    const char *first = strstr(t.record, "\"inner_loss\":");
    CHECK(first && !strncmp(first, "\"inner_loss\":null", 17));
    first = strstr(first + 1, "\"inner_loss\":");
    CHECK(first && strncmp(first, "\"inner_loss\":null", 17));
    free(t.record);
}

TEST(swm30_an_absurd_outer_learning_rate_is_warned_about_with_the_members_norms)
{
    toy all[2];
    toy_crew(all, 2, "mem://absurd", "none");
    toy_set_all(all, 2, "trainer.rounds", "8");
    toy_set_all(all, 2, "server.diloco.outer_learning_rate", "40");
    toy_keep_record(&all[0]);
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_CONTAINS("\"code\":\"divergence\",\"text\":\"entry 0: the loss is ", all[0].record);
    const char *text = strstr(all[0].record, "outer_learning_rate was 40, outer_momentum 0.9");
    double norms[2];
    CHECK(text && sscanf(text,
                         "outer_learning_rate was 40, outer_momentum 0.9; its members moved by: r0 "
                         "%lf r1 %lf",
                         &norms[0], &norms[1]) == 2);
    CHECK(norms[0] > 0 && norms[1] > 0);
    const char *first = strstr(all[0].record, "\"divergence\"");
    CHECK(first && !strstr(first + 1, "\"divergence\"")); /* once */
    free(all[0].record);
}

TEST(a_sound_outer_learning_rate_is_not)
{
    toy all[2];
    toy_crew(all, 2, "mem://sound", "none");
    toy_set_all(all, 2, "trainer.rounds", "8");
    toy_keep_record(&all[0]);
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    CHECK(!strstr(all[0].record, "\"divergence\""));
    free(all[0].record);
}

TEST(p9_17_a_cut_claim_is_recorded_with_its_replica)
{
    toy all[2];
    toy_crew(all, 2, "mem://claims", "none");
    all[1].samples = 1000;
    toy_keep_record(&all[0]);
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_CONTAINS("\"code\":\"claim\",\"text\":\"entry ", all[0].record);
    CHECK_CONTAINS(": r1 claims far more samples than the others", all[0].record);
    CHECK(!strstr(all[0].record, ": r0 claims"));
    free(all[0].record);
}

TEST(swm19_a_fallback_to_another_combiner_is_reported)
{
    toy all[2];
    toy_crew(all, 2, "mem://few", "none");
    toy_set_all(all, 2, "run.replicas", "5");
    toy_set_all(all, 2, "run.min_replicas", "2");
    toy_set_all(all, 2, "run.start_timeout", "0.1");
    toy_set_all(all, 2, "trainer.rounds", "1");
    toy_set_all(all, 2, "server.diloco.combiner", "trimmed_mean");
    toy_set_all(all, 2, "server.diloco.robust_fallback", "mean");
    toy_keep_record(&all[0]);
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_CONTAINS("\"combiner\":\"mean\",\"combiner_fallback\":true", all[0].record);
    CHECK_CONTAINS("\"code\":\"combiner_fallback\",\"text\":\"entry 0: 2 members are too few",
                   all[0].record);
    free(all[0].record);
}

/* Samples around an optimum at 0. */
static double descend(toy *t, const diloco_run_info *now)
{
    double loss = 0;
    for (int i = 0; i < TOY_N; i++) {
        const float g = t->w[i] - toy_target((uint64_t)now->shard, now->sample, i);
        loss += (double)g * (double)g;
        t->w[i] -= 0.2f * g;
    }
    return loss / TOY_N;
}

/* Returns the distance of the shared model from the optimum; it began 10 from it in every element.
 */
static double distance(size_t n_replicas, const char *entries, const char *store)
{
    toy all[8];
    double sum = 0;
    toy_crew(all, n_replicas, store, "none");
    toy_set_all(all, n_replicas, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, n_replicas, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, n_replicas, "trainer.rounds", entries);
    for (size_t r = 0; r < n_replicas; r++) {
        all[r].step = descend;
        for (int i = 0; i < TOY_N; i++)
            all[r].w[i] = 10;
    }
    toy_live_all(all, n_replicas);
    for (size_t r = 0; r < n_replicas; r++)
        TOY_OK(all[r]);
    for (int i = 0; i < TOY_N; i++)
        sum += (double)all[0].w[i] * (double)all[0].w[i];
    return sqrt(sum / TOY_N);
}

TEST(swm36_a_noisy_quadratic_approaches_its_optimum_with_more_entries_and_replicas)
{
    const double early = distance(1, "4", "mem://noisy1"), one = distance(1, "16", "mem://noisy2");
    const double soon = distance(8, "4", "mem://noisy3"), eight = distance(8, "16", "mem://noisy4");
    CHECK(early > 2 * one);
    CHECK(soon > 2 * eight);
    CHECK(one > 2 * eight); /* of eight independent errors the mean is about a third as long */
}

/* ---- LIB-20: two replicas, four steps, two entries, different data ------------------------- */

typedef struct digests {
    char of[8][40];
    size_t n;
} digests;

static void note_digest(toy *t, diloco_run *run, const char *line)
{
    digests *d = t->user;
    const char *at = strstr(line, "\"digest\":\"");
    (void)run;
    if (strstr(line, "\"event\":\"commit\"") && at && d->n < 8)
        snprintf(d->of[d->n++], sizeof d->of[0], "%.32s", at + 10);
}

TEST(two_replicas_of_different_data_agree_after_each_of_exactly_two_commits)
{
    toy all[2];
    digests seen[2] = {{.n = 0}, {.n = 0}};
    toy_keep("mem://lib20");
    toy_crew(all, 2, "mem://lib20", "none");
    toy_set_all(all, 2, "trainer.rounds", "2");
    toy_set_all(all, 2, "trainer.local_steps_per_round", "4");
    for (int r = 0; r < 2; r++) {
        all[r].heard = note_digest;
        all[r].user = &seen[r];
    }
    toy_live_all(all, 2);
    for (int r = 0; r < 2; r++) {
        TOY_OK(all[r]);
        CHECK_INT(2, all[r].end.entry);
        CHECK_INT(8, all[r].end.step);
        CHECK_INT(2, seen[r].n);
        CHECK_STR(seen[0].of[0], seen[r].of[0]);
        CHECK_STR(seen[0].of[1], seen[r].of[1]);
        CHECK_BYTES(all[0].w, all[r].w, sizeof all[r].w);
        CHECK_BYTES(all[r].theta, all[r].w, sizeof all[r].w);
    }
    CHECK(strcmp(seen[0].of[0], seen[0].of[1]) != 0);
    for (int i = 0; i < TOY_N; i++)
        CHECK(all[0].w[i] != 0);
    CHECK(memcmp(all[0].moment, all[1].moment, sizeof all[0].moment) != 0); /* other data */

    /* The outer optimizer has one momentum for each tensor: theta's image has w and
     * diloco.momentum.w. */
    void *bytes;
    size_t len;
    uint64_t entry;
    CHECK_OK(diloco_theta_read(&bytes, &len, &entry, "mem://lib20", UINT64_MAX));
    CHECK_INT(2, entry);
    CHECK(len > 8 + 2 * sizeof all[0].w);
    const size_t header = len - 2 * sizeof all[0].w;
    char *text = strndup((char *)bytes + 8, header - 8);
    CHECK_CONTAINS("\"diloco.momentum.w\"", text);
    CHECK_CONTAINS("\"w\"", text);
    free(text);
    diloco_free(bytes);
}

/* ---- gradients -------------------------------------------------------------------------- */

/* Sends the gradient at w, without a step. */
static double gradient_only(toy *t, const diloco_run_info *now)
{
    for (int i = 0; i < TOY_N; i++)
        t->moment[i] = t->w[i] - toy_target((uint64_t)now->shard, now->sample, i);
    return 0;
}

TEST(h_of_1_with_gradients_and_outer_sgd_is_data_parallel_sgd)
{
    enum { STEPS = 10 };
    toy all[2];
    float w[TOY_N] = {0};
    toy_crew(all, 2, "mem://parallel", "none");
    toy_set_all(all, 2, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, 2, "server.diloco.outer_learning_rate", "0.1");
    toy_set_all(all, 2, "trainer.rounds", "10");
    toy_set_all(all, 2, "trainer.local_steps_per_round", "1");
    for (int r = 0; r < 2; r++) {
        all[r].gradients = true;
        all[r].step = gradient_only;
    }
    toy_live_all(all, 2);
    for (uint64_t k = 0; k < STEPS; k++)
        for (int i = 0; i < TOY_N; i++) {
            const float a = w[i] - toy_target(0, k, i), b = w[i] - toy_target(1, k, i);
            w[i] -= 0.1f * 0.5f * (a + b);
        }
    for (int r = 0; r < 2; r++) {
        TOY_OK(all[r]);
        for (int i = 0; i < TOY_N; i++)
            CHECK_NEAR((double)w[i], (double)all[r].w[i], 1e-6);
    }
}

TEST(h_of_1_with_inner_and_outer_sgd_is_data_parallel_sgd)
{
    toy all[2];
    float w[TOY_N] = {0};
    toy_crew(all, 2, "mem://h1", "none");
    toy_set_all(all, 2, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, 2, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, 2, "trainer.rounds", "10");
    toy_set_all(all, 2, "trainer.local_steps_per_round", "1");
    for (int r = 0; r < 2; r++)
        all[r].mu = 0;
    toy_live_all(all, 2);
    for (uint64_t k = 0; k < 10; k++)
        for (int i = 0; i < TOY_N; i++) {
            const float a = w[i] - toy_target(0, k, i), b = w[i] - toy_target(1, k, i);
            w[i] -= 0.05f * 0.5f * (a + b);
        }
    for (int r = 0; r < 2; r++) {
        TOY_OK(all[r]);
        for (int i = 0; i < TOY_N; i++)
            CHECK_NEAR((double)w[i], (double)all[r].w[i], 1e-6);
    }
}

/* ---- other kinds of tensors ------------------------------------------------------------- */

typedef struct zoo {
    float frozen[2], running[2];
    int64_t counter[3];
    uint8_t flag[3];
} zoo;

static diloco_status register_zoo(toy *t, diloco_run *run)
{
    zoo *z = t->user;

    const diloco_tensor more[] = {
        {"frozen", z->frozen, DILOCO_F32, DILOCO_FROZEN, 1, {2}, 0},
        {"running", z->running, DILOCO_F32, DILOCO_BUFFER, 1, {2}, 0},
        {"counter", z->counter, DILOCO_I64, DILOCO_BUFFER, 1, {3}, 0},
        {"flag", z->flag, DILOCO_BOOL, DILOCO_BUFFER, 1, {3}, 0},
    };
    for (size_t i = 0; i < 4; i++) {
        const diloco_status status = diloco_run_tensor(run, &more[i]);
        if (status) return status;
    }
    return DILOCO_OK;
}

/* Each interval: w and running move by -1 (r0) or -3 (r1); counters end at 1 and 2, 2^53 + 1
 * and 2^53 + 3, -1 and -2; flags at 1 and 0, 1 and 1, 0 and 0. */
static double move_zoo(toy *t, const diloco_run_info *now)
{
    zoo *z = t->user;
    const int other = t->name[1] == '1';
    (void)now;
    t->w[0] -= other ? 3 : 1;
    z->running[0] -= other ? 3 : 1;
    z->frozen[1] = 7;
    z->counter[0] = other ? 2 : 1;
    z->counter[1] = (INT64_C(1) << 53) + (other ? 3 : 1);
    z->counter[2] = other ? -2 : -1;
    z->flag[0] = !other;
    z->flag[1] = 1;
    z->flag[2] = 0;
    return 0;
}

static void run_zoo(zoo z[2], toy all[2], const char *store, const char *apply_to)
{
    toy_keep(store);
    toy_crew(all, 2, store, "none");
    toy_set_all(all, 2, "server.diloco.apply_outer_optimizer_to", apply_to);
    toy_set_all(all, 2, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 2, "trainer.rounds", "2");
    for (int r = 0; r < 2; r++) {
        z[r] = (zoo){.frozen = {5, 7}, .flag = {1, 1, 1}};
        all[r].prepare = register_zoo;
        all[r].step = move_zoo;
        all[r].user = &z[r];
    }
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_BYTES(&z[0], &z[1], sizeof z[0]);
    CHECK_BYTES(all[0].w, all[1].w, sizeof all[0].w);
}

TEST(only_trained_tensors_have_momentum_and_the_others_take_the_mean)
{
    zoo z[2];
    toy all[2];
    run_zoo(z, all, "mem://zoo", "parameters");
    CHECK_NEAR(2 * -3.227, (double)all[0].w[0], 2e-6); /* g = 2 twice, Nesterov .7 .9 */
    CHECK_NEAR(-4, (double)z[0].running[0], 1e-6);     /* the mean moved by -2 twice */
    CHECK_NEAR(5, (double)z[0].frozen[0], 0);
    CHECK_NEAR(7, (double)z[0].frozen[1], 0);
    CHECK_INT(2, z[0].counter[0]); /* 1.5, half up */
    CHECK_INT((INT64_C(1) << 53) + 2, z[0].counter[1]);
    CHECK_INT(-1, z[0].counter[2]); /* -1.5, half up */
    CHECK_INT(1, z[0].flag[0]);     /* a tie is true */
    CHECK_INT(1, z[0].flag[1]);
    CHECK_INT(0, z[0].flag[2]);

    void *bytes;
    size_t len;
    uint64_t entry;
    CHECK_OK(diloco_theta_read(&bytes, &len, &entry, "mem://zoo", UINT64_MAX));
    char *text = strndup((char *)bytes + 8, len - 8);
    CHECK_CONTAINS("diloco.momentum.w", text);
    CHECK(!strstr(text, "diloco.momentum.running"));
    CHECK(!strstr(text, "diloco.momentum.frozen"));
    free(text);
    diloco_free(bytes);
}

TEST(fed_42_all_floating_gives_momentum_to_buffers)
{
    zoo z[2];
    toy all[2];
    run_zoo(z, all, "mem://zoo-all", "all_floating");
    CHECK_NEAR(2 * -3.227, (double)all[0].w[0], 2e-6);
    CHECK_NEAR(2 * -3.227, (double)z[0].running[0], 2e-6);
    CHECK_INT(2, z[0].counter[0]);
}

/* ---- any number of runs in one process --------------------------------------------------- */

TEST(two_runs_of_three_replicas_each_share_one_process)
{
    toy all[6];
    toy_keep("mem://first");
    toy_keep("mem://second");
    toy_crew(all, 3, "mem://first", "none");
    toy_crew(all + 3, 3, "mem://second", "none");
    toy_set_all(all, 6, "run.snapshot_every", "0.001"); /* the snapshot threads work too */
    toy_set_all(all, 6, "trainer.rounds", "8");
    toy_set_all(all + 3, 3, "server.diloco.outer_learning_rate", "0.5");
    toy_live_all(all, 6);
    for (int r = 0; r < 6; r++) {
        TOY_OK(all[r]);
        CHECK_BYTES(all[r / 3 * 3].w, all[r].w, sizeof all[r].w);
    }
    CHECK(memcmp(all[0].w, all[3].w, sizeof all[0].w) != 0);
    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, "mem://first", 1, NULL, NULL));
    CHECK(report.complete);
    CHECK_INT(8, report.entries);
    CHECK_OK(diloco_verify(&report, "mem://second", 2, NULL, NULL));
}

static void tell_of_entry_1(toy *t, diloco_run *run, const char *line)
{
    (void)run;
    if (strstr(line, "\"event\":\"commit\"") && strstr(line, "\"entry\":1,"))
        atomic_store((atomic_bool *)t->user, true);
}

TEST(a_late_replica_reads_the_shared_model_and_contributes)
{
    toy all[2];
    atomic_bool committed = false;
    toy_keep("mem://late");
    toy_crew(all, 2, "mem://late", "none");
    toy_set_all(all, 2, "run.min_replicas", "1");
    toy_set_all(all, 2, "run.start_timeout", "0");
    toy_set_all(all, 2, "trainer.rounds", "40");
    all[0].step_us = all[1].step_us = 2000;
    all[0].heard = tell_of_entry_1;
    all[0].user = &committed;
    CHECK_INT(0, pthread_create(&all[0].thread, NULL, toy_thread, &all[0]));
    while (!committed)
        usleep(1000);
    toy_live(&all[1]);
    pthread_join(all[0].thread, NULL);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_BYTES(all[0].w, all[1].w, sizeof all[0].w);
    CHECK_INT(120, all[0].end.step);
    CHECK(all[1].end.step < 120); /* its own completed steps only (P13) */
    CHECK_INT(120, all[1].end.position);
}

TEST(contributions_may_wait_on_disk_for_the_outer_step)
{
    toy memory[2], disk[2];
    toy_crew(memory, 2, "mem://spool-memory", "none");
    toy_crew(disk, 2, "mem://spool-disk", scratch_path("spool"));
    toy_set_all(disk, 2, "run.spool", "disk");
    toy_live_all(memory, 2);
    toy_live_all(disk, 2);
    for (int r = 0; r < 2; r++) {
        TOY_OK(disk[r]);
        CHECK_BYTES(memory[r].w, disk[r].w, sizeof disk[r].w);
    }
}

/* The samples that each replica trained on: 4 entries of 3 steps of one sample, two replicas. */
typedef struct stream {
    uint64_t samples[64];
    size_t n;
} stream;

static double see(toy *t, const diloco_run_info *now)
{
    stream *s = t->user;
    if (s->n < 64) s->samples[s->n++] = now->sample;
    return toy_step(t, now);
}

TEST(p18_data_assigned_by_the_log_is_trained_on_once_by_one_replica)
{
    toy all[2];
    stream by[2] = {{.n = 0}, {.n = 0}};
    bool times[24] = {false};
    toy_crew(all, 2, "mem://dealt", "none");
    toy_set_all(all, 2, "data.deal", "log");
    for (int r = 0; r < 2; r++) {
        all[r].step = see;
        all[r].user = &by[r];
    }
    toy_live_all(all, 2);
    for (int r = 0; r < 2; r++) {
        TOY_OK(all[r]);
        CHECK_INT(12, by[r].n);
        for (size_t i = 0; i < by[r].n; i++) {
            CHECK(by[r].samples[i] < 24 && !times[by[r].samples[i]]);
            times[by[r].samples[i]] = true;
        }
    }
}

TEST(p18_a_step_of_other_samples_than_assigned_is_refused)
{
    toy all[1];
    toy_crew(all, 1, "mem://dealt-otherwise", "none");
    toy_set_all(all, 1, "data.deal", "log");
    all[0].samples = 2;
    toy_live_all(all, 1);
    CHECK_INT(DILOCO_EINVAL, all[0].status);
    CHECK_CONTAINS("deals 1 samples a step", all[0].text);
}

TEST(members_of_one_step_each_are_not_reported_as_pointing_apart)
{
    toy all[2];
    toy_crew(all, 2, "mem://single-steps", "none");
    toy_set_all(all, 2, "trainer.rounds", "9");
    toy_set_all(all, 2, "trainer.local_steps_per_round", "1");
    for (int r = 0; r < 2; r++)
        all[r].step = pull_apart;
    toy_keep_record(&all[0]);
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK(!strstr(all[0].record, "\"similarity\""));
    free(all[0].record);
}

TEST_MAIN(outer_nesterov_follows_the_worked_trace_through_real_commits,
          a_cosine_of_the_outer_learning_rate_goes_through_the_log,
          schedule_free_trains_from_y_and_shows_x,
          one_replica_with_outer_sgd_of_lr_1_is_plain_training,
          outer_sgd_of_lr_1_ends_at_the_weighted_mean_of_the_members,
          swm21_one_byzantine_member_of_three_moves_the_mean_and_no_robust_rule,
          swm31_members_that_point_apart_are_named_once_with_their_data,
          an_entry_with_an_infinite_loss_has_no_loss,
          swm30_an_absurd_outer_learning_rate_is_warned_about_with_the_members_norms,
          a_sound_outer_learning_rate_is_not, p9_17_a_cut_claim_is_recorded_with_its_replica,
          swm19_a_fallback_to_another_combiner_is_reported,
          swm36_a_noisy_quadratic_approaches_its_optimum_with_more_entries_and_replicas,
          two_replicas_of_different_data_agree_after_each_of_exactly_two_commits,
          h_of_1_with_gradients_and_outer_sgd_is_data_parallel_sgd,
          h_of_1_with_inner_and_outer_sgd_is_data_parallel_sgd,
          only_trained_tensors_have_momentum_and_the_others_take_the_mean,
          fed_42_all_floating_gives_momentum_to_buffers,
          two_runs_of_three_replicas_each_share_one_process,
          a_late_replica_reads_the_shared_model_and_contributes,
          contributions_may_wait_on_disk_for_the_outer_step,
          p18_data_assigned_by_the_log_is_trained_on_once_by_one_replica,
          p18_a_step_of_other_samples_than_assigned_is_refused,
          members_of_one_step_each_are_not_reported_as_pointing_apart)
