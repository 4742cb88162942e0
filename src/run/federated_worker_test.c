/* federated_worker_test.c - rounds of logical clients, with a worker that needs no model: the
 * shared state if a round has no clients with samples (FED-17). */
#include "run/federated_worker.h"

#include "toy_run.h"

enum { NOBODY_AT = 2 }; /* the entry in which no client has samples */

typedef struct hand {
    diloco_run *run;
    float w[TOY_N];
    uint64_t nobody_at;
} hand;

static diloco_status keep_nothing(void *user, dl_hash body)
{
    (void)user, (void)body;
    return DILOCO_OK;
}

/* Each client moves w by -1, so g = 1; or has no samples. */
static diloco_status work(void *user, bool *worked)
{
    hand *h = user;
    const dl_roster *asked = dl_run_sampled(h->run);
    *worked = false;
    for (size_t i = 0; i < asked->n && !*worked; i++) {
        if (dl_run_has_contribution(h->run, asked->names[i])) continue;
        const bool has = dl_run_open_entry(h->run) != h->nobody_at;
        const dl_train_stats did = {.samples = has, .steps = has, .tokens = has, .holds = has};
        dl_exec_client c = {.stats = &did, .keep = keep_nothing};
        bool first;
        memcpy(c.generation.replica, asked->names[i], sizeof c.generation.replica);
        dl_run_load_theta(h->run);
        for (int k = 0; k < TOY_N && has; k++)
            h->w[k] -= 1;
        const diloco_status status = dl_run_put_client(h->run, &first, &c);
        if (status) return status;
        *worked = true;
    }
    return DILOCO_OK;
}

static void open_run(hand *h, diloco_config *config, const char *store, const char *compat)
{
    static const char *const settings[][2] = {
        {"clients.total_clients", "4"}, {"clients.per_round", "2"},
        {"trainer.rounds", "4"},        {"trainer.local_steps_per_round", "1"},
        {"run.threads", "1"},           {"run.heartbeat", "0.05"},
        {"run.retain", "all"},          {"run.state_dir", "none"}};
    dl_config_init(config);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        CHECK_OK(dl_config_set(config, settings[i][0], settings[i][1], "test"));
    CHECK_OK(dl_config_set(config, "run.store", store, "test"));
    CHECK_OK(dl_config_set(config, "server.diloco.plato_compat", compat, "test"));
    toy_keep(store);
    CHECK_OK(diloco_run_open(&h->run, config, "r0"));
    const diloco_tensor w = {.name = "w", .data = h->w, .n_dims = 1, .shape = {TOY_N}};
    CHECK_OK(diloco_run_tensor(h->run, &w));
    dl_run_set_worker_hooks(h->run, &(dl_worker_hooks){.work = work, .user = h});
}

/* Sets out[] to w after each of the four rounds. */
static void live(double out[4], const char *store, const char *compat, uint64_t nobody_at)
{
    static diloco_config config;
    hand h = {.nobody_at = nobody_at};
    open_run(&h, &config, store, compat);
    CHECK_OK(diloco_run_join(h.run));
    for (int e = 0; e < 4; e++) {
        CHECK_OK(dl_run_round(h.run));
        dl_run_load_theta(h.run);
        out[e] = (double)h.w[0];
    }
    CHECK(diloco_run_done(h.run));
    diloco_run_close(h.run);
}

static void is_near(const double expected[4], const double got[4])
{
    for (int e = 0; e < 4; e++)
        CHECK_NEAR(expected[e], got[e], 2e-6);
}

TEST(clients_follow_the_worked_trace)
{
    static const double expected[] = {-1.33, -3.227, -5.6343, -8.50087};
    double got[4];
    live(got, "mem://hands", "false", UINT64_MAX);
    is_near(expected, got);
}

static diloco_status see_abort(void *user, const diloco_log_entry *e)
{
    size_t *aborts = user;
    if (e->entry != NOBODY_AT) return e->commit ? DILOCO_OK : DILOCO_EPROTO;
    *aborts += !e->commit && e->n_members == 0;
    return DILOCO_OK;
}

static void verifies_with_one_abort(const char *store)
{
    diloco_verify_report report;
    size_t aborts = 0;
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_INT(3, report.commits);
    CHECK_INT(1, report.aborts);
    CHECK_OK(diloco_log_walk(store, 0, see_abort, &aborts));
    CHECK_INT(1, aborts);
}

TEST(fed_17_a_round_without_clients_keeps_the_momentum_or_zeroes_it_as_plato_does)
{
    static const double kept[] = {-1.33, -3.227, -3.227, -5.6343};
    static const double emptied[] = {-1.33, -3.227, -3.227, -4.557};
    double got[4];
    live(got, "mem://hands-kept", "false", NOBODY_AT);
    is_near(kept, got);
    verifies_with_one_abort("mem://hands-kept");
    live(got, "mem://hands-emptied", "true", NOBODY_AT);
    is_near(emptied, got);
    verifies_with_one_abort("mem://hands-emptied");
}

/* The next entry, or the state, has the digest of what replicas read. */
TEST(p24_entry_that_was_damaged_later_is_named)
{
    static diloco_config config;
    hand h = {.nobody_at = UINT64_MAX};
    dl_store *store;
    dl_member member;
    bool counted;
    char name[sizeof member.generation.replica];
    open_run(&h, &config, "mem://hands-damaged", "false");
    CHECK_OK(diloco_run_join(h.run));
    for (int e = 0; e < 3; e++)
        CHECK_OK(dl_run_round(h.run));
    snprintf(name, sizeof name, "%s", dl_run_sampled(h.run)->names[0]);
    CHECK_OK(dl_run_member(h.run, &counted, &member, 1, name));
    CHECK_OK(dl_store_open(&store, "mem://hands-damaged", false));
    for (int e = 2; e >= 0; e -= 2) {
        char key[32];
        snprintf(key, sizeof key, "log/%010d.json", e);
        CHECK_OK(dl_store_put(store, key, "junk", 4, DL_NEVER));
        CHECK_STATUS(DILOCO_EPROTO, dl_run_member(h.run, &counted, &member, (uint64_t)e, name));
        CHECK_CONTAINS(key, diloco_error_text());
    }
    dl_store_close(store);
    diloco_run_close(h.run);
}

TEST_MAIN(p24_entry_that_was_damaged_later_is_named, clients_follow_the_worked_trace,
          fed_17_a_round_without_clients_keeps_the_momentum_or_zeroes_it_as_plato_does)
