/* fed_test.c - whole federated runs in one process: the work of each client, by the record, and
 * the resulting shared model. One test a row of the contract (FED-n); kills of real processes are
 * in tests/e2e/federated.sh. */
#include "fed/fed.h"

#include "base/safetensors.h"
#include "codec/codec.h"
#include "presets/fragments.h"
#include "presets/local_steps.h"
#include "train/results.h"
#include "train/step.h"
#include "train/weights.h"
#include "train_fixture.h"
#include <diloco/inspect.h>

#include <ftw.h>

/* Not freed; valid until its slot is reused. */
static dl_config *copied(const dl_config *config)
{
    static dl_config made[8];
    static size_t n;
    dl_config *c = &made[n++ % (sizeof made / sizeof made[0])];
    *c = *config;
    return c;
}

/* 6 clients, 3 a round, 3 rounds of 4 steps, batches of 2. */
static dl_config *federated(const char *preset)
{
    dl_config *base = fixture_config(preset), *c = copied(base);
    free(base);
    set(c, "clients.total_clients", "6");
    set(c, "clients.per_round", "3");
    set(c, "trainer.rounds", "3");
    set(c, "trainer.local_steps_per_round", "4");
    set(c, "trainer.eval_every", "0");
    return c;
}

static void live(const dl_config *config, fixture_record *record)
{
    const diloco_train_hooks hooks = {.on_record = fixture_on_record, .user = record};
    CHECK_OK(dl_fed_train(config, "r0", &hooks));
}

static void digest_of(char out[64], const fixture_record *record)
{
    CHECK_OK(dl_json_read_str(out, 64, fixture_nth(record, "end", 0), "digest"));
}

static void run_to_digest(char digest[64], const dl_config *config)
{
    fixture_record record = {0};
    live(config, &record);
    digest_of(digest, &record);
    fixture_record_free(&record);
}

static void name_of(char out[32], dl_json_value client)
{
    CHECK_OK(dl_json_read_str(out, 32, client, "client"));
}

TEST(fed_20_each_selected_client_takes_exactly_h_steps_each_round)
{
    fixture_record record = {0};
    dl_config *c = federated("federated");
    set(c, "trainer.local_steps_per_round", "7");
    live(c, &record);
    CHECK_INT(9, fixture_count(&record, "client"));
    for (size_t i = 0; i < 9; i++) {
        dl_json_value client = fixture_nth(&record, "client", i);
        CHECK_INT(7, fixture_whole(client, "steps"));
        CHECK_INT(14, fixture_whole(client, "samples")); /* reported beside the steps */
        CHECK_INT(i / 3, fixture_whole(client, "entry"));
    }
    fixture_record_free(&record);
}

/* The mean of the steps' norms, before clipping: alike, however small the clip is. */
TEST(a_client_records_the_mean_norm_of_its_gradients_before_clipping)
{
    double norms[2];
    const char *const clips[] = {"0", "1e-3"};
    for (int i = 0; i < 2; i++) {
        fixture_record record = {0};
        dl_config *c = federated("federated");
        set(c, "trainer.local_steps_per_round", "1");
        set(c, "trainer.gradient_clip", clips[i]);
        live(c, &record);
        norms[i] = fixture_number(fixture_nth(&record, "client", 0), "inner_grad_norm");
        fixture_record_free(&record);
    }
    CHECK(norms[0] > 1e-2);
    CHECK_NEAR(norms[0], norms[1], 1e-9);
}

/* The first round alone may take days: the time left is known during it. */
typedef struct reported {
    uint64_t n, last_position, positions;
} reported;

static void hear(void *user, const diloco_progress *p)
{
    reported *t = user;
    if (strcmp(p->phase, "train") != 0 || p->entry > 0) return;
    CHECK(p->eta_s > 0 || t->n == 0); /* the first is reported before a step */
    CHECK(p->position >= t->last_position && p->position <= 4);
    t->n++;
    t->last_position = p->position;
    t->positions = p->positions;
}

TEST(the_time_left_is_reported_within_a_round)
{
    reported t = {0};
    const diloco_train_hooks hooks = {.on_progress = hear, .user = &t};
    CHECK_OK(dl_fed_train(federated("federated"), "r0", &hooks));
    CHECK(t.n >= 12); /* 3 clients of 4 steps */
    CHECK_INT(4, t.last_position);
    CHECK_INT(12, t.positions);
}

