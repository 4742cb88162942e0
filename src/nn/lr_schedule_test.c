/* lr_schedule_test.c - learning rates at the corners of every schedule. */
#include "check.h"
#include "nn/inner.h"

static dl_config config;

static double lr_at(const char *name, uint64_t step)
{
    double lr = -1;
    CHECK_OK(dl_config_set(&config, "trainer.lr_scheduler", name, "test"));
    CHECK_OK(dl_schedule_lr(&lr, &config, step, 100, 0));
    return lr;
}

static void defaults(void)
{
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "lr", "2", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.warmup_steps", "10", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.decay_steps", "20", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.min_ratio", "0.1", "test"));
}

TEST(warm_up_rises_to_the_full_rate_in_every_schedule)
{
    defaults();
    for (size_t i = 0; dl_schedule_name_at(i); i++) {
        const char *name = dl_schedule_name_at(i);
        if (strstr(name, "LR")) continue; /* one step later, or none */
        CHECK_NEAR(0.2, lr_at(name, 0), 1e-12);
        CHECK_NEAR(1.0, lr_at(name, 4), 1e-12);
        CHECK_NEAR(2.0, lr_at(name, 9), 1e-12);
        CHECK_NEAR(2.0, lr_at(name, 10), 1e-12);
    }
}

TEST(each_schedule_falls_as_its_name_says)
{
    defaults();
    CHECK_NEAR(2.0, lr_at("constant", 99), 1e-12);
    CHECK_NEAR(0.2 + 1.8 * 0.5, lr_at("linear", 55), 1e-12);
    CHECK_NEAR(0.2, lr_at("linear", 100), 1e-12);
    CHECK_NEAR(0.2 + 1.8 * 0.5, lr_at("cosine", 55), 1e-12);
    CHECK_NEAR(0.2 + 0.9 * (1 + cos(3.14159265358979 * 10 / 90)), lr_at("cosine", 20), 1e-9);
    CHECK_NEAR(2.0, lr_at("wsd", 80), 1e-12);
    CHECK_NEAR(0.2 + 1.8 * (1 - sqrt(0.25)), lr_at("wsd", 85), 1e-12);
    CHECK_NEAR(0.2, lr_at("wsd", 100), 1e-12);
}

TEST(behind_the_end_the_rate_stays_at_its_lowest)
{
    defaults();
    CHECK_NEAR(0.2, lr_at("cosine", 1000), 1e-12);
    CHECK_NEAR(0.2, lr_at("linear", 1000), 1e-12);
    CHECK_NEAR(0.2, lr_at("wsd", 1000), 1e-12);
}

TEST(wsd_decays_over_a_tenth_by_default)
{
    defaults();
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.decay_steps", "0", "test"));
    CHECK_NEAR(2.0, lr_at("wsd", 90), 1e-12);
    CHECK(lr_at("wsd", 91) < 2.0);
}

/* configs.md's formula by hand: 2 min(1, k / 10) gamma^(milestones <= k). */
TEST(lambda_is_platos_with_a_first_step_of_zero_and_a_factor_at_each_milestone)
{
    defaults();
    CHECK(lr_at("LambdaLR", 0) == 0);
    CHECK_NEAR(1.8, lr_at("LambdaLR", 9), 1e-12);
    CHECK_NEAR(2.0, lr_at("LambdaLR", 10), 1e-12);
    CHECK_NEAR(2.0, lr_at("LambdaLR", 10000), 1e-12);
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.milestone_steps", "20it, 30", "t"));
    CHECK_NEAR(2.0, lr_at("LambdaLR", 10000), 1e-12); /* without gamma */
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.gamma", "0.5", "test"));
    CHECK_NEAR(2.0, lr_at("LambdaLR", 19), 1e-12);
    CHECK_NEAR(1.0, lr_at("LambdaLR", 20), 1e-12);
    CHECK_NEAR(0.5, lr_at("LambdaLR", 30), 1e-12);
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.warmup_steps", "1000it", "test"));
    CHECK_NEAR(0.5 * 0.5, lr_at("LambdaLR", 500), 1e-12);
}

