/* logical_clients_test.c - the clients that an entry samples: a function of seed and number, the
 * right number, none twice, each equally often. Also tests which entries of a federated run are
 * void. */
#include "protocol/logical_clients.h"

#include "check.h"
#include "protocol/candidates.h"
#include "protocol/close_rule.h"

static dl_config config;

static void begin(const char *total, const char *per_round)
{
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "clients.total_clients", total, "test"));
    CHECK_OK(dl_config_set(&config, "clients.per_round", per_round, "test"));
}

TEST(p9_an_entry_asks_per_round_different_clients)
{
    dl_entry e;
    begin("50", "7");
    CHECK_OK(dl_entry_init(&e, 64));
    for (uint64_t entry = 0; entry < 20; entry++) {
        dl_clients_sample(&e.roster, &config, entry);
        CHECK_INT(7, e.roster.n); /* a roster has a name once */
        for (size_t i = 0; i < e.roster.n; i++) {
            const uint64_t client = dl_client_number(e.roster.names[i]);
            CHECK(client >= 1 && client <= 50);
            CHECK(dl_clients_sampled(&config, entry, client));
        }
    }
    dl_entry_deinit(&e);
}

TEST(fed_28_the_draw_is_keyed_by_seed_and_entry)
{
    dl_entry a, b;
    begin("1000", "10");
    CHECK_OK(dl_entry_init(&a, 64));
    CHECK_OK(dl_entry_init(&b, 64));
    const size_t bytes = 10 * sizeof a.roster.names[0];
    dl_clients_sample(&a.roster, &config, 3);
    dl_clients_sample(&b.roster, &config, 3);
    CHECK_INT(0, memcmp(a.roster.names, b.roster.names, bytes));
    dl_clients_sample(&b.roster, &config, 4);
    CHECK(memcmp(a.roster.names, b.roster.names, bytes) != 0);
    CHECK_OK(dl_config_set(&config, "run.seed", "2", "test"));
    dl_clients_sample(&b.roster, &config, 3);
    CHECK(memcmp(a.roster.names, b.roster.names, bytes) != 0);
    dl_entry_deinit(&a), dl_entry_deinit(&b);
}

/* 2,000 entries of 5 of 20: 500 each, with a standard deviation of about 19. */
TEST(every_client_is_asked_about_as_often)
{
    unsigned times[21] = {0};
    begin("20", "5");
    for (uint64_t entry = 0; entry < 2000; entry++)
        for (uint64_t client = 1; client <= 20; client++)
            times[client] += dl_clients_sampled(&config, entry, client);
    for (int client = 1; client <= 20; client++)
        CHECK(times[client] > 400 && times[client] < 600);
}

TEST(all_are_asked_where_nothing_is_said)
{
    begin("9", "0");
    CHECK_INT(9, dl_clients_per_round(&config));
    for (uint64_t client = 1; client <= 9; client++)
        CHECK(dl_clients_sampled(&config, 5, client));
    CHECK(!dl_clients_sampled(&config, 5, 10));
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "run.replicas", "3", "test"));
    CHECK_INT(3, dl_clients_per_round(&config));
    CHECK_INT(3, dl_clients_shards(&config));
}

TEST(only_a_clients_name_is_one)
{
    dl_client_name name;
    dl_client_name_of(name, 17);
    CHECK_STR("client17", name);
    CHECK_INT(17, dl_client_number("client17"));
    CHECK_INT(0, dl_client_number("r17"));
    CHECK_INT(0, dl_client_number("client"));
    CHECK_INT(0, dl_client_number("client017"));
    CHECK_INT(0, dl_client_number("client17x"));
    CHECK_INT(0, dl_client_number("client0"));
}

static void add_member(dl_entry *e, const char *name)
{
    dl_member *m = &e->members[e->n_members++];
    *m = (dl_member){.weight = 1};
    snprintf(m->generation.replica, sizeof m->generation.replica, "%s", name);
}

TEST(p7_entry_that_samples_or_counts_other_clients_is_void)
{
    dl_entry asked, e;
    begin("50", "4");
    CHECK_OK(dl_entry_init(&asked, 64));
    CHECK_OK(dl_entry_init(&e, 64));
    dl_clients_sample(&asked.roster, &config, 8);
    e.entry = 8;
    dl_clients_sample(&e.roster, &config, 9);
    add_member(&e, asked.roster.names[2]);
    CHECK(dl_clients_void_reason(&config, &e, &asked.roster) == NULL);
    add_member(&e, "client51");
    CHECK_CONTAINS("not asked", dl_clients_void_reason(&config, &e, &asked.roster));
    e.n_members = 1;
    e.roster.n--;
    CHECK_CONTAINS("roster", dl_clients_void_reason(&config, &e, &asked.roster));
    dl_clients_sample(&e.roster, &config, 8);
    CHECK_CONTAINS("roster", dl_clients_void_reason(&config, &e, &asked.roster));
    dl_entry_deinit(&asked), dl_entry_deinit(&e);
}