TEST(fed_21_epochs_are_an_upper_bound_and_must_reach_h)
{
    char without[64], with[64];
    fixture_record record = {0};
    dl_config *c = federated("federated"), *bounded = federated("federated");
    run_to_digest(without, c);
    set(bounded, "trainer.epochs", "50");
    run_to_digest(with, bounded);
    CHECK_STR(without, with);

    dl_config *few = federated("federated");
    set(few, "trainer.epochs", "1");
    set(few, "trainer.local_steps_per_round", "500");
    const diloco_train_hooks hooks = {.on_record = fixture_on_record, .user = &record};
    CHECK_STATUS(DILOCO_EREFUSED, dl_fed_train(few, "r0", &hooks));
    CHECK_CONTAINS("trainer.epochs = 1 passes over the", diloco_error_text());
    CHECK_CONTAINS("trainer.local_steps_per_round = 500", diloco_error_text());
    fixture_record_free(&record);
}

TEST(fed_22_accumulation_counts_steps_not_micro_batches)
{
    fixture_record record = {0};
    dl_config *c = federated("federated");
    set(c, "trainer.gradient_accumulation_steps", "4");
    set(c, "trainer.local_steps_per_round", "3");
    live(c, &record);
    dl_json_value client = fixture_nth(&record, "client", 0);
    CHECK_INT(3, fixture_whole(client, "steps"));
    CHECK_INT(12 * 2, fixture_whole(client, "samples")); /* 12 batches of 2 */
    fixture_record_free(&record);
}

/* An epoch of `holds` samples in batches of 2, accumulated by threes: the window that the epoch's
 * end cuts continues into the next one, and the step counts once. */
TEST(fed_23_an_epoch_that_ends_inside_a_window_does_not_raise_the_count)
{
    fixture_record record = {0};
    dl_config *c = federated("federated");
    set(c, "clients.total_clients", "120");
    set(c, "clients.per_round", "1");
    set(c, "trainer.rounds", "1");
    set(c, "trainer.gradient_accumulation_steps", "3");
    set(c, "trainer.local_steps_per_round", "5");
    live(c, &record);
    dl_json_value client = fixture_nth(&record, "client", 0);
    const uint64_t holds = fixture_whole(client, "holds");
    uint64_t samples = 0;
    CHECK(holds > 2 && holds < 30 && (holds + 1) / 2 % 3 != 0);
    for (int batch = 0; batch < 15; batch++)
        samples += holds - samples % holds < 2 ? 1 : 2;
    CHECK_INT(5, fixture_whole(client, "steps"));
    CHECK_INT(samples, fixture_whole(client, "samples"));

    /* and as FedAvg counts, by epochs, what does not fill a window is no step */
    set(c, "trainer.local_steps_per_round", "0");
    set(c, "trainer.epochs", "1");
    CHECK_INT((holds + 1) / 2 / 3, dl_local_steps(c, holds));
    fixture_record_free(&record);
}

TEST(fed_24_25_training_stops_inside_an_epoch_and_ends_like_any_other)
{
    fixture_record record = {0};
    dl_config *c = federated("federated");
    set(c, "trainer.local_steps_per_round", "2");
    live(c, &record);
    dl_json_value client = fixture_nth(&record, "client", 0);
    CHECK(fixture_whole(client, "holds") > 8);
    CHECK_INT(0, fixture_whole(client, "first_sample"));
    CHECK_INT(4, fixture_whole(client, "end_sample"));
    CHECK_INT(9, fixture_count(&record, "contribution"));
    CHECK_INT(3, fixture_count(&record, "commit"));
    CHECK_INT(1, fixture_count(&record, "eval"));
    fixture_record_free(&record);
}

/* One client and plain averaging: the shared model after a round is the client's, so it equals a
 * run by hand. That run has H steps a round, with moments and schedule that continue. */
