/* presets_test.c - presets set what they say, and names that are not there are told apart: not
 * built yet, misspelt, unknown. */
#include "train/presets.h"

#include "check.h"
#include "train/checks.h"

static dl_config config;

TEST(a_preset_sets_its_values_and_says_so)
{
    dl_config_init(&config);
    CHECK_OK(diloco_preset_apply(&config, "fedavg"));
    CHECK_STR("fedavg", config.preset);
    CHECK_STR("sgd", config.outer_optimizer);
    CHECK_STR("num_samples", config.weighting);
    CHECK_NEAR(1, config.outer_lr, 0);
    CHECK_STR("preset fedavg", dl_config_origin(&config, "server.diloco.aggregation_weighting"));
    CHECK_STR("default", dl_config_origin(&config, "parameters.optimizer.lr"));
}

TEST(the_papers_values_are_those_of_preset_diloco)
{
    dl_config_init(&config);
    CHECK_OK(diloco_preset_apply(&config, "diloco"));
    CHECK_INT(500, config.local_steps);
    CHECK_STR("nesterov", config.outer_optimizer);
    CHECK_NEAR(0.7, config.outer_lr, 0);
    CHECK_NEAR(0.9, config.outer_mu, 0);
    CHECK_STR("f32", config.codec);
}

TEST(the_papers_values_are_those_of_preset_muloco)
{
    dl_config_init(&config);
    CHECK_OK(diloco_preset_apply(&config, "muloco"));
    CHECK_INT(30, config.local_steps);
    CHECK_STR("muon", config.optimizer);
    CHECK_STR("nesterov", config.outer_optimizer);
    CHECK_NEAR(0.7, config.outer_lr, 0);
    CHECK_NEAR(0.6, config.outer_mu, 0);
}

/* SWM-1, SWM-2 */
TEST(preset_swarm_takes_500_steps_and_its_range_of_rounds_and_outer_steps_is_accepted)
{
    static const char *const ranges[][4] = {{"100", "0.01", "0.8", "nesterov"},
                                            {"1000", "0.5", "0.99", "momentum"}};
    dl_config_init(&config);
    CHECK_OK(diloco_preset_apply(&config, "swarm"));
    CHECK_OK(dl_config_set(&config, "run.store", "somewhere", "test"));
    CHECK_INT(500, config.local_steps);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dl_config_set(&config, "trainer.local_steps_per_round", ranges[i][0], "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.outer_learning_rate", ranges[i][1], "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.outer_momentum", ranges[i][2], "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.outer_optimizer", ranges[i][3], "test"));
        CHECK_OK(dl_check_config(&config));
    }
}

TEST(every_preset_passes_the_checks)
{
    for (size_t i = 0; diloco_preset_at(i); i++) {
        const diloco_preset *preset = diloco_preset_at(i);
        dl_config_init(&config);
        CHECK_OK(dl_config_set(&config, "run.store", "somewhere", "test"));
        CHECK_OK(diloco_preset_apply(&config, preset->name));
        CHECK_OK(dl_check_config(&config));
        CHECK(*preset->summary && *preset->citation);
    }
}

TEST(a_misspelt_preset_is_told_the_nearest)
{
    dl_config_init(&config);
    CHECK_STATUS(DILOCO_EINVAL, diloco_preset_apply(&config, "fedavgg"));
    CHECK_CONTAINS("did you mean fedavg;", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, diloco_preset_apply(&config, "quantum"));
    CHECK_CONTAINS("there is: diloco, muloco, streaming, eager, delayed, async, decoupled, sparse, "
                   "federated, fedavg,",
                   diloco_error_text());
}

TEST(options_tell_the_values_they_may_have)
{
    CHECK_STR("adamw", diloco_choice_at("trainer.optimizer", 0));
    CHECK_STR("diloco", diloco_choice_at("preset", 0));
    CHECK_STR("mean", diloco_choice_at("combiner", 0)); /* an alias */
    CHECK_STR("gpt", diloco_choice_at("trainer.model_name", 0));
    CHECK(diloco_choice_at("trainer.model_name", 99) == NULL);
    CHECK(diloco_choice_at("trainer.batch_size", 0) == NULL);
    CHECK(diloco_choice_at("no.such.option", 0) == NULL);
}

TEST_MAIN(a_preset_sets_its_values_and_says_so, the_papers_values_are_those_of_preset_diloco,
          the_papers_values_are_those_of_preset_muloco,
          preset_swarm_takes_500_steps_and_its_range_of_rounds_and_outer_steps_is_accepted,
          every_preset_passes_the_checks, a_misspelt_preset_is_told_the_nearest,
          options_tell_the_values_they_may_have)
