/* step_test.c - the final parameters of a run's replicas, compared with loops written out here that
 * do not use a run. They take steps (step.h) and do the outer step's arithmetic by hand. */
#include "train/step.h"

#include "train_fixture.h"

/* A model at its initial parameters, with an inner optimizer, and samples from `shard`. */
typedef struct hand {
    dl_setup setup;
    dl_step step;
    size_t n, shard;
    uint64_t sample, position;
} hand;

static void hand_open(hand *h, const dl_config *config, size_t shard)
{
    *h = (hand){.shard = shard};
    CHECK_OK(
        dl_setup_open(&h->setup, config, (size_t)config->replicas, (size_t)config->batch_size));
    CHECK_OK(dl_step_init(&h->step, &h->setup, false));
    h->n = dl_model_n_parameters(h->setup.model);
    fixture_initial(&h->setup);
}

static void hand_close(hand *h)
{
    dl_step_deinit(&h->step);
    dl_setup_close(&h->setup);
}

static dl_step_facts hand_step(hand *h)
{
    double lr;
    dl_step_facts facts;
    const dl_config *config = &h->setup.config;
    uint64_t positions = (uint64_t)(config->rounds * config->local_steps);
    CHECK_OK(dl_schedule_lr(&lr, config, h->position++, positions, 0));
    CHECK_OK(dl_step_take(&facts, &h->step, h->shard, h->sample, lr));
    h->sample += facts.samples;
    return facts;
}

/* Compares the run's theta with expected[n]. Tolerance 1e-6: the outer step rounds theta - (theta -
 * local) once more than the hand does. */
static void check_theta(const dl_config *config, const float *expected, double tolerance)
{
    size_t n;
    float *theta = fixture_theta(config, &n);
    CHECK_NEAR(0, fixture_distance(theta, expected, n), tolerance);
    free(theta);
}

/* Does the same with the parameters of a hand. */
static void check_theta_of(const dl_config *config, const hand *h, double tolerance)
{
    float *expected = fixture_parameters(&h->setup);
    check_theta(config, expected, tolerance);
    free(expected);
}

static void check_single(dl_config *config)
{
    fixture_record record = {0};
    hand h;
    fixture_train(config, &record, 1);
    hand_open(&h, config, 0);
    for (int64_t i = 0; i < config->rounds * config->local_steps; i++)
        hand_step(&h);
    check_theta_of(config, &h, 1e-6);
    hand_close(&h);
    fixture_record_free(&record);
    free(config);
}

TEST(one_replica_with_outer_sgd_of_lr_1_is_plain_training_with_adamw)
{
    check_single(fixture_config("single"));
}

TEST(one_replica_with_outer_sgd_of_lr_1_is_plain_training_with_momentum)
{
    dl_config *config = fixture_config("single");
    set(config, "trainer.optimizer", "sgd");
    set(config, "parameters.optimizer.momentum", "0.9");
    set(config, "parameters.optimizer.lr", "0.05");
    check_single(config);
}

/* Each step is the mean of the steps of two replicas from the same parameters on their shards. With
 * SGD that is the step along the mean gradient. */
