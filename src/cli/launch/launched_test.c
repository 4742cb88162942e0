/* launched_test.c - which options of a launch's book apply on a machine that looks at it. */
#include "check.h"
#include "cli/launch/launched.h"

static dl_config book, own;

static diloco_status trusted(const char *option, const char *theirs, const char *ours)
{
    dl_config_init(&book);
    dl_config_init(&own);
    CHECK_OK(dl_config_set(&book, option, theirs, "the launch"));
    CHECK_OK(dl_config_set(&own, option, ours, "--set"));
    return dl_launched_trust(&book, &own);
}

TEST(an_endpoint_of_the_book_gets_no_credentials_of_this_machine)
{
    static const char option[] = "launch.endpoint";
    CHECK_STATUS(DILOCO_EREFUSED, trusted(option, "https://api.example", ""));
    CHECK_CONTAINS("--set launch.endpoint=https://api.example", diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, trusted(option, "http://127.0.0.1.example", ""));
    CHECK_OK(trusted(option, "", ""));
    CHECK_OK(trusted(option, "http://127.0.0.1:8001", ""));
    CHECK_STR("http://127.0.0.1:8001", book.launch_endpoint);
    CHECK_OK(trusted(option, "https://api.example", "https://api.example"));
}

TEST(an_ssh_configuration_of_the_book_runs_no_commands_here)
{
    static const char option[] = "launch.ssh_config";
    CHECK_STATUS(DILOCO_EREFUSED, trusted(option, "/mnt/run/config", ""));
    CHECK_CONTAINS("can run commands on this machine", diloco_error_text());
    CHECK_OK(trusted(option, "/mnt/run/config", "/mnt/run/config"));
}

TEST(a_value_of_this_machine_replaces_that_of_the_book)
{
    CHECK_OK(trusted("launch.endpoint", "https://forged.example", "https://api.example"));
    CHECK_STR("https://api.example", book.launch_endpoint);
    CHECK_OK(trusted("launch.ssh_config", "", "own"));
    CHECK_STR("own", book.launch_ssh_config);
    CHECK_OK(trusted("launch.prices", "theirs.toml", "ours.csv"));
    CHECK_STR("ours.csv", book.launch_prices);
    CHECK_OK(trusted("launch.context", "theirs", "ours"));
    CHECK_STR("ours", book.launch_context);
    CHECK_OK(trusted("launch.poll", "7", "3"));
    CHECK(book.launch_poll_s == 3);
}

