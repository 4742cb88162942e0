/* launch_forecast_test.c - the time and cost of the part of a run that is left. */
#include "cli/launch/launch_forecast.h"

#include "check.h"

static dl_config run;

static const dl_prices prices = {.date = "2026-01-31",
                                 .currency = "EUR",
                                 .egress_per_gb = 1,
                                 .put_per_1000 = 1000,
                                 .machine_hour = 2};

/* 10 rounds of 20 steps of a small model on two replicas. */
static void configure(void)
{
    static const char *const set[][2] = {{"run.store", "somewhere"},
                                         {"trainer.rounds", "10"},
                                         {"trainer.local_steps_per_round", "20"},
                                         {"parameters.model.layers", "1"},
                                         {"parameters.model.heads", "2"},
                                         {"parameters.model.channels", "32"},
                                         {"parameters.model.context", "32"},
                                         {"run.replicas", "2"},
                                         {"run.threads", "1"}};
    dl_config_init(&run);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        CHECK_OK(dl_config_set(&run, set[i][0], set[i][1], "--set"));
}

static dl_launch_forecast forecast(double part, double step_s, const dl_prices *table)
{
    dl_launch_forecast f;
    const dl_launch_left left = {.part = part, .step_s = step_s, .replicas = 2};
    CHECK_OK(dl_launch_forecast_of(&f, &run, &left, table));
    return f;
}

TEST(the_rest_of_a_run_takes_its_steps_and_costs_machines_and_store)
{
    char text[DL_LAUNCH_FORECAST_TEXT];
    configure();
    const dl_launch_forecast whole = forecast(1, 18, &prices), half = forecast(0.5, 18, &prices);
    CHECK(whole.known && half.known);
    CHECK_NEAR(3600, whole.wall_s, 1e-3);
    CHECK_NEAR(1800, half.wall_s, 1e-3);
    CHECK_NEAR(4, whole.machine, 1e-3); /* 2 machines, an hour, 2 EUR */
    CHECK(whole.store > 20);            /* 10 exchanges of 2 replicas, 1 EUR a put */
    CHECK(half.store > 10 && half.store < whole.store);
    CHECK_CONTAINS("4.00 EUR of machine time and ", dl_launch_forecast_text(text, &whole, &prices));
    CHECK_CONTAINS(" EUR of the store (prices of 2026-01-31)", text);
}

TEST(without_prices_there_is_a_time_and_no_cost)
{
    char text[DL_LAUNCH_FORECAST_TEXT];
    configure();
    const dl_launch_forecast f = forecast(1, 18, NULL);
    CHECK(f.known);
    CHECK_NEAR(3600, f.wall_s, 1e-3);
    CHECK(f.machine == 0 && f.store == 0);
    CHECK(!strchr(dl_launch_forecast_text(text, &f, NULL), ','));
}

TEST(a_slow_link_makes_the_rest_longer)
{
    dl_launch_forecast f;
    configure();
    const dl_launch_left left = {.part = 1, .step_s = 18, .replicas = 2, .link = {1e5, 1e5, 0.1}};
    CHECK_OK(dl_launch_forecast_of(&f, &run, &left, NULL));
    CHECK(f.wall_s > 3601);
}

TEST(time_of_an_entry_gives_the_rest_of_the_log)
{
    dl_launch_forecast f;
    configure();
    const dl_launch_left left = {.part = 0.5, .entries = 5, .entry_s = 360, .replicas = 2};
    CHECK_OK(dl_launch_forecast_of(&f, &run, &left, &prices));
    CHECK_NEAR(1800, f.wall_s, 1e-3);
    CHECK_NEAR(2, f.machine, 1e-3); /* 2 machines, half an hour, 2 EUR */
}

TEST(without_a_speed_or_a_rest_there_is_no_forecast)
{
    configure();
    CHECK(!forecast(1, 0, &prices).known);
    CHECK(!forecast(0, 18, &prices).known);
}

TEST(the_forecast_needs_no_data)
{
    configure();
    CHECK_OK(dl_config_set(&run, "data.train_path", "/far/away/text.txt", "--set"));
    CHECK(forecast(1, 18, NULL).known);
    CHECK_STR("/far/away/text.txt", run.train_path);
}

TEST_MAIN(the_rest_of_a_run_takes_its_steps_and_costs_machines_and_store,
          without_prices_there_is_a_time_and_no_cost, a_slow_link_makes_the_rest_longer,
          time_of_an_entry_gives_the_rest_of_the_log,
          without_a_speed_or_a_rest_there_is_no_forecast, the_forecast_needs_no_data)