TEST(one_local_step_of_sgd_with_outer_sgd_of_lr_1_is_data_parallel_sgd)
{
    fixture_record records[2] = {{0}};
    hand h[2];
    dl_config *config = fixture_config("fedavg");
    set(config, "run.replicas", "2");
    set(config, "trainer.rounds", "6");
    set(config, "trainer.local_steps_per_round", "1");
    set(config, "trainer.optimizer", "sgd");
    set(config, "trainer.gradient_clip", "0");
    set(config, "parameters.optimizer.lr", "0.1");
    set(config, "parameters.optimizer.weight_decay", "0");
    fixture_train(config, records, 2);

    hand_open(&h[0], config, 0);
    hand_open(&h[1], config, 1);
    for (int64_t step = 0; step < config->rounds; step++) {
        double lr;
        size_t n = h[0].n;
        float *x = fixture_parameters(&h[0].setup);
        CHECK_OK(dl_schedule_lr(&lr, config, (uint64_t)step, (uint64_t)config->rounds, 0));
        hand_step(&h[0]);
        hand_step(&h[1]);
        float *g[2] = {fixture_gradients(&h[0].setup), fixture_gradients(&h[1].setup)};
        for (size_t i = 0; i < n; i++)
            x[i] = x[i] - (float)lr * (0.5f * g[0][i] + 0.5f * g[1][i]);
        for (int k = 0; k < 2; k++)
            fixture_set_parameters(&h[k].setup, x), free(g[k]);
        free(x);
    }
    check_theta_of(config, &h[0], 1e-6);
    for (int k = 0; k < 2; k++)
        hand_close(&h[k]), fixture_record_free(&records[k]);
    free(config);
}

/* One entry of FedAvg over exactly H steps each: a step too many on either side would show. */
TEST(outer_sgd_of_lr_1_ends_at_the_mean_of_the_replicas_after_exactly_h_steps)
{
    fixture_record records[2] = {{0}};
    hand h[2];
    dl_config *config = fixture_config("fedavg");
    set(config, "run.replicas", "2");
    set(config, "trainer.rounds", "1");
    set(config, "trainer.local_steps_per_round", "7");
    fixture_train(config, records, 2);
    for (size_t k = 0; k < 2; k++) {
        hand_open(&h[k], config, k);
        for (int i = 0; i < 7; i++)
            hand_step(&h[k]);
    }
    float *mean = fixture_parameters(&h[0].setup);
    float *other = fixture_parameters(&h[1].setup);
    for (size_t i = 0; i < h[0].n; i++)
        mean[i] = 0.5f * mean[i] + 0.5f * other[i];
    check_theta(config, mean, 1e-6);
    free(mean), free(other);
    for (int k = 0; k < 2; k++)
        hand_close(&h[k]), fixture_record_free(&records[k]);
    free(config);
}

/* 4 micro-batches of 2 are the same samples as one of 8, and as many steps. */
TEST(gradient_accumulation_makes_one_step_of_many_micro_batches)
{
    fixture_record record = {0};
    hand h;
    dl_config *config = fixture_config("single");
    set(config, "trainer.local_steps_per_round", "3");
    set(config, "trainer.gradient_accumulation_steps", "4");
    fixture_train(config, &record, 1);
    CHECK_INT(6, fixture_count(&record, "step")); /* 2 entries of 3 */
    for (size_t i = 0; i < 6; i++) {
        dl_json_value step = fixture_nth(&record, "step", i);
        CHECK_INT(4 * 2, fixture_whole(step, "samples"));
        CHECK_INT(4 * 2 * 16, fixture_whole(step, "tokens"));
        CHECK_INT(i + 1, fixture_whole(step, "step"));
    }
    dl_config *large = malloc(sizeof *large);
    *large = *config;
    set(large, "trainer.gradient_accumulation_steps", "1");
    set(large, "trainer.batch_size", "8");
    hand_open(&h, large, 0);
    for (int i = 0; i < 6; i++)
        hand_step(&h);
    /* Sums in another order, through AdamW's division: 1e-5 is a hundredth of one step. */
    check_theta_of(config, &h, 1e-5);
    hand_close(&h);
    fixture_record_free(&record);
    free(large), free(config);
}

/* The outer row adamw on one replica's clipped gradient is AdamW with the same clipping. */
TEST(data_parallel_on_one_replica_is_plain_adamw)
{
    fixture_record record = {0};
    hand h;
    dl_config *config = fixture_config("data_parallel");
    set(config, "trainer.rounds", "8");
    set(config, "trainer.gradient_clip", "0.5");
    fixture_train(config, &record, 1);
    hand_open(&h, config, 0);
    for (int64_t i = 0; i < config->rounds; i++)
        hand_step(&h);
    check_theta_of(config, &h, 1e-5);
    hand_close(&h);
    fixture_record_free(&record);
    free(config);
}

