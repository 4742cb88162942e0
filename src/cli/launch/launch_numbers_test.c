/* launch_numbers_test.c - launched replicas compared with those that a run waits for. */
#include "cli/launch/launch_numbers.h"

#include "check.h"

#include <stdio.h>
#include <string.h>

static dl_config config;
static char warning[DL_LAUNCH_NUMBERS_TEXT];

/* A new run with these options of a file, launched with --replicas min..max. "": not set. */
static diloco_status launch(const char *replicas, const char *min_replicas, uint32_t min,
                            uint32_t max)
{
    dl_config_init(&config);
    if (*replicas) CHECK_OK(dl_config_set(&config, "run.replicas", replicas, "run.toml"));
    if (*min_replicas)
        CHECK_OK(dl_config_set(&config, "run.min_replicas", min_replicas, "run.toml"));
    CHECK_OK(dl_launch_numbers_fit(&config, min, max));
    return dl_launch_numbers_new(warning, &config, min, max);
}

TEST(new_run_without_a_number_waits_for_the_launched_replicas)
{
    CHECK_OK(launch("", "", 2, 2));
    CHECK_INT(2, config.replicas);
    CHECK_STR("", warning);
    CHECK_OK(launch("", "", 4, 16));
    CHECK_INT(16, config.replicas);
    CHECK_INT(4, config.min_replicas);
    CHECK_STR("", warning);
    CHECK_OK(launch("", "8", 4, 16));
    CHECK_INT(8, config.min_replicas);
}

TEST(new_run_that_waits_for_more_replicas_is_refused)
{
    CHECK_STATUS(DILOCO_EREFUSED, launch("4", "", 2, 2));
    CHECK_STR("--replicas 2: the new run waits for more, run.replicas = 4 (run.toml). Add --set "
              "run.replicas=2, or start all with --replicas 4. If others start the rest, add --set "
              "run.min_replicas=2: the run begins with fewer after run.start_timeout",
              diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, launch("4", "3", 2, 2));
    CHECK_OK(launch("4", "", 4, 4));
    CHECK_STR("", warning);
}

TEST(new_run_that_may_begin_with_the_launched_replicas_gets_a_warning)
{
    CHECK_OK(launch("4", "2", 2, 2));
    CHECK_STR("run.replicas = 4 (run.toml), and --replicas 2 starts fewer: the first entry waits "
              "600 s (run.start_timeout) for the others, and then for run.min_replicas = 2",
              warning);
    CHECK_OK(launch("20", "", 4, 16));
    CHECK_CONTAINS("--replicas 4..16 starts fewer", warning);
    CHECK_CONTAINS("run.min_replicas = 4", warning);
}

TEST(new_run_that_any_machine_may_join_gets_a_warning)
{
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "run.replicas", "4", "--set"));
    CHECK_OK(dl_config_set(&config, "run.roster", "open", "run.toml"));
    CHECK_OK(dl_launch_numbers_new(warning, &config, 2, 2));
    CHECK_CONTAINS("run.replicas = 4 (--set), and --replicas 2 starts fewer", warning);
}

TEST(new_run_that_would_begin_without_launched_replicas_is_refused)
{
    CHECK_STATUS(DILOCO_EREFUSED, launch("2", "", 4, 4));
    CHECK_STR("--replicas 4: the new run begins with fewer, run.replicas = 2 (run.toml). Add --set "
              "run.replicas=4, or --replicas 2..4 if it may",
              diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, launch("2", "", 4, 16));
    CHECK_CONTAINS("--replicas 2..16", diloco_error_text());
    CHECK_OK(launch("8", "", 4, 16));
    CHECK_STR("", warning);
}

TEST(asynchronous_run_waits_for_no_number)
{
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "run.replicas", "4", "--set"));
    CHECK_OK(dl_config_set(&config, "server.diloco.schedule", "async", "--set"));
    CHECK_OK(dl_launch_numbers_new(warning, &config, 2, 2));
    CHECK_STR("", warning);
}

/* An existing run that waits for four replicas, and that these replicas have joined. */
static const char *look(diloco_replica_status *joined, size_t n, uint64_t entries, uint32_t max)
{
    diloco_replica_status *rows[4] = {joined, joined + 1, joined + 2, joined + 3};
    diloco_run_wait wait = {.n_awaited = 4};
    const diloco_run_status run = {
        .entries = entries, .wait = &wait, .n_replicas = n, .replicas = rows};
    dl_launch_numbers_existing(warning, &run, max);
    return warning;
}

TEST(existing_run_whose_first_entry_waits_for_more_replicas_gets_a_warning)
{
    diloco_replica_status joined[4] = {
        {.replica = "r0"}, {.replica = "r3"}, {.replica = "alice"}, {.replica = "bob"}};
    CHECK_STR("the first entry of this run waits for 4 replicas (run.replicas), and with those of "
              "this launch it has 2. Launch or join 2 more, or it waits for run.start_timeout",
              look(joined, 1, 0, 2));
    CHECK_CONTAINS("it has 3. Launch or join 1 more", look(joined, 2, 0, 2));
    CHECK_STR("", look(joined, 3, 0, 2));
    CHECK_STR("", look(joined, 1, 0, 4));
    CHECK_STR("", look(joined, 1, 1, 2)); /* later entries wait for the members of the log */
    joined[1].ended = true;
    CHECK_CONTAINS("it has 2", look(joined, 2, 0, 2));
}

TEST_MAIN(new_run_without_a_number_waits_for_the_launched_replicas,
          new_run_that_waits_for_more_replicas_is_refused,
          new_run_that_may_begin_with_the_launched_replicas_gets_a_warning,
          new_run_that_any_machine_may_join_gets_a_warning,
          new_run_that_would_begin_without_launched_replicas_is_refused,
          asynchronous_run_waits_for_no_number,
          existing_run_whose_first_entry_waits_for_more_replicas_gets_a_warning)
