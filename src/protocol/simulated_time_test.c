/* simulated_time_test.c - simulated clients: compares the distributions with their formulas, and
 * tests which clients a round waits for. */
#include "protocol/simulated_time.h"

#include "check.h"
#include "protocol/logical_clients.h"

#include <math.h>

enum { MANY = 4000, ASKED = 40 };

static dl_config config;

static void set(const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&config, name, value, "test"));
}

/* 1 s of training, no transfer, no slow client: later settings alone add to it. */
static dl_simulation begin(void)
{
    dl_config_init(&config);
    set("clients.total_clients", "1000");
    set("clients.per_round", "40");
    set("clients.speed_simulation", "true");
    set("clients.avg_training_time", "1");
    set("clients.max_sleep_time", "0");
    set("server.downlink_bandwidth", "0");
    set("server.uplink_bandwidth", "0");
    return (dl_simulation){.config = &config, .down_bits = 4e6, .up_bits = 1e6};
}

static dl_simulation drawn_from(const char *distribution)
{
    const dl_simulation s = begin();
    set("clients.simulation_distribution.distribution", distribution);
    set("clients.max_sleep_time", "1e9");
    return s;
}

static double slower(const dl_simulation *s, uint64_t client)
{
    return dl_simulation_client(s, 0, client).seconds - 1;
}

static double part_up_to(const dl_simulation *s, double seconds)
{
    size_t n = 0;
    for (uint64_t i = 1; i <= MANY; i++)
        n += slower(s, i) <= seconds + 1e-9;
    return (double)n / MANY;
}

/* Tolerances are four deviations of a share of 4000 draws: 0.032. */
static void has_distribution(const dl_simulation *s, const double at[3], const double expected[3])
{
    for (int i = 0; i < 3; i++)
        CHECK_NEAR(expected[i], part_up_to(s, at[i]), 0.032);
}

TEST(clients_are_as_slow_as_their_distribution_says)
{
    dl_simulation s = drawn_from("normal");
    has_distribution(&s, (double[]){7, 10, 13}, (double[]){0.1587, 0.5, 0.8413});
    s = drawn_from("uniform");
    has_distribution(&s, (double[]){1, 5, 9}, (double[]){0.1, 0.5, 0.9});
    s = drawn_from("pareto");
    set("clients.simulation_distribution.alpha", "2");
    has_distribution(&s, (double[]){0.5, 1, 3}, /* 1 - (1 + x)^-2 */
                     (double[]){1 - 1 / 2.25, 0.75, 1 - 1 / 16.0});
    s = drawn_from("zipf");
    set("clients.simulation_distribution.s", "2");
    set("clients.max_sleep_time", "100");
    const double scale = 6 / (3.14159265358979 * 3.14159265358979);
    has_distribution(&s, (double[]){1, 2, 3},
                     (double[]){scale, scale * 1.25, scale * (1.25 + 1 / 9.0)});
}

TEST(slowness_is_between_zero_and_the_longest_sleep)
{
    static const char *const names[] = {"normal", "uniform", "pareto", "zipf"};
    for (size_t k = 0; k < 4; k++) {
        dl_simulation s = drawn_from(names[k]);
        set("clients.max_sleep_time", "4");
        set("clients.simulation_distribution.mean", "0");
        for (uint64_t i = 1; i <= MANY; i++)
            CHECK(slower(&s, i) >= 0 && slower(&s, i) <= 4);
    }
}

TEST(the_same_key_draws_the_same_and_another_something_else)
{
    dl_simulation s = drawn_from("pareto");
    double first[50];
    size_t same = 0;
    for (uint64_t i = 0; i < 50; i++)
        first[i] = slower(&s, i + 1);
    for (uint64_t i = 0; i < 50; i++)
        CHECK(first[i] == slower(&s, i + 1) &&
              first[i] == dl_simulation_client(&s, 7, i + 1).seconds - 1);
    set("clients.random_seed", "2");
    for (uint64_t i = 0; i < 50; i++)
        same += first[i] == slower(&s, i + 1);
    CHECK_INT(0, same);
}

TEST(transfer_takes_the_slower_of_client_link_and_server_share)
{
    dl_simulation s = begin();
    CHECK_NEAR(1, dl_simulation_client(&s, 0, 3).seconds, 1e-12);
    set("clients.bandwidth", "2"); /* 4 Mbit down, 1 up */
    CHECK_NEAR(1 + 2 + 0.5, dl_simulation_client(&s, 0, 3).seconds, 1e-9);
    set("server.uplink_bandwidth", "40"); /* 1 each */
    CHECK_NEAR(1 + 2 + 1, dl_simulation_client(&s, 0, 3).seconds, 1e-9);
    set("server.downlink_bandwidth", "4000");
    CHECK_NEAR(1 + 2 + 1, dl_simulation_client(&s, 0, 3).seconds, 1e-9);
    set("clients.bandwidth_sigma", "1");
    set("server.uplink_bandwidth", "0");
    size_t below = 0;
    for (uint64_t i = 1; i <= MANY; i++)
        below += dl_simulation_client(&s, 0, i).seconds < 3.5; /* the median's */
    CHECK_NEAR(0.5, (double)below / MANY, 0.032);
}