/* ---- closing ------------------------------------------------------------------------------ */

typedef struct table {
    dl_entry owner;
    dl_control control;
    dl_candidate rows[16];
    dl_candidate_table known;
    bool silent[16];
    dl_closing c;
} table;

static void open_table(table *t)
{
    memset(t, 0, sizeof *t);
    CHECK_OK(dl_entry_init(&t->owner, 16));
    t->control.roster = t->owner.roster;
    dl_clients_sample(&t->control.roster, &config, 0);
    t->known = (dl_candidate_table){.at = t->rows, .cap = 16};
    t->c = (dl_closing){.config = &config,
                        .control = &t->control,
                        .known = &t->known,
                        .silent = t->silent,
                        .now = 1000 * DL_SECOND,
                        .deadline = 10 * DL_SECOND,
                        .enough_at = DL_NEVER};
}

static void put(table *t, size_t i, uint64_t samples)
{
    dl_generation generation = {.number = 0};
    memcpy(generation.replica, t->control.roster.names[i], sizeof generation.replica);
    dl_candidate *k = dl_candidate_add(&t->known, &generation, 0, 100);
    const dl_contribution facts = {.generation = generation, .stats.samples = samples};
    dl_candidate_accept(k, &facts, 1);
}

TEST(p10_an_entry_waits_for_its_clients_from_the_first_one_on_and_past_any_deadline)
{
    table t;
    begin("50", "3");
    open_table(&t);
    put(&t, 0, 5);
    put(&t, 1, 5);
    const dl_verdict v = dl_closing_look(&t.c);
    CHECK_INT(DL_VERDICT_WAIT, v.kind);
    CHECK(v.until == DL_NEVER);
    put(&t, 2, 5);
    CHECK_INT(DL_VERDICT_COMMIT, dl_closing_look(&t.c).kind);
    dl_entry_deinit(&t.owner);
}

TEST(fed_16_a_client_without_samples_is_waited_for_and_does_not_count)
{
    table t;
    begin("50", "3");
    open_table(&t);
    put(&t, 0, 5);
    put(&t, 1, 0);
    CHECK_INT(DL_VERDICT_WAIT, dl_closing_look(&t.c).kind);
    put(&t, 2, 5);
    CHECK_INT(DL_VERDICT_COMMIT, dl_closing_look(&t.c).kind);
    CHECK_INT(2, dl_candidate_n_counting(&t.known));
    dl_entry_deinit(&t.owner);
}

/* An abort leaves theta and momentum: fold_test, p4. */
TEST(fed_17_a_round_without_an_eligible_client_is_no_commit)
{
    table t;
    begin("50", "3");
    open_table(&t);
    for (size_t i = 0; i < 3; i++)
        put(&t, i, 0);
    CHECK_INT(DL_VERDICT_ABORT, dl_closing_look(&t.c).kind);
    dl_entry_deinit(&t.owner);
}

TEST(p10_with_a_deadline_and_a_quorum_it_closes_without_the_missing)
{
    table t;
    begin("50", "4");
    CHECK_OK(dl_config_set(&config, "run.on_missing", "commit_partial", "test"));
    CHECK_OK(dl_config_set(&config, "run.quorum", "0.5", "test"));
    open_table(&t);
    put(&t, 0, 5);
    CHECK_INT(DL_VERDICT_WATCH, dl_closing_look(&t.c).kind);
    CHECK_INT(DL_VERDICT_ABORT, dl_closing_watched(&t.c).kind);
    put(&t, 1, 5);
    CHECK_INT(DL_VERDICT_COMMIT, dl_closing_watched(&t.c).kind);
    dl_entry_deinit(&t.owner);
}

TEST_MAIN(p9_an_entry_asks_per_round_different_clients, fed_28_the_draw_is_keyed_by_seed_and_entry,
          every_client_is_asked_about_as_often, all_are_asked_where_nothing_is_said,
          only_a_clients_name_is_one, p7_entry_that_samples_or_counts_other_clients_is_void,
          p10_an_entry_waits_for_its_clients_from_the_first_one_on_and_past_any_deadline,
          fed_16_a_client_without_samples_is_waited_for_and_does_not_count,
          fed_17_a_round_without_an_eligible_client_is_no_commit,
          p10_with_a_deadline_and_a_quorum_it_closes_without_the_missing)