TEST(fed_26_31_32_two_rounds_are_a_hand_run_of_2h_steps)
{
    enum { H = 4 };
    fixture_record record = {0};
    dl_setup setup;
    dl_step step;
    size_t n;
    dl_config *c = federated("fedavg");
    set(c, "clients.total_clients", "1");
    set(c, "clients.per_round", "1");
    set(c, "trainer.rounds", "2");
    set(c, "trainer.lr_scheduler", "linear");
    live(c, &record);
    float *theta = fixture_theta(c, &n);

    CHECK_OK(dl_setup_open(&setup, c, 1, 2));
    CHECK_OK(dl_step_init(&step, &setup, false));
    step.whole_epochs = true;
    fixture_initial(&setup);
    for (uint64_t i = 0; i < 2 * H; i++) {
        dl_step_facts facts;
        double lr;
        CHECK_OK(dl_schedule_lr(&lr, c, i, 2 * H, 0));
        CHECK_OK(dl_step_take(&facts, &step, 0, 2 * i, lr));
        if (i == H) /* FED-32: the schedule continues */
            CHECK(lr == fixture_number(fixture_nth(&record, "client", 1), "first_lr"));
    }
    CHECK_INT(2 * H, dl_inner_steps(step.inner)); /* FED-31 */
    CHECK_INT(2 * H, fixture_whole(fixture_nth(&record, "client", 1), "step"));
    float *by_hand = fixture_parameters(&setup);
    /* theta = before - (before - after) rounds twice; a step is 1e-3 */
    CHECK(fixture_distance(theta, by_hand, n) < 2e-7);
    dl_step_deinit(&step);
    dl_setup_close(&setup);
    free(by_hand), free(theta);
    fixture_record_free(&record);
}

TEST(fed_27_34_a_client_s_stream_resumes_where_its_last_round_ended)
{
    fixture_record record = {0};
    uint64_t end[6] = {0}, rounds[6] = {0}, last[6] = {0}, gaps = 0;
    dl_config *c = federated("federated");
    set(c, "trainer.rounds", "8");
    live(c, &record);
    for (size_t i = 0; i < fixture_count(&record, "client"); i++) {
        char name[32];
        dl_json_value client = fixture_nth(&record, "client", i);
        name_of(name, client);
        const size_t k = strtoull(name + 6, NULL, 10) - 1;
        const uint64_t entry = fixture_whole(client, "entry");
        CHECK(k < 6);
        CHECK_INT(end[k], fixture_whole(client, "first_sample"));
        CHECK_INT(4 * ++rounds[k], fixture_whole(client, "step")); /* its own steps alone */
        gaps += rounds[k] > 1 && entry > last[k] + 1;
        end[k] = fixture_whole(client, "end_sample");
        last[k] = entry;
    }
    CHECK(gaps > 0); /* a client was away for a while */
    fixture_record_free(&record);
}

TEST(fed_28_the_same_key_selects_and_trains_alike_and_another_key_differently)
{
    char one[64], again[64], other[64];
    dl_config *c = federated("federated"), *d = federated("federated"), *e = federated("federated");
    run_to_digest(one, c);
    run_to_digest(again, d);
    set(e, "run.seed", "2");
    run_to_digest(other, e);
    CHECK_STR(one, again);
    CHECK(strcmp(one, other) != 0);
}

/* ---- private state ---------------------------------------------------------------------- */

static size_t state_bytes, n_states;
static int see_state(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)at;
    const size_t len = strlen(path);
    if (type == FTW_D && len > 8 && !strcmp(path + len - 8, "/clients"))
        CHECK_INT(0700, info->st_mode & 0777); /* no other user reads what a client is */
    if (type != FTW_F || !strstr(path, "/st/")) return 0;
    state_bytes = (size_t)info->st_size;
    n_states++;
    return 0;
}

