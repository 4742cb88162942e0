/* tune_test.c - from flags to the candidates of a search, and what is refused. */
#include "cli/sweep/tune.h"

#include "check.h"
#include "scratch.h"

static dl_args args;
static dl_tune tune;
static dl_config config;

static const char file[] = "[run]\nseed = 7\n[trainer]\nrounds = 12\nlocal_steps_per_round = 20\n"
                           "[parameters.model]\ncontext = 16\n[data]\ntrain_path = \"%s\"\n";

static const char *path_of_config(void)
{
    static const char *path;
    char text[4096], words[8192];
    if (path) return path;
    memset(words, 'x', sizeof words);
    snprintf(text, sizeof text, file, scratch_write("text.txt", words, sizeof words));
    return path = scratch_write("base.toml", text, strlen(text));
}

/* A command line after "tune CONFIG", its words separated by spaces. */
static diloco_status read_line(const char *line)
{
    static char text[1024];
    static char *words[32];
    int n = 0;
    char *next = NULL;
    snprintf(text, sizeof text, "diloco tune %s %s", path_of_config(), line);
    for (char *word = strtok_r(text, " ", &next); word && n < 32; word = strtok_r(NULL, " ", &next))
        words[n++] = word;
    CHECK_OK(dl_args_parse(&args, dl_command_find("tune"), n, words, 2));
    return dl_tune_read(&tune, &args);
}

static void refused(diloco_status status, const char *part, const char *line)
{
    CHECK_STATUS(status, read_line(line));
    CHECK_CONTAINS(part, diloco_error_text());
}

static const char *text_of(size_t arm)
{
    static char text[256];
    dl_sweep_arm_text(text, sizeof text, &tune.grid, arm);
    return text;
}

TEST(the_first_candidate_is_the_configuration_itself)
{
    CHECK_OK(read_line(""));
    CHECK_INT(0, tune.arms[0]);
    CHECK_STR("lr=0.0004 sync_every=20 outer_lr=0.7 outer_momentum=0.9", text_of(0));
    CHECK_OK(read_line("--set-values lr=1e-3,0.0004,2e-3"));
    CHECK_STR("lr=0.0004", text_of(0));
    CHECK_INT(3, tune.n);
}

TEST(default_candidates_vary_rates_momentum_and_h_and_are_drawn_by_the_seed)
{
    static size_t first[DL_TUNE_CANDIDATES];
    bool differs = false;
    CHECK_OK(read_line(""));
    CHECK_INT(DL_TUNE_CANDIDATES, tune.n);
    CHECK_INT(4, tune.grid.n_keys);
    CHECK_INT(5, tune.grid.keys[0].n_values);
    memcpy(first, tune.arms, sizeof first);
    for (size_t i = 0; i < tune.n; i++)
        for (size_t j = 0; j < i; j++)
            CHECK(tune.arms[i] != tune.arms[j]);
    CHECK_OK(read_line(""));
    CHECK_BYTES(first, tune.arms, sizeof first);
    CHECK_OK(read_line("--seed 8"));
    for (size_t i = 0; i < tune.n; i++)
        differs = differs || first[i] != tune.arms[i];
    CHECK(differs);
}

TEST(a_preset_that_exchanges_every_step_varies_its_rate_alone)
{
    CHECK_OK(read_line("--preset data_parallel --set sync_every=1"));
    CHECK_INT(1, tune.grid.n_keys);
    CHECK_INT(5, tune.n);
}

TEST(a_trial_has_its_values_its_steps_and_a_seed_that_the_configuration_does_not_use)
{
    CHECK_OK(read_line("--set-values sync_every=30,60 --steps 600"));
    CHECK_INT(7 + DL_TUNE_SEED_OFFSET, tune.seed);
    CHECK_OK(dl_tune_config(&config, &tune, &args, 1, 600, tune.seed));
    CHECK_INT(30, config.local_steps);
    CHECK_INT(20, config.rounds);
    CHECK_INT(7 + DL_TUNE_SEED_OFFSET, config.seed);
    CHECK_INT(240, tune.whole_steps);
    CHECK_INT(8, dl_tune_whole_rounds(&tune, 30));
    CHECK_INT(9, dl_tune_whole_rounds(&tune, 29));
}

TEST(steps_of_a_rung_divide_into_rounds_of_every_candidate)
{
    CHECK_OK(read_line("--set-values sync_every=30,8"));
    for (size_t r = 0; r < tune.halving.n; r++)
        for (size_t i = 0; i < tune.n; i++)
            CHECK_OK(dl_tune_config(&config, &tune, &args, tune.arms[i],
                                    tune.halving.rungs[r].steps, tune.seed));
}

TEST(mistakes_are_refused)
{
    refused(DILOCO_EINVAL, "--trials", "--trials 1");
    refused(DILOCO_EINVAL, "--seeds", "--seeds 0");
    refused(DILOCO_EINVAL, "--max-sent", "--max-sent much");
    refused(DILOCO_EINVAL, "trainer.rounds", "--set-values trainer.rounds=2,3");
    refused(DILOCO_EINVAL, "lrr", "--set-values lrr=2,3");
    refused(DILOCO_EINVAL, "run.seed", "--set-values run.seed=2,3");
    refused(DILOCO_EINVAL, "39 steps", "--steps 39");
    refused(DILOCO_EREFUSED, "local_steps_phases", "--set trainer.local_steps_phases=10x2,20x*");
    refused(DILOCO_EREFUSED, "trainer.epochs",
            "--preset fedavg --set trainer.epochs=1 --set trainer.local_steps_per_round=0");
    refused(DILOCO_EINVAL, "server.diloco.fragments",
            "--set-values server.diloco.fragments=1,9999");
}

TEST(a_default_candidate_that_a_check_refuses_is_left_out)
{
    CHECK_OK(read_line(
        "--preset streaming --set server.diloco.fragments=2 --set fragment_sync_delay=15 --trials "
        "1000"));
    CHECK(tune.n_refused > 0);
    CHECK_INT(tune.grid.n_arms, tune.n + tune.n_refused);
}

TEST_MAIN(the_first_candidate_is_the_configuration_itself,
          default_candidates_vary_rates_momentum_and_h_and_are_drawn_by_the_seed,
          a_preset_that_exchanges_every_step_varies_its_rate_alone,
          a_trial_has_its_values_its_steps_and_a_seed_that_the_configuration_does_not_use,
          steps_of_a_rung_divide_into_rounds_of_every_candidate, mistakes_are_refused,
          a_default_candidate_that_a_check_refuses_is_left_out)