TEST(unavailable_client_is_skipped_and_another_is_drawn)
{
    (void)begin();
    dl_entry owner;
    size_t asked = 0;
    CHECK_OK(dl_entry_init(&owner, 1000));
    set("clients.availability", "0.3");
    for (uint64_t e = 0; e < 50; e++) {
        dl_clients_sample(&owner.roster, &config, e);
        CHECK_INT(ASKED, owner.roster.n);
        for (size_t i = 0; i < owner.roster.n; i++)
            CHECK(dl_simulation_available(&config, e, dl_client_number(owner.roster.names[i])));
        for (uint64_t c = 1; c <= 1000; c++)
            asked += dl_simulation_available(&config, e, c);
    }
    CHECK_NEAR(0.3, (double)asked / 50000, 0.01);
    set("clients.per_round", "900"); /* more than there are */
    dl_clients_sample(&owner.roster, &config, 0);
    CHECK(owner.roster.n > 200 && owner.roster.n < 400);
    CHECK(dl_clients_void_reason(&config, &owner, &owner.roster) != NULL); /* of entry 0, not 1 */
    dl_clients_sample(&owner.roster, &config, 1);
    CHECK(dl_clients_void_reason(&config, &owner, &owner.roster) == NULL);
    dl_entry_deinit(&owner);
}

/* ---- rounds ---- */

static dl_entry owner;
static dl_simulated clients[ASKED];

static double play(const dl_simulation *s, size_t *n_awaited)
{
    dl_clients_sample(&owner.roster, &config, 0);
    const double seconds = dl_simulation_round(clients, s, 0, &owner.roster);
    *n_awaited = 0;
    for (size_t i = 0; i < owner.roster.n; i++)
        *n_awaited += clients[i].awaited;
    return seconds;
}

static size_t n_within(double limit)
{
    size_t n = 0;
    for (size_t i = 0; i < owner.roster.n; i++)
        n += clients[i].answers && clients[i].seconds <= limit;
    return n;
}

static double slowest(void)
{
    double most = 0;
    for (size_t i = 0; i < owner.roster.n; i++)
        if (clients[i].answers) most = fmax(most, clients[i].seconds);
    return most;
}

TEST(wait_keeps_a_straggler_and_a_deadline_drops_it)
{
    size_t n;
    CHECK_OK(dl_entry_init(&owner, ASKED));
    dl_simulation s = drawn_from("pareto");
    CHECK_NEAR(slowest(), 0, 0);
    const double all = play(&s, &n);
    CHECK_INT(ASKED, n);
    CHECK(all == slowest() && all > 8);

    set("run.on_missing", "commit_partial");
    set("run.deadline", "4");
    CHECK_NEAR(4, play(&s, &n), 0);
    CHECK(n > 0 && n < ASKED);
    CHECK_INT(n_within(4), n);

    set("run.deadline", "1000000"); /* no client is that slow: the round ends with the last */
    CHECK(play(&s, &n) == all);
    CHECK_INT(ASKED, n);
    dl_entry_deinit(&owner);
}

TEST(round_closes_a_grace_after_the_first_answers)
{
    size_t n;
    CHECK_OK(dl_entry_init(&owner, ASKED));
    dl_simulation s = drawn_from("pareto");
    set("run.close_at", "10");
    const double tenth = play(&s, &n);
    CHECK_INT(10, n);
    CHECK_INT(10, n_within(tenth));
    set("run.grace", "0.5");
    CHECK_NEAR(tenth + 0.5, play(&s, &n), 1e-12);
    CHECK_INT(n_within(tenth + 0.5), n);
    set("run.on_missing", "commit_partial");
    set("run.deadline", "1.1"); /* before there are ten */
    CHECK_NEAR(1.1, play(&s, &n), 0);
    CHECK(n < 10);
    dl_entry_deinit(&owner);
}

TEST(dropped_client_never_answers)
{
    size_t n, answers = 0;
    CHECK_OK(dl_entry_init(&owner, ASKED));
    dl_simulation s = begin();
    set("clients.dropout", "0.25");
    set("run.on_missing", "commit_partial");
    set("run.deadline", "5");
    CHECK_NEAR(5, play(&s, &n), 0);
    CHECK(n > 20 && n < ASKED);
    for (uint64_t e = 0; e < 100; e++)
        for (uint64_t c = 1; c <= 40; c++)
            answers += dl_simulation_client(&s, e, c).answers;
    CHECK_NEAR(0.75, (double)answers / 4000, 0.028);
    dl_entry_deinit(&owner);
}

TEST(round_without_available_clients_is_lost)
{
    CHECK_OK(dl_entry_init(&owner, ASKED));
    dl_simulation s = begin();
    owner.roster.n = 0;
    CHECK_NEAR(1, dl_simulation_round(clients, &s, 0, &owner.roster), 0);
    dl_entry_deinit(&owner);
}

TEST(endless_round_or_invalid_distribution_is_refused)
{
    (void)drawn_from("zipf");
    set("clients.simulation_distribution.s", "1");
    CHECK_STATUS(DILOCO_EINVAL, dl_simulation_check(&config));
    CHECK_CONTAINS("needs more than 1", diloco_error_text());
    (void)drawn_from("uniform");
    set("clients.simulation_distribution.low", "11");
    CHECK_STATUS(DILOCO_EINVAL, dl_simulation_check(&config));
    CHECK_CONTAINS("low = 11 is above high = 10", diloco_error_text());
    (void)begin();
    CHECK_OK(dl_simulation_check(&config));
    set("clients.dropout", "0.5");
    CHECK_STATUS(DILOCO_EREFUSED, dl_simulation_check(&config));
    CHECK_CONTAINS("never answer", diloco_error_text());
}

TEST_MAIN(clients_are_as_slow_as_their_distribution_says,
          slowness_is_between_zero_and_the_longest_sleep,
          the_same_key_draws_the_same_and_another_something_else,
          transfer_takes_the_slower_of_client_link_and_server_share,
          unavailable_client_is_skipped_and_another_is_drawn,
          wait_keeps_a_straggler_and_a_deadline_drops_it,
          round_closes_a_grace_after_the_first_answers, dropped_client_never_answers,
          round_without_available_clients_is_lost, endless_round_or_invalid_distribution_is_refused)