TEST(fed_30_33_a_client_s_state_is_its_inner_moments_and_is_in_no_run)
{
    fixture_record record = {0};
    dl_config *c = federated("federated");
    dl_st st;
    void *bytes;
    size_t len, n;
    uint64_t entry;
    live(c, &record);
    free(fixture_theta(c, &n));
    n_states = 0;
    CHECK_INT(0, nftw(c->store, see_state, 8, FTW_PHYS));
    CHECK_INT(0, n_states);
    char beside[2000];
    snprintf(beside, sizeof beside, "%s.local", c->store);
    CHECK_INT(0, nftw(beside, see_state, 8, FTW_PHYS));
    CHECK(n_states >= 3 && n_states <= 9);
    CHECK_INT(256 + 2 * n * sizeof(float) + 8, state_bytes); /* AdamW's two moments, and a count */

    /* the client's tensors in the shared model, and nothing of an optimizer */
    CHECK_OK(diloco_theta_read(&bytes, &len, &entry, c->store, UINT64_MAX));
    CHECK_OK(dl_st_open(&st, bytes, len));
    for (size_t i = 0; i < st.n; i++)
        CHECK(!strstr(st.tensors[i].name, "exp_avg") && !strstr(st.tensors[i].name, "inner"));
    dl_st_close(&st);
    diloco_free(bytes);
    fixture_record_free(&record);
}

/* ---- policies ----------------------------------------------------------------------------- */

/* The inner loop of preset federated, by default. */
static void train_as_federated(dl_config *c)
{
    size_t i = 0;
    while (strcmp(diloco_preset_at(i)->name, "federated") != 0)
        i++;
    for (const diloco_preset_value *v = diloco_preset_at(i)->values; v->name; v++)
        if (strcmp(dl_config_origin(c, v->name), "default") == 0) set(c, v->name, v->value);
}

TEST(fed_10_outer_sgd_of_rate_1_is_fedavg)
{
    static const char *const weightings[] = {"uniform", "num_samples"};
    for (size_t i = 0; i < 2; i++) {
        char diloco[64], fedavg[64];
        dl_config *c = federated("federated"), *d = federated("fedavg");
        set(c, "server.diloco.outer_optimizer", "sgd");
        set(c, "server.diloco.outer_learning_rate", "1");
        set(c, "server.diloco.aggregation_weighting", weightings[i]);
        set(d, "server.diloco.aggregation_weighting", weightings[i]);
        train_as_federated(d);
        run_to_digest(diloco, c);
        run_to_digest(fedavg, d);
        CHECK_STR(diloco, fedavg);
    }
}

/* Packed or not, and as an audit reads it. */
TEST(fed_15_values_and_movements_give_the_same_model_to_the_bit)
{
    static const char *const compressions[] = {"none", "zstd"};
    for (size_t i = 0; i < 2; i++) {
        char deltas[64], weights[64];
        diloco_verify_report report;
        dl_config *c = federated("federated"), *d = federated("federated");
        set(d, "server.diloco.compression", compressions[i]);
        set(d, "clients.payload", "weights");
        run_to_digest(deltas, c);
        run_to_digest(weights, d);
        CHECK_STR(deltas, weights);
        CHECK_OK(diloco_verify(&report, d->store, 1, NULL, NULL));
    }
}

static dl_config *unequal(const char *weighting)
{
    dl_config *c = federated("fedavg");
    set(c, "data.sampler", "sample_quantity_noniid");
    set(c, "data.min_partition_size", "4");
    set(c, "data.client_quantity_concentration", "0.3");
    set(c, "server.diloco.aggregation_weighting", weighting);
    return c;
}

/* A client weighs by what it holds, though all train on as much. */
TEST(fed_11_12_num_samples_weighs_by_the_samples_of_a_client_and_uniform_does_not)
{
    char uniform[64], weighted[64];
    fixture_record record = {0};
    run_to_digest(uniform, unequal("uniform"));
    live(unequal("num_samples"), &record);
    digest_of(weighted, &record);
    CHECK(strcmp(uniform, weighted) != 0);

    double sum = 0, holds[6] = {0};
    for (size_t i = 0; i < 3; i++) {
        char name[32];
        dl_json_value client = fixture_nth(&record, "client", i);
        name_of(name, client);
        holds[strtoull(name + 6, NULL, 10) - 1] = fixture_number(client, "holds");
        sum += fixture_number(client, "holds");
    }
    dl_json_value commit = fixture_nth(&record, "commit", 0);
    dl_json_iter weight = dl_json_each(dl_json_get(commit, "weights"));
    for (size_t i = 0; i < 6; i++) { /* members are in the order of their numbers */
        double w;
        if (holds[i] == 0) continue;
        CHECK(dl_json_next(&weight));
        CHECK_OK(dl_json_as_f64(&w, weight.value));
        CHECK_NEAR(w, holds[i] / sum, 1e-6);
    }
    fixture_record_free(&record);
}

