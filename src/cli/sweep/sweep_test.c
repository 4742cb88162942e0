/* sweep_test.c - from flags to the settings and folders of trials, and what is refused. */
#include "cli/sweep/sweep.h"

#include "check.h"
#include "scratch.h"

static dl_args args;
static dl_sweep sweep;
static dl_config config;

/* A command line after "sweep CONFIG", its words separated by spaces. */
static diloco_status read_line(const char *line)
{
    static char text[1024];
    static char *words[32];
    static const char *path;
    static const char file[] =
        "[run]\nseed = 7\n[trainer]\nrounds = 6\nlocal_steps_per_round = 20\n";
    if (!path) path = scratch_write("base.toml", file, sizeof file - 1);
    int n = 0;
    char *next = NULL;
    snprintf(text, sizeof text, "diloco sweep %s %s", path, line);
    for (char *word = strtok_r(text, " ", &next); word && n < 32; word = strtok_r(NULL, " ", &next))
        words[n++] = word;
    CHECK_OK(dl_args_parse(&args, dl_command_find("sweep"), n, words, 2));
    return dl_sweep_read(&sweep, &args);
}

static void refused(const char *part, const char *line)
{
    CHECK_STATUS(DILOCO_EINVAL, read_line(line));
    CHECK_CONTAINS(part, diloco_error_text());
}

TEST(arms_are_all_combinations_and_the_first_key_changes_slowest)
{
    static const char *const want[] = {"lr=1e-3 preset=diloco",  "lr=1e-3 preset=fedavg",
                                       "lr=1e-3 preset=muloco",  "lr=0.002 preset=diloco",
                                       "lr=0.002 preset=fedavg", "lr=0.002 preset=muloco"};
    CHECK_OK(
        read_line("--set-values lr=1e-3,0.002 --set-values preset=diloco,fedavg,muloco --seeds 3"));
    CHECK_INT(6, sweep.n_arms);
    CHECK_INT(3, sweep.n_seeds);
    CHECK_INT(7, sweep.first_seed);
    for (size_t arm = 0; arm < 6; arm++) {
        char text[128];
        dl_sweep_arm_text(text, sizeof text, &sweep, arm);
        CHECK_STR(want[arm], text);
    }
}

TEST(a_trial_has_its_values_its_seed_and_the_given_settings)
{
    CHECK_OK(read_line("--set-values lr=1e-3,0.002 --set-values preset=diloco,fedavg --seed 11 "
                       "--set trainer.batch_size=3"));
    CHECK_OK(dl_sweep_config(&config, &sweep, &args, 3, 12));
    CHECK_NEAR(0.002, config.lr, 0);
    CHECK_STR("fedavg", config.preset);
    CHECK_STR("sgd", config.outer_optimizer);
    CHECK_INT(12, config.seed);
    CHECK_INT(3, config.batch_size);
    CHECK_INT(11, sweep.first_seed);
}

TEST(trials_of_different_h_take_the_same_number_of_steps)
{
    CHECK_OK(read_line("--set-values sync_every=10,60"));
    CHECK_OK(dl_sweep_config(&config, &sweep, &args, 0, 7));
    CHECK_INT(12, config.rounds);
    CHECK_OK(dl_sweep_config(&config, &sweep, &args, 1, 7));
    CHECK_INT(2, config.rounds);
    CHECK_OK(read_line("--set-values sync_every=10,60 --equal-steps 600"));
    CHECK_OK(dl_sweep_config(&config, &sweep, &args, 0, 7));
    CHECK_INT(60, config.rounds);
    static const int64_t rounds[] = {80, 40, 16, 8, 4, 2}; /* ALG-9: the paper's, one command */
    CHECK_OK(read_line("--set-values sync_every=50,100,250,500,1000,2000 --equal-steps 4000"));
    for (size_t arm = 0; arm < sweep.n_arms; arm++) {
        CHECK_OK(dl_sweep_config(&config, &sweep, &args, arm, 7));
        CHECK_INT(rounds[arm], config.rounds);
    }
    CHECK_INT(6, sweep.n_arms);
    CHECK_OK(read_line("--set-values lr=1,2")); /* nothing that H follows from */
    CHECK_OK(dl_sweep_config(&config, &sweep, &args, 0, 7));
    CHECK_INT(6, config.rounds);
    CHECK_OK(read_line("--set-values trainer.rounds=2,3")); /* meant to differ */
    CHECK_OK(dl_sweep_config(&config, &sweep, &args, 1, 7));
    CHECK_INT(3, config.rounds);
}