static dl_config *muon_config(void)
{
    dl_config *config = fixture_config("data_parallel");
    set(config, "trainer.optimizer", "muon");
    set(config, "server.diloco.outer_optimizer", "muon");
    set(config, "trainer.rounds", "8");
    set(config, "trainer.gradient_clip", "0.5");
    return config;
}

/* Two products of different rounding through the iteration: 1e-5 is a twentieth of one step. */
TEST(data_parallel_on_one_replica_is_plain_muon)
{
    fixture_record record = {0};
    hand h;
    dl_config *config = muon_config();
    set(config, "parameters.optimizer.muon_lr", "2e-3");
    set(config, "parameters.optimizer.muon_nesterov", "false");
    set(config, "trainer.lr_scheduler", "cosine");
    fixture_train(config, &record, 1);
    hand_open(&h, config, 0);
    for (int64_t i = 0; i < config->rounds; i++)
        hand_step(&h);
    check_theta_of(config, &h, 1e-5);
    hand_close(&h);
    fixture_record_free(&record);
    free(config);
}

/* A hand that leaves its clipped gradient in the model. */
static void hand_open_gradients(hand *h, const dl_config *config, size_t shard)
{
    *h = (hand){.shard = shard};
    CHECK_OK(
        dl_setup_open(&h->setup, config, (size_t)config->replicas, (size_t)config->batch_size));
    CHECK_OK(dl_step_init(&h->step, &h->setup, true));
    h->n = dl_model_n_parameters(h->setup.model);
    fixture_initial(&h->setup);
}

/* Creates the inner optimizer of a hand's model, without clipping. */
static dl_inner *inner_of(const hand *h)
{
    dl_inner *inner;
    static dl_config config;
    dl_model *model = h->setup.model;
    config = h->setup.config;
    config.gradient_clip = 0;
    dl_inner_model about = {.hidden = dl_model_hidden(model),
                            .parameters = dl_model_parameters(model),
                            .gradients = dl_model_gradients(model),
                            .backend = h->setup.backend,
                            .pool = h->setup.pool};
    about.tensors = dl_model_tensors(model, &about.n_tensors);
    CHECK_OK(dl_inner_create(&inner, &config, &about));
    return inner;
}

/* Replaces the first hand's gradient by the mean of both, as of one batch of both shards' samples.
 */
static void join_gradients(const hand h[2])
{
    float *g[2] = {fixture_gradients(&h[0].setup), fixture_gradients(&h[1].setup)};
    for (size_t i = 0; i < h[0].n; i++)
        g[0][i] = 0.5f * g[0][i] + 0.5f * g[1][i];
    dl_backend_copy_in(h[0].setup.backend, dl_model_gradients(h[0].setup.model), g[0],
                       h[0].n * sizeof *g[0]);
    free(g[0]), free(g[1]);
}

TEST(data_parallel_on_two_replicas_is_muon_on_their_joined_batch)
{
    fixture_record records[2] = {{0}};
    hand h[2];
    dl_config *config = muon_config();
    set(config, "run.replicas", "2");
    fixture_train(config, records, 2);
    for (size_t k = 0; k < 2; k++)
        hand_open_gradients(&h[k], config, k);
    dl_inner *inner = inner_of(&h[0]);
    for (int64_t step = 0; step < config->rounds; step++) {
        double lr;
        CHECK_OK(dl_schedule_lr(&lr, config, (uint64_t)step, (uint64_t)config->rounds, 0));
        for (int k = 0; k < 2; k++) {
            const double loss = hand_step(&h[k]).loss;
            const dl_json_value line = fixture_nth(&records[k], "step", (size_t)step);
            CHECK_NEAR(loss, fixture_number(line, "loss"), 1e-5);
        }
        join_gradients(h);
        CHECK_OK(dl_inner_step(inner, lr));
        float *x = fixture_parameters(&h[0].setup);
        fixture_set_parameters(&h[1].setup, x);
        free(x);
    }
    check_theta_of(config, &h[0], 1e-5);
    dl_inner_destroy(inner);
    for (int k = 0; k < 2; k++)
        hand_close(&h[k]), fixture_record_free(&records[k]);
    free(config);
}