static double first_norm(dl_config *c, char digest[64])
{
    fixture_record record = {0};
    live(c, &record);
    digest_of(digest, &record);
    const double norm = fixture_number(fixture_nth(&record, "contribution", 0), "pseudo_grad_norm");
    fixture_record_free(&record);
    return norm;
}

TEST(fed_14_the_outer_step_changes_the_model_and_not_the_clients_updates)
{
    char one[64], other[64];
    dl_config *c = federated("federated"), *d = federated("federated");
    set(d, "server.diloco.outer_learning_rate", "0.1");
    set(d, "server.diloco.outer_momentum", "0.5");
    CHECK(first_norm(c, one) == first_norm(d, other)); /* the same bits */
    CHECK(strcmp(one, other) != 0);
}

/* ---- a client's state: error feedback and FedProx, against runs by hand ------------------ */

enum { HAND_CLIENTS = 2, HAND_ROUNDS = 5, HAND_H = 4 };

/* One client a round and plain averaging: an entry moves theta by what that client sent. */
static dl_config *one_a_round(const char *preset)
{
    dl_config *c = federated(preset);
    set(c, "clients.total_clients", "2");
    set(c, "clients.per_round", "1");
    set(c, "trainer.rounds", "5");
    set(c, "run.retain", "all");
    set(c, "trainer.optimizer", "sgd");
    set(c, "parameters.optimizer.weight_decay", "0");
    set(c, "parameters.optimizer.lr", "0.05");
    set(c, "trainer.lr_scheduler", "constant");
    return c;
}

/* The model of `setup` becomes the run's after `entries` entries; a copy of its parameters. */
static float *at_entry(dl_setup *setup, const dl_config *c, uint64_t entries)
{
    void *bytes;
    size_t len;
    uint64_t entry;
    dl_st st;
    CHECK_OK(diloco_theta_read(&bytes, &len, &entry, c->store, entries));
    CHECK_OK(dl_st_open(&st, bytes, len));
    CHECK_OK(dl_weights_load(setup, &st));
    dl_st_close(&st);
    diloco_free(bytes);
    return fixture_parameters(setup);
}

/* Which of the two an entry asked, and its place in its data. */
static size_t asked(const fixture_record *record, size_t entry, uint64_t *first_sample)
{
    char name[32];
    dl_json_value client = fixture_nth(record, "client", entry);
    name_of(name, client);
    *first_sample = fixture_whole(client, "first_sample");
    return strtoull(name + 6, NULL, 10) - 1;
}

/* H steps of plain SGD by hand; mu's pull is taken after each step, from where that began. */
static void train_by_hand(dl_setup *setup, dl_step *step, size_t client, uint64_t sample, double mu,
                          const float *theta)
{
    const size_t n = dl_model_n_parameters(setup->model);
    const double lr = setup->config.lr;
    for (int i = 0; i < HAND_H; i++) {
        dl_step_facts facts;
        float *before = fixture_parameters(setup);
        CHECK_OK(dl_step_take(&facts, step, client, sample, lr));
        sample += facts.samples;
        float *x = fixture_parameters(setup);
        for (size_t k = 0; k < n; k++)
            x[k] -= (float)(lr * mu * ((double)before[k] - (double)theta[k]));
        fixture_set_parameters(setup, x);
        free(before), free(x);
    }
}

static void open_by_hand(dl_setup *setup, dl_step *step, const dl_config *c, const char *option)
{
    dl_config *plain = copied(c);
    set(plain, option, "0");
    CHECK_OK(dl_setup_open(setup, plain, HAND_CLIENTS, 2));
    CHECK_OK(dl_step_init(step, setup, false));
    step->whole_epochs = true;
}