TEST(option_of_the_command_line_without_an_effect_is_refused)
{
    dl_config_init(&own);
    CHECK_OK(dl_config_set(&own, "launch.gpus", "4", "--set"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_launched_check(&own, "launch status"));
    CHECK_CONTAINS("launch.gpus (--set) has no effect here", diloco_error_text());
    dl_config_init(&own);
    CHECK_OK(dl_config_set(&own, "run.threads", "4", "--set"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_launched_check(&own, "launch status"));
    CHECK_CONTAINS("run.threads (--set) has no effect on launch status", diloco_error_text());
    dl_config_init(&own);
    CHECK_OK(dl_config_set(&own, "job.run", "/mnt/run", "--set"));
    CHECK_OK(dl_config_set(&own, "run.store", "/mnt/batch", "--set"));
    CHECK_OK(dl_launched_check(&own, "launch status"));
    dl_config_init(&own);
    CHECK_OK(dl_config_set(&own, "launch.gpus", "4", "run.toml"));
    CHECK_OK(dl_config_set(&own, "run.threads", "4", "run.toml"));
    CHECK_OK(dl_config_set(&own, "launch.context", "theirs", "run.toml"));
    CHECK_OK(dl_launched_check(&own, "launch status"));
    dl_config_init(&book);
    CHECK_OK(dl_config_set(&book, "launch.context", "of the launch", "the launch"));
    CHECK_OK(dl_launched_trust(&book, &own));
    CHECK_STR("of the launch", book.launch_context);
}

/* The status of a subcommand that gets this option, and whose replicas this executor has. */
static diloco_status command_with(const char *command, const char *name, const char *option,
                                  const char *value)
{
    const dl_executor *executor;
    const char *on;
    CHECK_OK(dl_executor_find(&executor, &on, name));
    dl_config_init(&own);
    CHECK_OK(dl_config_set(&own, option, value, "--set"));
    return dl_launched_check_for(&own, executor, command);
}

/* The same for `launch logs`. */
static diloco_status looks_with(const char *name, const char *option, const char *value)
{
    return command_with("launch logs", name, option, value);
}

TEST(option_of_the_command_line_that_the_subcommand_does_not_use_is_refused)
{
    static const struct {
        const char *option, *value, *unused[3];
    } rows[] = {{"launch.dir", "kept", {"launch status", "launch collect"}},
                {"launch.prices", "x", {"launch logs", "launch cancel", "launch scale"}},
                {"launch.poll", "3", {"launch status", "launch cancel", "launch scale"}}};
    static const char *const commands[] = {"launch status", "launch logs", "launch cancel",
                                           "launch collect", "launch scale"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof commands / sizeof *commands; k++) {
            bool unused = false;
            for (size_t m = 0; m < 3; m++)
                if (rows[i].unused[m]) unused |= strcmp(rows[i].unused[m], commands[k]) == 0;
            CHECK_STATUS(unused ? DILOCO_EREFUSED : DILOCO_OK,
                         command_with(commands[k], "k8s", rows[i].option, rows[i].value));
            if (unused) CHECK_CONTAINS(commands[k], diloco_error_text());
            CHECK_OK(command_with(commands[k], "k8s", "launch.context", "theirs"));
        }
}

TEST(option_of_the_command_line_that_the_executor_does_not_use_is_refused)
{
    static const char *const keep[] = {"local", "ssh://a", "slurm"};
    for (size_t i = 0; i < 3; i++) {
        CHECK_STATUS(DILOCO_EREFUSED, looks_with(keep[i], "launch.dir", "kept"));
        CHECK_CONTAINS("launch.dir (--set) has no effect here, because the launch keeps its own",
                       diloco_error_text());
        CHECK_OK(looks_with(keep[i], "launch.poll", "3"));
        CHECK_STATUS(DILOCO_EREFUSED, looks_with(keep[i], "launch.context", "theirs"));
    }
    CHECK_CONTAINS("launch.context (--set) has no meaning with the executor slurm: omit it",
                   diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, looks_with("hf-jobs", "launch.dir", "kept"));
    CHECK_CONTAINS("launch.dir (--set) has no meaning with the executor hf-jobs: omit it",
                   diloco_error_text());
    CHECK_STATUS(DILOCO_EREFUSED, looks_with("local", "launch.endpoint", "https://api.example"));
    CHECK_STATUS(DILOCO_EREFUSED, looks_with("slurm", "launch.ssh_config", "config"));
    CHECK_OK(looks_with("slurm", "launch.endpoint", "https://api.example"));
    CHECK_OK(looks_with("ssh://a", "launch.ssh_config", "config"));
    CHECK_OK(looks_with("k8s", "launch.dir", "kept"));
    CHECK_OK(looks_with("k8s", "launch.context", "theirs"));
    CHECK_OK(command_with("launch status", "local", "launch.prices", "prices.toml"));
    /* One of CONFIG is that of the next launch. */
    CHECK_OK(dl_config_set(&own, "launch.ssh_config", "config", "run.toml"));
    CHECK_OK(dl_launched_check_for(&own, dl_executor_at(0), "launch status"));
}

TEST(replicas_in_an_image_take_no_folder_from_the_book)
{
    static const dl_executor image = {.caps = {.in_image = true}}, files = {.caps = {.spot = true}};
    static const char run[] = "1f0c2ab9000000000000000000000000";
    dl_config_path dir;
    dl_config_init(&own);
    dl_launched_dir(dir, &files, "/mnt/run.launch", &own, run);
    CHECK_STR("/mnt/run.launch", dir);
    dl_launched_dir(dir, &image, "/etc", &own, run);
    CHECK_STR(".diloco/launch/1f0c2ab9", dir);
    CHECK_OK(dl_config_set(&own, "launch.dir", "/home/me/kept", "--set"));
    dl_launched_dir(dir, &image, "/etc", &own, run);
    CHECK_STR("/home/me/kept", dir);
}

TEST_MAIN(an_endpoint_of_the_book_gets_no_credentials_of_this_machine,
          an_ssh_configuration_of_the_book_runs_no_commands_here,
          a_value_of_this_machine_replaces_that_of_the_book,
          option_of_the_command_line_without_an_effect_is_refused,
          option_of_the_command_line_that_the_subcommand_does_not_use_is_refused,
          option_of_the_command_line_that_the_executor_does_not_use_is_refused,
          replicas_in_an_image_take_no_folder_from_the_book)
