/* gossip_test.c - two nodes without a log, as threads, and the models that they end with. */
#include "gossip/gossip.h"

#include "base/clock.h"
#include "train_fixture.h"

typedef struct participant {
    fixture_replica of; /* its status and text are dl_gossip_train's */
    bool leaves;        /* it is stopped in its second round, once the other node trains */
    volatile int *other_trains;
} participant;

/* The two nodes signal each other through one flag, so no outcome depends on which is faster. */
static void on_progress(void *user, const diloco_progress *p)
{
    participant *l = user;
    if (strcmp(p->phase, "train") != 0) return;
    if (!l->leaves) {
        __atomic_store_n(l->other_trains, 1, __ATOMIC_RELAXED);
        return;
    }
    while (!__atomic_load_n(l->other_trains, __ATOMIC_RELAXED))
        dl_clock_sleep(10 * DL_MILLISECOND);
    if (p->position > 4) __atomic_store_n(&l->of.record->stop, 1, __ATOMIC_RELAXED);
}

static void on_record(void *user, const char *line, size_t len)
{
    fixture_on_record(((participant *)user)->of.record, line, len);
}

static void *live(void *user)
{
    participant *l = user;
    const diloco_train_hooks hooks = {
        .on_progress = on_progress, .on_record = on_record, .user = l, .stop = &l->of.record->stop};
    l->of.status = dl_gossip_train(l->of.config, l->of.name, &hooks);
    snprintf(l->of.text, sizeof l->of.text, "%s", l->of.status ? diloco_error_text() : "");
    return NULL;
}

static dl_config *nodes(const char *n, const char *combiner)
{
    dl_config *config = fixture_config("swarm");
    set(config, "run.replicas", n);
    set(config, "swarm.min_peers", "2");
    set(config, "swarm.agree_every", "2");
    set(config, "server.diloco.robust_fallback", "mean");
    set(config, "server.diloco.combiner", combiner);
    set(config, "run.heartbeat", "0.2");
    return config;
}