TEST(fedprox_pulls_each_step_towards_the_model_that_the_round_began_from)
{
    fixture_record record = {0};
    dl_setup setup;
    dl_step step;
    double moved = 0;
    dl_config *c = one_a_round("fedprox");
    set(c, "trainer.proximal_mu", "2");
    set(c, "trainer.gradient_clip", "0");
    live(c, &record);
    open_by_hand(&setup, &step, c, "trainer.proximal_mu");
    const size_t n = dl_model_n_parameters(setup.model);
    for (uint64_t e = 0; e < HAND_ROUNDS; e++) {
        uint64_t sample;
        const size_t client = asked(&record, e, &sample);
        float *after = at_entry(&setup, c, e + 1), *theta = at_entry(&setup, c, e);
        train_by_hand(&setup, &step, client, sample, 2, theta);
        float *hand = fixture_parameters(&setup);
        CHECK(fixture_distance(after, hand, n) < 1e-6);
        moved = fmax(moved, fixture_distance(after, theta, n));
        free(after), free(theta), free(hand);
    }
    CHECK(moved > 1e-3); /* a thousand times what is tolerated */
    dl_step_deinit(&step);
    dl_setup_close(&setup);
    fixture_record_free(&record);
}

TEST(the_residual_of_a_client_is_in_its_next_contribution_and_in_no_other)
{
    enum { MAX_FLOATS = 1 << 16 };
    static float residual[HAND_CLIENTS][MAX_FLOATS], sent[MAX_FLOATS];
    fixture_record record = {0};
    dl_setup setup;
    dl_step step;
    dl_manifest manifest;
    dl_codec_form form;
    size_t len, times[HAND_CLIENTS] = {0};
    dl_config *c = one_a_round("fedavg");
    set(c, "server.diloco.codec", "topk");
    set(c, "server.diloco.error_feedback", "0.5");
    live(c, &record);
    open_by_hand(&setup, &step, c, "server.diloco.error_feedback");
    CHECK_OK(dl_fragments_manifest(&manifest, c, setup.sample));
    CHECK_OK(dl_codec_form_init(&form, c, &manifest, 0));
    const size_t n = dl_model_n_parameters(setup.model);
    CHECK(n == form.n && n <= MAX_FLOATS); /* one array, in the same order */
    unsigned char *payload = malloc(form.room);
    for (uint64_t e = 0; e < HAND_ROUNDS; e++) {
        uint64_t sample;
        const size_t client = asked(&record, e, &sample);
        float *after = at_entry(&setup, c, e + 1), *theta = at_entry(&setup, c, e);
        float *r = residual[client];
        train_by_hand(&setup, &step, client, sample, 0, theta);
        float *a = fixture_parameters(&setup);
        for (size_t k = 0; k < n; k++)
            a[k] = fmaf(0.5f, r[k], theta[k] - a[k]);
        form.codec->encode(&form, payload, &len, a);
        dl_codec_round_trip(&form, sent, payload, len);
        for (size_t k = 0; k < n; k++) {
            r[k] = a[k] - sent[k];
            CHECK(after[k] == theta[k] - sent[k]); /* to the bit */
        }
        times[client]++;
        free(after), free(theta), free(a);
    }
    CHECK(times[0] > 0 && times[1] > 0 && (times[0] > 1 || times[1] > 1));
    free(payload);
    dl_codec_form_deinit(&form);
    dl_manifest_deinit(&manifest);
    dl_step_deinit(&step);
    dl_setup_close(&setup);
    fixture_record_free(&record);
}

static void *live_role(void *user)
{
    fixture_replica *replica = user;
    const diloco_train_hooks hooks = {.on_record = fixture_on_record, .user = replica->record};
    replica->status = dl_fed_train(replica->config, replica->name, &hooks);
    snprintf(replica->text, sizeof replica->text, "%s", replica->status ? diloco_error_text() : "");
    return NULL;
}

/* ---- simulated time ------------------------------------------------------------------------- */

/* Clients that take 1 s, and by a heavy tail more; dropped at 2.5 s or waited for. */
static dl_config *simulated(const char *on_missing)
{
    dl_config *c = federated("fedavg");
    set(c, "clients.total_clients", "30");
    set(c, "clients.per_round", "6");
    set(c, "trainer.local_steps_per_round", "1");
    set(c, "trainer.rounds", "5");
    set(c, "clients.speed_simulation", "true");
    set(c, "clients.avg_training_time", "1");
    set(c, "clients.availability", "0.8");
    set(c, "run.on_missing", on_missing);
    set(c, "run.deadline", "2.5");
    set(c, "run.quorum", "0.1");
    return c;
}