TEST(steps_that_h_does_not_divide_are_refused)
{
    CHECK_OK(read_line("--set-values sync_every=10,7"));
    CHECK_STATUS(DILOCO_EINVAL, dl_sweep_config(&config, &sweep, &args, 1, 7));
    CHECK_CONTAINS("120 steps cannot be cut", diloco_error_text());
    CHECK_CONTAINS("--equal-steps 119", diloco_error_text());
}

TEST(a_folder_is_named_for_its_values_in_plain_characters)
{
    char name[256];
    CHECK_OK(read_line("--set-values lr=1e-3 --set-values data.train_path=/a/b:c --seeds 2"));
    CHECK_OK(dl_sweep_folder(name, sizeof name, &sweep, 0, 8));
    CHECK_STR("lr=1e-3,data.train_path=_a_b_c,seed=8", name);
    CHECK_OK(read_line("--seeds 2")); /* no key: one configuration from two seeds */
    CHECK_INT(1, sweep.n_arms);
    CHECK_OK(dl_sweep_folder(name, sizeof name, &sweep, 0, 7));
    CHECK_STR("seed=7", name);
    char line[300] = "--set-values data.train_path=";
    memset(line + strlen(line), 'x', 200);
    CHECK_OK(read_line(line));
    CHECK_STATUS(DILOCO_EINVAL, dl_sweep_folder(name, sizeof name, &sweep, 0, 7));
    CHECK_CONTAINS("too long", diloco_error_text());
}

TEST(rounds_whose_length_is_in_epochs_have_no_equal_steps)
{
    CHECK_OK(read_line("--set-values lr=1e-3,2e-3 --equal-steps 10 --preset fedavg --set "
                       "trainer.epochs=1 --set sync_every=0"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_sweep_config(&config, &sweep, &args, 0, 7));
    CHECK_CONTAINS("trainer.epochs", diloco_error_text());
}

TEST(options_that_cannot_be_swept_are_refused)
{
    refused("did you mean trainer.local_steps_per_round?", "--set-values sinc_every=1,2");
    refused("seeds are --seeds N", "--set-values run.seed=1,2");
    refused("/a/b and _a_b would have the same folder", "--set-values data.train_path=/a/b,_a_b");
    refused("its own folder", "--set-values run.store=a,b");
    refused("name the folder of all with --out", "--set run.store=a");
    refused("lr is given twice", "--set-values lr=1 --set-values lr=2");
    refused("is given twice", "--set-values lr=1 --set-values parameters.optimizer.lr=2");
    refused("1 is given twice", "--set-values lr=1,2,1");
    refused("which is swept", "--set-values trainer.rounds=1,2 --equal-steps 100");
    refused("at least one", "--seeds 0");
    refused("--seeds 2000 is not", "--seeds 2000");
    refused("more than 4096 runs", "--set-values lr=1,2,3,4,5 --seeds 1000");
}

TEST(too_many_values_are_refused)
{
    char line[512] = "--set-values lr=0";
    for (int i = 1; i <= DL_SWEEP_VALUES; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), ",%d", i);
    refused("at most 64 values", line);
    line[0] = '\0';
    static const char *const keys[] = {"lr",
                                       "outer_lr",
                                       "outer_momentum",
                                       "trainer.batch_size",
                                       "trainer.gradient_clip",
                                       "trainer.optimizer",
                                       "run.threads",
                                       "run.replicas",
                                       "run.quorum"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "--set-values %s=1 ", keys[i]);
    refused("at most 8 --set-values", line);
}

TEST_MAIN(arms_are_all_combinations_and_the_first_key_changes_slowest,
          a_trial_has_its_values_its_seed_and_the_given_settings,
          trials_of_different_h_take_the_same_number_of_steps,
          steps_that_h_does_not_divide_are_refused,
          a_folder_is_named_for_its_values_in_plain_characters,
          rounds_whose_length_is_in_epochs_have_no_equal_steps,
          options_that_cannot_be_swept_are_refused, too_many_values_are_refused)