/* All to their end; the last one leaves early where `leaves` says so. */
static void run(participant *participants, fixture_record *records, size_t n,
                const dl_config *config, bool leaves)
{
    volatile int trains = 0;
    CHECK_OK(diloco_train_create(config));
    for (size_t i = 0; i < n; i++) {
        participants[i] = (participant){.of = {.config = config, .record = &records[i]},
                                        .leaves = leaves && i + 1 == n,
                                        .other_trains = &trains};
        snprintf(participants[i].of.name, sizeof participants[i].of.name, "r%zu", i);
        CHECK_INT(0, pthread_create(&participants[i].of.thread, NULL, live, &participants[i]));
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(participants[i].of.thread, NULL);
}

TEST(nodes_that_agree_after_the_last_round_end_with_one_model)
{
    static participant participants[2];
    fixture_record records[2] = {{0}};
    char digests[2][33];
    double loss[2];
    dl_config *config = nodes("2", "mean");
    set(config, "run.deadline", "60");
    run(participants, records, 2, config, false);
    for (int i = 0; i < 2; i++) {
        if (participants[i].of.status)
            CHECK_FAIL("%s: %s", participants[i].of.name, participants[i].of.text);
        CHECK_INT(1, fixture_count(&records[i], "agreement"));
        CHECK(fixture_number(fixture_nth(&records[i], "step", 0), "grad_norm") > 0);
        for (size_t k = 0; k < 2; k++) /* it contributed exactly the steps that it trained */
            CHECK(fixture_number(fixture_nth(&records[i], "round", k), "pseudo_grad_norm") > 0);
        const size_t n_evals = fixture_count(&records[i], "eval");
        CHECK(n_evals > 0);
        loss[i] = fixture_number(fixture_nth(&records[i], "eval", n_evals - 1), "loss");
        const dl_json_value end = fixture_nth(&records[i], "end", 0);
        CHECK_INT(1, fixture_whole(end, "agreed"));
        CHECK_OK(dl_json_read_str(digests[i], sizeof digests[i], end, "model"));
    }
    CHECK_STR(digests[0], digests[1]);
    CHECK(loss[0] == loss[1]); /* and the tensors that are trained hold it */
    for (int i = 0; i < 2; i++)
        fixture_record_free(&records[i]);
    free(config);
}

/* A node alone, to its end; the digest of its model. A record with stop_at stops it on the way. */
static diloco_status live_alone(char digest[33], const dl_config *config, fixture_record *record)
{
    const diloco_train_hooks hooks = {.on_progress = fixture_on_progress,
                                      .on_record = fixture_on_record,
                                      .user = record,
                                      .stop = &record->stop};
    DL_TRY(dl_gossip_train(config, "r0", &hooks));
    return dl_json_read_str(digest, 33, fixture_nth(record, "end", 0), "model");
}

TEST(a_node_that_is_stopped_resumes_bitwise)
{
    char expected[33], digest[33];
    fixture_record whole = {0}, first = {.stop_at = 6}, second = {0};
    dl_config *a = nodes("1", "mean"), *b = nodes("1", "mean");
    for (int k = 0; k < 2; k++) {
        set(k ? b : a, "swarm.min_peers", "1");
        set(k ? b : a, "swarm.agree_every", "0");
        CHECK_OK(diloco_train_create(k ? b : a));
    }
    CHECK_OK(live_alone(expected, a, &whole));
    CHECK_STATUS(DILOCO_EINTERRUPTED, live_alone(digest, b, &first));
    CHECK_OK(live_alone(digest, b, &second));
    CHECK_STR(expected, digest);
    CHECK_INT(8, fixture_count(&first, "step") + fixture_count(&second, "step"));
    fixture_record_free(&whole), fixture_record_free(&first), fixture_record_free(&second);
    free(a), free(b);
}

/* The status that a node's folder shows while the node trains. */
typedef struct look {
    const char *store;
    dl_gossip_status seen;
    diloco_status status;
} look;

static void look_at_it(void *user, const diloco_progress *p)
{
    look *l = user;
    if (l->seen.n == 0 && !strcmp(p->phase, "train"))
        l->status = dl_gossip_status_read(&l->seen, l->store);
}

TEST(node_is_reached_while_it_answers_and_silent_after_its_end)
{
    static look live;
    static dl_gossip_status ended;
    dl_config *config = nodes("1", "mean");
    live.store = config->store;
    set(config, "swarm.min_peers", "1");
    set(config, "swarm.agree_every", "0");
    CHECK_OK(diloco_train_create(config));
    CHECK_OK(dl_gossip_train(config, "r0",
                             &(diloco_train_hooks){.on_progress = look_at_it, .user = &live}));
    CHECK_OK(live.status);
    CHECK_INT(1, live.seen.n);
    CHECK(live.seen.peers[0].reached && !live.seen.peers[0].done);
    CHECK(isnan(live.seen.peers[0].divergence)); /* no other model was seen */
    CHECK_OK(dl_gossip_status_read(&ended, config->store));
    CHECK_INT(1, ended.n);
    CHECK(!ended.peers[0].reached && ended.peers[0].done);
    CHECK_STR(live.seen.peers[0].address, ended.peers[0].address);
    free(config);
}

TEST(a_node_that_never_agreed_ends_with_an_error)
{
    static participant participants[2];
    fixture_record records[2] = {{0}};
    dl_config *config = nodes("2", "mean");
    set(config, "run.deadline", "1");
    run(participants, records, 2, config, true);
    CHECK_STATUS(DILOCO_EINTERRUPTED, participants[1].of.status);
    CHECK_STATUS(DILOCO_EUNREACHABLE, participants[0].of.status);
    CHECK_CONTAINS("r0 finished without one of its 1 agreements (swarm.agree_every = 2)",
                   participants[0].of.text);
    CHECK_INT(0, fixture_whole(fixture_nth(&records[0], "end", 0), "agreed"));
    bool warned = false;
    for (size_t i = 0; i < records[0].n; i++)
        warned |= strstr(records[0].lines[i], "\"code\":\"agreement\"") != NULL;
    CHECK(warned);
    for (int i = 0; i < 2; i++)
        fixture_record_free(&records[i]);
    free(config);
}

/* The median of f = 1 needs three members, and the third has left before its second round's end. */
TEST(a_round_without_a_robust_combination_is_warned_about)
{
    static participant participants[3];
    fixture_record records[3] = {{0}};
    dl_config *config = nodes("3", "median");
    set(config, "run.patience", "10");
    set(config, "run.deadline", "60");
    run(participants, records, 3, config, true);
    for (int i = 0; i < 3; i++) {
        bool warned = false;
        if (i < 2 && participants[i].of.status)
            CHECK_FAIL("%s: %s", participants[i].of.name, participants[i].of.text);
        for (size_t k = 0; k < records[i].n; k++)
            warned |= strstr(records[i].lines[k], "\"code\":\"combiner_fallback\"") != NULL;
        CHECK(i == 2 || warned);
        fixture_record_free(&records[i]);
    }
    free(config);
}

TEST_MAIN(a_round_without_a_robust_combination_is_warned_about,
          nodes_that_agree_after_the_last_round_end_with_one_model,
          node_is_reached_while_it_answers_and_silent_after_its_end,
          a_node_that_is_stopped_resumes_bitwise, a_node_that_never_agreed_ends_with_an_error)