static double elapsed_of(const dl_config *c, uint64_t round)
{
    dl_results results;
    CHECK_OK(dl_results_open(&results, c, round));
    const double elapsed = results.rows[round - 1].values[DL_RESULTS_ELAPSED_TIME];
    dl_results_close(&results);
    return elapsed;
}

static void list_names(char *out, size_t room, dl_json_value array)
{
    out[0] = 0;
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it);) {
        char name[40];
        CHECK_OK(dl_json_as_str(name, sizeof name, it.value));
        CHECK(strlen(out) + strlen(name) + 2 < room);
        strcat(strcat(out, name), " ");
    }
}

TEST(simulated_stragglers_are_waited_for_or_dropped_and_named)
{
    fixture_record waited = {0}, dropped = {0};
    double time[2] = {0, 0};
    size_t n_missing = 0;
    dl_config *c = simulated("wait"), *d = simulated("commit_partial");
    live(c, &waited);
    live(d, &dropped);
    CHECK_INT(30, fixture_count(&waited, "client"));
    for (size_t e = 0; e < 5; e++) {
        char names[512];
        dl_json_value a = fixture_nth(&waited, "commit", e), b = fixture_nth(&dropped, "commit", e);
        list_names(names, sizeof names, dl_json_get(a, "missing"));
        CHECK_STR("", names);
        list_names(names, sizeof names, dl_json_get(b, "missing"));
        for (const char *at = names; (at = strstr(at, "client")) != NULL; at++)
            n_missing++;
        time[0] += fixture_number(a, "simulated_s");
        time[1] += fixture_number(b, "simulated_s");
        CHECK(fixture_number(b, "simulated_s") <= 2.5);
    }
    CHECK(n_missing > 0);
    CHECK_INT(30 - n_missing, fixture_count(&dropped, "client")); /* no client trains in vain */
    CHECK(time[1] < time[0]);
    CHECK_NEAR(time[0], elapsed_of(c, 5), 1e-9); /* the results' clock */
    CHECK_NEAR(time[1], elapsed_of(d, 5), 1e-9);
    fixture_record_free(&waited), fixture_record_free(&dropped);
}