TEST(multi_step_is_pytorchs)
{
    defaults();
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.warmup_steps", "1000", "test"));
    CHECK_OK(dl_config_set(&config, "trainer.lr_scheduler", "MultiStepLR", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_schedule_check(&config));
    CHECK_CONTAINS("needs its milestones", diloco_error_text());
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.milestone_steps", "20it, 30", "t"));
    CHECK_OK(dl_schedule_check(&config));
    CHECK_NEAR(2.0, lr_at("MultiStepLR", 0), 1e-12);
    CHECK_NEAR(2.0, lr_at("MultiStepLR", 19), 1e-12);
    CHECK_NEAR(0.2, lr_at("MultiStepLR", 20), 1e-12);
    CHECK_NEAR(0.02, lr_at("MultiStepLR", 30), 1e-12);
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.gamma", "0.5", "test"));
    CHECK_NEAR(0.5, lr_at("MultiStepLR", 99), 1e-12);
}

TEST(step_lr_is_pytorchs)
{
    static const char size[] = "parameters.learning_rate.step_size";
    defaults();
    CHECK_OK(dl_config_set(&config, "trainer.lr_scheduler", "StepLR", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_schedule_check(&config));
    CHECK_CONTAINS("needs its period", diloco_error_text());
    for (const char *const *bad = (const char *const[]){"0", "0it", "5x", "10it, 20", "it", NULL};
         *bad; bad++) {
        CHECK_OK(dl_config_set(&config, size, *bad, "test"));
        CHECK_STATUS(DILOCO_EINVAL, dl_schedule_check(&config));
        CHECK_CONTAINS("number of steps above 0", diloco_error_text());
    }
    CHECK_OK(dl_config_set(&config, size, "5ep", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_schedule_check(&config));
    CHECK_CONTAINS("step_size counts epochs", diloco_error_text());
    CHECK_OK(dl_config_set(&config, size, "20it", "test"));
    CHECK_OK(dl_schedule_check(&config));
    CHECK_NEAR(2.0, lr_at("StepLR", 0), 1e-12);
    CHECK_NEAR(2.0, lr_at("StepLR", 19), 1e-12);
    CHECK_NEAR(0.2, lr_at("StepLR", 20), 1e-12);
    CHECK_NEAR(0.02, lr_at("StepLR", 59), 1e-12);
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.gamma", "0.5", "test"));
    CHECK_NEAR(0.25, lr_at("StepLR", 60), 1e-12);
}

/* 7 steps are an epoch. */
TEST(warm_ups_and_milestones_in_epochs_are_converted_to_steps)
{
    double lr;
    defaults();
    CHECK_OK(dl_config_set(&config, "clients.total_clients", "5", "test"));
    CHECK_OK(dl_config_set(&config, "trainer.lr_scheduler", "LambdaLR", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.warmup_epochs", "2", "test"));
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.gamma", "0.5", "test"));
    CHECK_OK(
        dl_config_set(&config, "parameters.learning_rate.milestone_steps", "5ep, 6ep3it", "t"));
    CHECK_OK(dl_schedule_check(&config));
    static const struct {
        uint64_t step;
        double lr;
    } expected[] = {{0, 0}, {12, 1}, {24, 2}, {34, 2}, {35, 1}, {44, 1}, {45, 0.5}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        CHECK_OK(dl_schedule_lr(&lr, &config, expected[i].step, 100, 7));
        CHECK_NEAR(expected[i].lr, lr, 1e-12); /* warm-up: 10 steps and 2 epochs */
    }
    CHECK_OK(dl_config_set(&config, "trainer.lr_scheduler", "constant", "test"));
    CHECK_OK(dl_schedule_lr(&lr, &config, 11, 100, 7));
    CHECK_NEAR(1, lr, 1e-12);
}

TEST(epochs_are_of_clients)
{
    defaults();
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.milestone_steps", "5ep", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_schedule_check(&config));
    CHECK_CONTAINS("milestone_steps counts epochs", diloco_error_text());
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.warmup_epochs", "1", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_schedule_check(&config));
    CHECK_CONTAINS("warmup_epochs counts epochs", diloco_error_text());
    CHECK_OK(dl_config_set(&config, "clients.total_clients", "5", "test"));
    CHECK_OK(dl_schedule_check(&config));
}

TEST(milestones_are_steps_with_commas_between)
{
    static const char *const wrong[] = {"5ep3", "5epit",  "5ep3ep", "10,", "10;20",
                                        "x",    "10it20", ",",      "-3",  "1e3"};
    defaults();
    CHECK_OK(dl_schedule_check(&config));
    CHECK_OK(dl_config_set(&config, "parameters.learning_rate.milestone_steps", "10it,20", "t"));
    CHECK_OK(dl_schedule_check(&config));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_OK(
            dl_config_set(&config, "parameters.learning_rate.milestone_steps", wrong[i], "test"));
        CHECK_STATUS(DILOCO_EINVAL, dl_schedule_check(&config));
        CHECK_CONTAINS("milestone_steps", diloco_error_text());
    }
}

TEST(an_unknown_schedule_names_the_known_ones)
{
    double lr;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "trainer.lr_scheduler", "zigzag", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_schedule_lr(&lr, &config, 0, 100, 0));
    for (size_t i = 0; dl_schedule_name_at(i); i++)
        CHECK_CONTAINS(dl_schedule_name_at(i), diloco_error_text());
}

TEST_MAIN(warm_up_rises_to_the_full_rate_in_every_schedule, each_schedule_falls_as_its_name_says,
          behind_the_end_the_rate_stays_at_its_lowest, wsd_decays_over_a_tenth_by_default,
          lambda_is_platos_with_a_first_step_of_zero_and_a_factor_at_each_milestone,
          multi_step_is_pytorchs, step_lr_is_pytorchs,
          warm_ups_and_milestones_in_epochs_are_converted_to_steps, epochs_are_of_clients,
          milestones_are_steps_with_commas_between, an_unknown_schedule_names_the_known_ones)