TEST(a_step_reports_its_loss_and_norm_and_a_bad_gradient_changes_nothing)
{
    hand h;
    dl_config *config = fixture_config("single");
    hand_open(&h, config, 0);
    dl_step_facts facts = hand_step(&h);
    CHECK(facts.applied);
    CHECK_INT(2, facts.samples);
    CHECK_INT(32, facts.tokens);
    CHECK_NEAR(log(256), facts.loss, 0.5); /* untrained */
    CHECK(facts.grad_norm > 0);

    float *before = fixture_parameters(&h.setup);
    before[0] = NAN;
    fixture_set_parameters(&h.setup, before);
    facts = hand_step(&h);
    CHECK(!facts.applied);
    CHECK(isnan(facts.grad_norm));
    float *after = fixture_parameters(&h.setup);
    CHECK_BYTES(before, after, h.n * sizeof *before);
    free(before), free(after);
    hand_close(&h);
    free(config);
}

TEST(without_an_optimizer_the_clipped_gradient_is_left_and_a_bad_one_is_zero)
{
    dl_setup s;
    dl_step step;
    dl_step_facts facts;
    dl_config *config = fixture_config("data_parallel");
    set(config, "trainer.gradient_clip", "0.01");
    CHECK_OK(dl_setup_open(&s, config, 1, 2));
    CHECK_OK(dl_step_init(&step, &s, true));
    size_t n = dl_model_n_parameters(s.model);
    float *parameters = fixture_parameters(&s);
    dl_model_initial(s.model, parameters, 1);
    fixture_set_parameters(&s, parameters);
    CHECK_OK(dl_step_take(&facts, &step, 0, 0, 0.1));
    CHECK(facts.applied && facts.grad_norm > 0.01);
    double norm2 = 0;
    float *gradients = fixture_gradients(&s);
    for (size_t i = 0; i < n; i++)
        norm2 += (double)gradients[i] * gradients[i];
    CHECK_NEAR(0.01, sqrt(norm2), 1e-6);
    free(gradients);

    parameters[0] = NAN;
    fixture_set_parameters(&s, parameters);
    CHECK_OK(dl_step_take(&facts, &step, 0, 0, 0.1));
    CHECK(!facts.applied);
    CHECK_CONTAINS("not finite", diloco_error_text());
    gradients = fixture_gradients(&s);
    for (size_t i = 0; i < n; i++)
        CHECK(gradients[i] == 0);
    free(gradients), free(parameters);
    dl_step_deinit(&step);
    dl_setup_close(&s);
    free(config);
}

TEST_MAIN(one_replica_with_outer_sgd_of_lr_1_is_plain_training_with_adamw,
          one_replica_with_outer_sgd_of_lr_1_is_plain_training_with_momentum,
          one_local_step_of_sgd_with_outer_sgd_of_lr_1_is_data_parallel_sgd,
          outer_sgd_of_lr_1_ends_at_the_mean_of_the_replicas_after_exactly_h_steps,
          gradient_accumulation_makes_one_step_of_many_micro_batches,
          data_parallel_on_one_replica_is_plain_adamw, data_parallel_on_one_replica_is_plain_muon,
          data_parallel_on_two_replicas_is_muon_on_their_joined_batch,
          a_step_reports_its_loss_and_norm_and_a_bad_gradient_changes_nothing,
          without_an_optimizer_the_clipped_gradient_is_left_and_a_bad_one_is_zero)