TEST(the_same_seed_simulates_the_same_events_whoever_trains)
{
    static const char *const names[] = {"r0", "r1"};
    char alone[64], apart[64];
    fixture_record one = {0}, two[2] = {{0}};
    fixture_replica replicas[2];
    dl_config *c = simulated("commit_partial"), *base = simulated("commit_partial");
    live(c, &one);
    digest_of(alone, &one);
    for (size_t i = 0; i < 2; i++) {
        dl_config *own = copied(base);
        set(own, "run.local_replicas", "2");
        replicas[i] = (fixture_replica){.config = own, .record = &two[i]};
        snprintf(replicas[i].name, sizeof replicas[i].name, "%s", names[i]);
        CHECK_INT(0, pthread_create(&replicas[i].thread, NULL, live_role, &replicas[i]));
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(replicas[i].thread, NULL);
    for (size_t i = 0; i < 2; i++)
        if (replicas[i].status) CHECK_FAIL("%s: %s", replicas[i].name, replicas[i].text);
    digest_of(apart, &two[0]);
    CHECK_STR(alone, apart);
    for (size_t e = 0; e < 5; e++) {
        char a[512], b[512];
        dl_json_value x = fixture_nth(&one, "commit", e), y = fixture_nth(&two[0], "commit", e);
        list_names(a, sizeof a, dl_json_get(x, "missing"));
        list_names(b, sizeof b, dl_json_get(y, "missing"));
        CHECK_STR(a, b);
        CHECK(fixture_number(x, "simulated_s") == fixture_number(y, "simulated_s"));
    }
    fixture_record_free(&one);
    fixture_record_free(&two[0]), fixture_record_free(&two[1]);
}

/* ---- roles, workers, stopping ------------------------------------------------------------- */

TEST(fed_29_a_server_and_two_workers_end_where_one_process_ends)
{
    static const char *const roles[] = {"server", "worker", "worker"};
    static const char *const names[] = {"s0", "r0", "r1"};
    char alone[64], apart[64];
    fixture_record records[3] = {{0}};
    fixture_replica replicas[3];
    run_to_digest(alone, federated("federated"));
    dl_config *base = federated("federated");
    for (size_t i = 0; i < 3; i++) {
        dl_config *c = copied(base);
        set(c, "run.role", roles[i]);
        replicas[i] = (fixture_replica){.config = c, .record = &records[i]};
        snprintf(replicas[i].name, sizeof replicas[i].name, "%s", names[i]);
        CHECK_INT(0, pthread_create(&replicas[i].thread, NULL, live_role, &replicas[i]));
    }
    for (size_t i = 0; i < 3; i++)
        pthread_join(replicas[i].thread, NULL);
    for (size_t i = 0; i < 3; i++)
        if (replicas[i].status) CHECK_FAIL("%s: %s", replicas[i].name, replicas[i].text);
    digest_of(apart, &records[0]);
    CHECK_STR(alone, apart);
    CHECK_INT(0, fixture_count(&records[0], "client"));
    CHECK(fixture_count(&records[1], "client") + fixture_count(&records[2], "client") >= 9);
    CHECK_INT(0, fixture_count(&records[1], "eval"));
    for (size_t i = 0; i < 3; i++)
        fixture_record_free(&records[i]);
}

TEST(a_worker_that_is_stopped_announces_it_and_its_next_process_ends_alike)
{
    char alone[64], resumed[64], path[512];
    fixture_record first = {.stop_at = 1}, rest = {0};
    run_to_digest(alone, federated("federated"));
    dl_config *c = federated("federated");
    const diloco_train_hooks hooks = {.on_progress = fixture_on_progress,
                                      .on_record = fixture_on_record,
                                      .user = &first,
                                      .stop = &first.stop};
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_fed_train(c, "r0", &hooks));
    snprintf(path, sizeof path, "%s/end/r0.0000", c->store);
    CHECK_INT(0, access(path, F_OK));
    live(c, &rest);
    digest_of(resumed, &rest);
    CHECK_STR(alone, resumed);
    fixture_record_free(&first), fixture_record_free(&rest);
}

TEST(a_federated_run_verifies)
{
    fixture_record record = {0};
    diloco_verify_report report;
    dl_config *c = federated("federated");
    live(c, &record);
    CHECK_OK(diloco_verify(&report, c->store, 1, NULL, NULL));
    CHECK_INT(3, report.entries);
    fixture_record_free(&record);
}

TEST_MAIN(a_client_records_the_mean_norm_of_its_gradients_before_clipping,
          fed_20_each_selected_client_takes_exactly_h_steps_each_round,
          the_time_left_is_reported_within_a_round,
          fed_21_epochs_are_an_upper_bound_and_must_reach_h,
          fed_22_accumulation_counts_steps_not_micro_batches,
          fed_23_an_epoch_that_ends_inside_a_window_does_not_raise_the_count,
          fed_24_25_training_stops_inside_an_epoch_and_ends_like_any_other,
          fed_26_31_32_two_rounds_are_a_hand_run_of_2h_steps,
          fed_27_34_a_client_s_stream_resumes_where_its_last_round_ended,
          fed_28_the_same_key_selects_and_trains_alike_and_another_key_differently,
          fed_30_33_a_client_s_state_is_its_inner_moments_and_is_in_no_run,
          fed_10_outer_sgd_of_rate_1_is_fedavg,
          fed_15_values_and_movements_give_the_same_model_to_the_bit,
          fed_11_12_num_samples_weighs_by_the_samples_of_a_client_and_uniform_does_not,
          fedprox_pulls_each_step_towards_the_model_that_the_round_began_from,
          the_residual_of_a_client_is_in_its_next_contribution_and_in_no_other,
          simulated_stragglers_are_waited_for_or_dropped_and_named,
          the_same_seed_simulates_the_same_events_whoever_trains,
          fed_14_the_outer_step_changes_the_model_and_not_the_clients_updates,
          fed_29_a_server_and_two_workers_end_where_one_process_ends,
          a_worker_that_is_stopped_announces_it_and_its_next_process_ends_alike,
          a_federated_run_verifies)
