/* presets_test.c - presets set their values, and the errors for missing names differ: not built
 * yet, misspelt, unknown. */
#include "presets/presets.h"

#include "check.h"
#include "presets/checks.h"

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

TEST(alg_3_preset_diloco_has_the_paper_s_values)
{
    dl_config_init(&config);
    CHECK_OK(diloco_preset_apply(&config, "diloco"));
    CHECK_STR("adamw", config.optimizer);
    CHECK_INT(500, config.local_steps);
    CHECK_STR("nesterov", config.outer_optimizer);
    CHECK_NEAR(0.7, config.outer_lr, 0);
    CHECK_NEAR(0.9, config.outer_mu, 0);
    CHECK_STR("f32", config.codec);
}

TEST(alg_24_preset_streaming_has_the_paper_s_values)
{
    dl_config_init(&config);
    CHECK_OK(diloco_preset_apply(&config, "streaming"));
    CHECK_INT(100, config.local_steps);
    CHECK_INT(3, config.fragment_layers);
    CHECK_NEAR(0.4, config.outer_lr, 0);
    CHECK_NEAR(0.9, config.outer_mu, 0);
    CHECK_STR("e3m0", config.codec);
    /* and shown, not left to a default: */
    CHECK_STR("preset streaming", dl_config_origin(&config, "server.diloco.local_mix"));
    CHECK_STR("preset streaming", dl_config_origin(&config, "server.diloco.overlap_steps"));
    CHECK_OK(dl_config_set(&config, "trainer.local_steps_per_round", "30", "test"));
    CHECK_OK(dl_config_set(&config, "run.store", "somewhere", "test"));
    CHECK_OK(dl_check_config(&config));
}

TEST(alg_6_every_preset_cites_its_paper)
{
    static const char *const papers[][2] = {
        {"diloco", "2311.08105"}, {"diloco", "2503.09799"}, {"streaming", "2501.18512"},
        {"eager", "2502.12996"},  {"async", "2401.09135"},  {"decoupled", "2604.21428"},
        {"sparse", "2508.15706"}, {"muloco", "2505.23725"}, {"noloco", "2506.10911"},
        {"fedavg", "1602.05629"}, {"fedadam", "2003.00295"}};
    for (size_t k = 0; k < sizeof papers / sizeof *papers; k++) {
        bool found = false;
        for (size_t i = 0; diloco_preset_at(i); i++) {
            const diloco_preset *preset = diloco_preset_at(i);
            if (strcmp(preset->name, papers[k][0]) != 0) continue;
            CHECK_CONTAINS(papers[k][1], preset->citation);
            found = true;
        }
        CHECK(found);
    }
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
    CHECK_INT(5, config.replicas);
    CHECK_INT(4, config.min_peers); /* it may lose one node */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dl_config_set(&config, "trainer.local_steps_per_round", ranges[i][0], "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.outer_learning_rate", ranges[i][1], "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.outer_momentum", ranges[i][2], "test"));
        CHECK_OK(dl_config_set(&config, "server.diloco.outer_optimizer", ranges[i][3], "test"));
        CHECK_OK(dl_check_config(&config));
    }
}

/* So that a comparison of two of them on one file is one of their rules. fedprox has its own term.
 */
TEST(presets_of_the_federated_family_leave_the_inner_trainer_alone)
{
    static const char *const family[] = {"fedavg",  "fedavgm", "fedprox",
                                         "fedadam", "fedyogi", "fedadagrad"};
    for (size_t i = 0; i < sizeof family / sizeof *family; i++) {
        const diloco_preset *p = NULL;
        for (size_t k = 0; (p = diloco_preset_at(k)) && strcmp(p->name, family[i]) != 0;)
            k++;
        CHECK(p);
        for (const diloco_preset_value *v = p->values; v->name; v++)
            CHECK(!strncmp(v->name, "server.diloco.", 14) ||
                  !strcmp(v->name, "trainer.proximal_mu"));
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

TEST(a_misspelt_preset_is_answered_with_the_nearest)
{
    dl_config_init(&config);
    CHECK_STATUS(DILOCO_EINVAL, diloco_preset_apply(&config, "fedavgg"));
    CHECK_CONTAINS("did you mean fedavg;", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, diloco_preset_apply(&config, "quantum"));
    CHECK_CONTAINS("there is: diloco, muloco, streaming, eager, delayed, async, decoupled, sparse, "
                   "federated, fedavg,",
                   diloco_error_text());
}

TEST(options_list_their_values)
{
    CHECK_STR("adamw", diloco_choice_at("trainer.optimizer", 0));
    CHECK_STR("diloco", diloco_choice_at("preset", 0));
    CHECK_STR("mean", diloco_choice_at("combiner", 0)); /* an alias */
    CHECK_STR("gpt", diloco_choice_at("trainer.model_name", 0));
    CHECK(diloco_choice_at("trainer.model_name", 99) == NULL);
    CHECK(diloco_choice_at("trainer.batch_size", 0) == NULL);
    CHECK(diloco_choice_at("no.such.option", 0) == NULL);
}

TEST_MAIN(a_preset_sets_its_values_and_says_so, alg_3_preset_diloco_has_the_paper_s_values,
          alg_24_preset_streaming_has_the_paper_s_values, alg_6_every_preset_cites_its_paper,
          the_papers_values_are_those_of_preset_muloco,
          preset_swarm_takes_500_steps_and_its_range_of_rounds_and_outer_steps_is_accepted,
          presets_of_the_federated_family_leave_the_inner_trainer_alone,
          every_preset_passes_the_checks, a_misspelt_preset_is_answered_with_the_nearest,
          options_list_their_values)
